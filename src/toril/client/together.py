"""Jobs that are added one by one in the same tick of the loop go to the store in one call."""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from toril.errors import AddUncertain, QueueFull
from toril.model import Added, NewJob

__all__ = ["Together"]

_MOST: Final = 100  # jobs of one call, so that the store is busy with it for a millisecond and not longer
_SIZE: Final = 1024 * 1024  # characters of their payloads

_Store = Callable[[Sequence[NewJob]], Awaitable[list[Added]]]
_Asked = tuple[NewJob, "asyncio.Future[Added]"]


@dataclass(frozen=True, slots=True, eq=False)
class _Tick:
    """One in which a job was sent, and those that were asked for after it."""

    loop: asyncio.AbstractEventLoop
    gathered: list[_Asked] = field(default_factory=list)


class Together:
    """The first job of a tick goes to the store at once, and so a lone one waits for nobody. Those after it follow
    together when the tick is over."""

    def __init__(self) -> None:
        self._tick: _Tick | None = None  # the one under way; of one loop of many, if several threads add
        self._sending: set[asyncio.Task[None]] = set()

    async def add(self, store: _Store, job: NewJob, *, alone: bool = False) -> Added:
        """Store a job, perhaps with others; not if it is followed by a trace of its own, and so goes `alone`."""
        loop, tick = asyncio.get_running_loop(), self._tick
        if alone or tick is None or tick.loop is not loop:
            if not alone:
                tick = self._tick = _Tick(loop)
                loop.call_soon(self._is_over, tick, store)
            (added,) = await store([job])
            return added
        answer: asyncio.Future[Added] = loop.create_future()
        tick.gathered.append((job, answer))
        return await answer

    def _is_over(self, tick: _Tick, store: _Store) -> None:
        if self._tick is tick:
            self._tick = None
        batch, size = list[_Asked](), 0
        for job, answer in tick.gathered:
            if answer.done():  # whoever asked has given up, and nothing of it was sent
                continue
            own = len(job.data) + len(job.metadata or "")
            if batch and (len(batch) == _MOST or size + own > _SIZE):
                self._send(store, batch)
                batch, size = [], 0
            batch.append((job, answer))
            size += own
        if batch:
            self._send(store, batch)

    def _send(self, store: _Store, batch: list[_Asked]) -> None:
        sending = asyncio.get_running_loop().create_task(_send(store, batch))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)


async def _send(store: _Store, batch: list[_Asked]) -> None:
    try:
        await _answer(store, batch)
    finally:
        for _, answer in batch:
            answer.cancel()  # unless there is one: nobody is to wait for what was cancelled


async def _answer(store: _Store, batch: list[_Asked]) -> None:
    try:
        answers = await store([job for job, _ in batch])
    except QueueFull as full:
        if len(batch) == 1:
            _refuse(batch, full)
            return
    except AddUncertain as error:
        for asked, job_id in zip(batch, error.job_ids, strict=True):
            _refuse([asked], AddUncertain(str(error), job_ids=[job_id]))
        return
    except Exception as error:
        _refuse(batch, error)
        return
    else:
        for (_, answer), added in zip(batch, answers, strict=True):
            if not answer.done():
                answer.set_result(added)
        return
    for asked in batch:  # all or none did not fit: some of them may
        if not asked[1].done():
            await _answer(store, [asked])


def _refuse(batch: list[_Asked], error: Exception) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(_of_its_own(error))


def _of_its_own(error: Exception) -> Exception:
    """The same for one of several who raise it: each adds to its traceback."""
    try:
        own = copy.copy(error)
    except Exception:  # one that cannot be made from its arguments
        return error
    own.__cause__, own.__suppress_context__ = error.__cause__, error.__suppress_context__
    return own.with_traceback(error.__traceback__)
