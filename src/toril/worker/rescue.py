"""What an app does about jobs that were lost under its hands: best effort, with no say in what becomes of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from toril.job import Job
from toril.model import Claimed
from toril.queue import Queue
from toril.runtime.logs import log

__all__ = ["Rescue"]

_LAST: Final = 0.25  # seconds for hooks that are called when the worker ends


class Rescue:
    """Calls the hooks of a queue for each job whose lease was lost here."""

    def __init__(self, queue: Queue, job: Callable[[Claimed], Job[Any]]) -> None:
        self._queue = queue
        self._job = job
        self._tasks: set[asyncio.Task[None]] = set()

    def lost(self, claimed: Claimed) -> None:
        if self._queue.lease_hooks:
            task = asyncio.get_running_loop().create_task(self._call(claimed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Those that are still at it may end; not for long, for the process is to end too."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST)
        for task in self._tasks:
            task.cancel()

    async def _call(self, claimed: Claimed) -> None:
        for hook, when in self._queue.lease_hooks:
            try:
                job = self._job(claimed)
                if when is None or when(job):
                    answer = hook(job)
                    if isinstance(answer, Awaitable):
                        await answer
            except BaseException:
                task = asyncio.current_task()
                if task is not None and task.cancelling():  # by us, and not by itself
                    raise
                log.exception("on_lease_lost failed for job %s of queue %s", claimed.lease.id, self._queue.name)
