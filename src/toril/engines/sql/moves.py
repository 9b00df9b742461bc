"""Moving to another store and from one, as steps for the runner."""

from abc import abstractmethod
from functools import partial
from typing import TypeVar

from toril.engines.sql import packing
from toril.engines.sql.transaction import Op
from toril.engines.sql.unloading import unload
from toril.model import LOAD, Arrival, Load, Part, known, whole
from toril.model.names import check_queue_name
from toril.runtime.clock import SYSTEM

__all__ = ["SqliteMoves"]

T = TypeVar("T")
_OF_THE_STORE = {Part.LETTERS, Part.FACTS}


class SqliteMoves:
    """The moves of the seam."""

    @abstractmethod
    async def _write(self, op: Op[T], now: int | None, *, grows: bool = False) -> T: ...

    @abstractmethod
    async def _read(self, op: Op[T], now: int | None = None) -> T: ...

    async def identity(self) -> str:
        return await self._write(partial(packing.identity, fresh=SYSTEM.unique()), None)

    async def departure(self, queue: str) -> str | None:
        return await self._read(partial(packing.departure, queue=check_queue_name(queue)))

    async def pack(
        self, part: Part, queue: str, *, to: str, mark: str, limit: int = LOAD, now: int | None = None
    ) -> Load | None:
        part, limit = known(Part, part), whole("limit", limit, 1, 10_000)
        queue = "" if part in _OF_THE_STORE else check_queue_name(queue)
        return await self._write(partial(packing.pack, part=part, queue=queue, to=to, mark=mark, limit=limit), now)

    async def unload(self, load: Load, *, sender: str, now: int | None = None) -> Arrival:
        return await self._write(partial(unload, load=load, sender=sender), now, grows=True)

    async def forget(self, load: Load, *, now: int | None = None) -> bool:
        return await self._write(partial(packing.forget, load=load), now)
