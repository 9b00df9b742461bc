"""`SqliteEngine`: a store in a file or in memory."""

from collections.abc import Sequence
from functools import partial

from toril.engines.sql.engine import BRIEF, SqlEngine
from toril.engines.sqlite import hot_path
from toril.engines.sqlite.database import SqliteDatabase
from toril.engines.sqlite.facts import file_facts
from toril.engines.sqlite.url import FileAddress, parse
from toril.engines.sqlite.usage import usage
from toril.model import Added, Call, NewJob, Usage
from toril.runtime.clock import SYSTEM, Clock
from toril.store.checked import implements
from toril.store.engine import Engine, Inspector

__all__ = ["SqliteEngine"]


@implements(Engine)
@implements(Inspector)
class SqliteEngine(SqlEngine):
    """A store in a file, shared by any number of processes on one machine, or in the memory of this process.

    Usual jobs are added by steps of its own. Everything else is a step of the code that all SQL engines share. With
    `general`, all of it is.
    """

    inbox: str | None = None

    def __init__(
        self, address: FileAddress, *, clock: Clock = SYSTEM, inline: bool = False, general: bool = False
    ) -> None:
        self._address = address
        self._general = general
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

    async def add(
        self, queue: str, jobs: Sequence[NewJob], *, call: Call | None = None, now: int | None = None
    ) -> list[Added]:
        if self._general or not jobs:
            return await super().add(queue, jobs, call=call, now=now)
        step = partial(hot_path.add, queue=queue, jobs=jobs, call=call)
        return await self._write(step, now, grows=True, brief=len(jobs) <= BRIEF)
