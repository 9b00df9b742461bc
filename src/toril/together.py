"""Jobs that are added one by one in the same tick of the loop go to the store in one call."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from toril.errors import AddUncertain, QueueFull
from toril.model import Added, NewJob

__all__ = ["Together"]

_MOST: Final = 100  # jobs of one call, so that the store is busy with it for a millisecond and not longer
_SIZE: Final = 1024 * 1024  # characters of their payloads

_Store = Callable[[Sequence[NewJob]], Awaitable[list[Added]]]
_Asked = tuple[NewJob, "asyncio.Future[Added]"]


class Together:
    """The first job of a tick goes to the store at once, and so a lone one waits for nobody. Those after it follow
    together when the tick is over."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None  # while a tick is under way in which one was sent
        self._gathered: list[_Asked] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def add(self, store: _Store, job: NewJob, *, alone: bool = False) -> Added:
        """Store a job, perhaps with others; not if it is followed by a trace of its own, and so goes `alone`."""
        loop = asyncio.get_running_loop()
        if alone or self._loop is not loop:
            if not alone:
                self._loop, self._gathered = loop, []
                loop.call_soon(self._tick_is_over, store)
            (added,) = await store([job])
            return added
        answer: asyncio.Future[Added] = loop.create_future()
        self._gathered.append((job, answer))
        return await answer

    def _tick_is_over(self, store: _Store) -> None:
        self._loop = None
        batch, size = list[_Asked](), 0
        for asked in self._gathered:
            if batch and (len(batch) == _MOST or size + len(asked[0].data) > _SIZE):
                self._send(store, batch)
                batch, size = [], 0
            batch.append(asked)
            size += len(asked[0].data)
        self._gathered = []
        if batch:
            self._send(store, batch)

    def _send(self, store: _Store, batch: list[_Asked]) -> None:
        sending = asyncio.get_running_loop().create_task(_send(store, batch))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)


async def _send(store: _Store, batch: list[_Asked]) -> None:
    try:
        answers = await store([job for job, _ in batch])
    except QueueFull as full:
        if len(batch) == 1:  # all or none: some of many may still fit
            _refuse(batch, full)
            return
        for asked in batch:
            await _send(store, [asked])
    except AddUncertain as error:
        for asked, job_id in zip(batch, error.job_ids, strict=True):
            _refuse([asked], AddUncertain(str(error), job_ids=[job_id]))
    except asyncio.CancelledError:
        for _, answer in batch:
            answer.cancel()
        raise
    except Exception as error:
        _refuse(batch, error)
    else:
        for (_, answer), added in zip(batch, answers, strict=True):
            if not answer.done():
                answer.set_result(added)


def _refuse(batch: list[_Asked], error: Exception) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(error)
