"""`SqliteEngine`: a store in a file or in memory."""

from functools import partial

from toril.engines.sql.engine import SqlEngine
from toril.engines.sqlite.database import SqliteDatabase
from toril.engines.sqlite.facts import file_facts
from toril.engines.sqlite.url import FileAddress, parse
from toril.engines.sqlite.usage import usage
from toril.model import Usage
from toril.runtime.clock import SYSTEM, Clock
from toril.store.checked import implements
from toril.store.engine import Inspector

__all__ = ["SqliteEngine"]


@implements(Inspector)
class SqliteEngine(SqlEngine):
    """A store in a file, shared by any number of processes on one machine, or in the memory of this process."""

    def __init__(self, address: FileAddress, *, clock: Clock = SYSTEM, inline: bool = False) -> None:
        self._address = address
        super().__init__(
            partial(SqliteDatabase, address, clock), partial(file_facts, address=address), clock=clock, inline=inline
        )

    @classmethod
    def from_url(cls, url: str, *, clock: Clock = SYSTEM) -> "SqliteEngine":
        return cls(parse(url), clock=clock)

    def __repr__(self) -> str:
        if self._address.path is None:
            return "<Toril store in memory: its jobs are gone when this process ends>"
        return f"<Toril store in {self._address.path}>"

    def twin(self) -> "SqliteEngine":
        return self  # its thread serves every event loop

    async def usage(self, queue: str) -> Usage:
        return await self._steps.read(partial(usage, name=queue))
