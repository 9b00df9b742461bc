"""Asks a worker for the stack of a running job."""

from typing import Final

from toril.errors import WrongState, preview
from toril.model import JobRef, JobRow, StackRequest
from toril.records import JobStack
from toril.runtime.clock import SYSTEM
from toril.store.engine import Store

__all__ = ["asked_stack"]

_LOOK: Final = 0.1  # seconds between two checks for the answer


async def asked_stack(store: Store, job: JobRow, patience: int) -> JobStack:
    """Leave the request for the job's worker, and wait at most this many ms for the heartbeat that answers it."""
    worker, request = job.worker or "", StackRequest.of(JobRef(job.queue, job.id))
    asked_at = (await store.health()).now
    if not await store.signal(worker, request):
        raise WrongState(f"worker {preview(worker)} of job {preview(job.id)} sends no heartbeats: it may have died")
    until = SYSTEM.monotonic() + patience / 1000
    while True:
        views = [view for view in await store.workers(job.queue) if view.id == worker and request in view.stacks]
        if views and views[0].seen_at >= asked_at:
            break
        if SYSTEM.monotonic() > until:
            reason = "its event loop may be blocked, and it has no supervisor to answer for it"
            raise WrongState(f"worker {preview(worker)} does not answer: {reason}")
        await SYSTEM.sleep(_LOOK)
    text = views[0].stacks[request]
    if not text:
        raise WrongState(f"job {preview(job.id)} no longer runs on worker {preview(worker)}")
    return JobStack(queue=job.queue, id=job.id, worker=worker, text=text, silent=views[0].silent / 1000)
