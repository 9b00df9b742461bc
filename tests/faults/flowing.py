"""What the processes do that run a flow: three queues, one above the other."""

import asyncio
from itertools import count

from tests.faults.ledger import Ledger
from toril.model import Claim, Completed, JobRef, Lease, Settlement
from toril.model.states import State
from toril.store.engine import Store, connect

__all__ = ["QUEUES", "tend"]

QUEUES = ("leaf", "middle", "top")
LIVE = (State.WAITING, State.PRIORITIZED, State.ACTIVE, State.DELAYED, State.WAITING_CHILDREN)


async def tend(url: str, log: str, name: str, lease: int) -> None:
    """Claim and complete in all three until nothing is left. Note each start, and how many children a parent knew."""
    engine, ledger = connect(url), Ledger(log)
    await engine.open()
    done: dict[str, list[Settlement]] = {queue: [] for queue in QUEUES}
    for number in count():
        for queue in QUEUES:
            claim = Claim(
                want=20, token=f"{name}-{number}-{queue}", lease=lease, worker=name, alone=True, max_stalls=1_000_000
            )  # fmt: skip
            answer = await engine.exchange(queue, done[queue], claim)
            ledger.note(f"start-{queue}", [job.lease.id for job in answer.jobs])
            for job in answer.jobs if queue != "leaf" else ():
                ledger.note("knows", [f"{queue} {await _known(engine, job.lease)}"])
            done[queue] = [Settlement(job.lease, Completed(f'"{job.lease.id}"')) for job in answer.jobs]
            await engine.recover(queue)
        if not any(done.values()) and not await _more_may_come(engine):
            break
    await engine.close()


async def _known(engine: Store, lease: Lease) -> str:
    family = await engine.flows.child_counts(JobRef(lease.queue, lease.id))
    return f"{family.completed}/{family.total}"


async def _more_may_come(engine: Store) -> bool:
    counts = [await engine.counts(queue) for queue in QUEUES]
    if any(each.active or each.waiting_children for each in counts):
        await asyncio.sleep(0.01)
    return any(each.of(state) for each in counts for state in LIVE)
