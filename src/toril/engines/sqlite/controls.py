"""What people and programs do to jobs and queues, as steps for the runner."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Literal, TypeVar

from toril.engines.sql import control, replay, sweep
from toril.engines.sql.inspector import SqliteInspector
from toril.engines.sql.transaction import Op
from toril.errors import InvalidOption, shown
from toril.model import MAX_REASON_BYTES, Call, Changed, Setting, Settings, Swept, Update, storable
from toril.model.names import check_queue_name
from toril.model.states import State

__all__ = ["SqliteControls"]

T = TypeVar("T")


class SqliteControls(SqliteInspector):
    """The controls of the seam."""

    @abstractmethod
    async def _write(self, op: Op[T], now: int | None, *, grows: bool = False) -> T: ...

    async def retry(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        queue = check_queue_name(queue)
        return await self._write(partial(replay.retry, queue=queue, ids=ids, call=call), now)

    async def promote(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        queue = check_queue_name(queue)
        return await self._write(partial(control.promote, queue=queue, ids=ids, call=call), now)

    async def cancel(
        self, queue: str, ids: Sequence[str], *, reason: str, call: Call | None = None, now: int | None = None
    ) -> Changed:
        reason = storable(reason, MAX_REASON_BYTES)
        queue = check_queue_name(queue)
        return await self._write(partial(control.cancel, queue=queue, ids=ids, reason=reason, call=call), now)

    async def remove(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        queue = check_queue_name(queue)
        return await self._write(partial(control.remove, queue=queue, ids=ids, call=call), now)

    async def update(
        self, queue: str, updates: Sequence[Update], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        queue = check_queue_name(queue)
        return await self._write(partial(control.update, queue=queue, updates=updates, call=call), now)

    async def drain(
        self,
        queue: str,
        *,
        states: frozenset[State],
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        queue = check_queue_name(queue)
        return await self._write(partial(sweep.drain, queue=queue, states=states, limit=limit, call=call), now)

    async def clean(
        self,
        queue: str,
        *,
        state: State,
        grace: int,
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        queue = check_queue_name(queue)
        return await self._write(
            partial(sweep.clean, queue=queue, state=state, grace=grace, limit=limit, call=call), now
        )

    async def obliterate(
        self,
        queue: str,
        *,
        running: Literal["refuse", "remove"] = "refuse",
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        if running not in {"refuse", "remove"}:
            raise InvalidOption(f"running must be 'refuse' or 'remove', not {shown(running)}")
        queue = check_queue_name(queue)
        return await self._write(partial(sweep.obliterate, queue=queue, running=running, limit=limit, call=call), now)

    async def configure(
        self, queue: str, settings: Sequence[Setting], *, call: Call | None = None, now: int | None = None
    ) -> Settings:
        queue = check_queue_name(queue)
        return await self._write(partial(sweep.configure, queue=queue, settings=settings, call=call), now)
