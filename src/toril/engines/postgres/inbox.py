"""Takes the jobs that other programs have added in transactions of their own."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from toril.codec.new_jobs import after_waiting, load_new_job
from toril.engines.postgres.dialect import array, in_schema
from toril.engines.postgres.pipeline import Ask
from toril.engines.sql.add import add
from toril.engines.sql.statements import statements
from toril.engines.sql.transaction import Transaction, Write
from toril.errors import EngineUnavailable, QueueFull, TorilError
from toril.runtime.clock import Clock
from toril.runtime.logs import log

__all__ = ["Inbox", "ask_filled"]

_SQL: Final = statements("inbox", __package__)
_BATCH: Final = 100  # jobs taken in one step
_SOON: Final = 0.025  # seconds between two looks, while the inbox is in use
_SELDOM: Final = 0.5  # and when nothing has come for a while
_IN_USE: Final = 600.0  # seconds since the last job came
_REST: Final = 1.0  # seconds before a job is offered again that the queue had no room for


class Inbox:
    """When to look into the inbox, and what to do with what is there."""

    def __init__(self, write: Write, clock: Clock) -> None:
        self._write = write
        self._clock = clock
        self._used: float | None = None  # when a job came last
        self._looked: dict[str, float] = {}
        self._resting: dict[str, float] = {}  # queues that had no room, and until when they are left alone

    @property
    def every(self) -> float:
        """Seconds between two looks."""
        in_use = self._used is not None and self._clock.monotonic() - self._used < _IN_USE
        return _SOON if in_use else _SELDOM

    def is_due(self, queue: str) -> bool:
        """Whether it is time to look for jobs of this queue; if so, the time counts from now."""
        now = self._clock.monotonic()
        if now - self._looked.get(queue, float("-inf")) < self.every:
            return False
        self._looked[queue] = now
        return True

    async def take(self, filled: Sequence[str]) -> None:
        """Add what is there for these queues."""
        for queue in filled:
            self._used = self._clock.monotonic()
            if self._used < self._resting.get(queue, 0.0):
                continue
            while await self._take_some(queue):
                pass

    async def _take_some(self, queue: str) -> bool:
        """Take a batch, or if one of it is refused, only the first. Returns whether there may be more to take."""
        try:
            return await self._write(partial(_taken, queue=queue, limit=_BATCH), None, grows=True) == _BATCH
        except QueueFull:
            return await self._take_first(queue)
        except EngineUnavailable:
            raise
        except TorilError:
            return await self._take_first(queue)

    async def _take_first(self, queue: str) -> bool:
        try:
            return await self._write(partial(_taken, queue=queue, limit=1), None, grows=True) == 1
        except QueueFull:
            self._resting[queue] = self._clock.monotonic() + _REST
            return False
        except EngineUnavailable:
            raise
        except TorilError as error:
            refused = await self._write(partial(_refused, queue=queue, why=str(error)), None)
            log.error("a job in the inbox of queue %s can never be added: %s: %s", queue, refused, error)
            return True


def ask_filled(schema: str, queues: Sequence[str]) -> Ask:
    """Which of these queues have jobs in the inbox."""
    data, form = array("text", queues)
    return in_schema(_SQL["filled"], schema).encode(), (data,), (form,)


def _taken(tx: Transaction, queue: str, limit: int) -> int:
    """Add the first jobs of the inbox. They leave it in the same transaction. Returns how many."""
    rows = tx.all(_SQL["take"], (queue, limit))
    if rows:
        add(tx, queue, [after_waiting(load_new_job(request), tx.now - at) for request, at in rows], None)
    return len(rows)


def _refused(tx: Transaction, queue: str, why: str) -> str | None:
    """Set the first job of the inbox aside. Returns its id."""
    found = tx.one(_SQL["first"], (queue,))
    if found is None:
        return None
    tx.run(_SQL["refuse"], (found[0], why))
    return str(found[1])
