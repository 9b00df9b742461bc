"""`PostgresEngine`: a store in a schema of a PostgreSQL database."""

from functools import partial

from toril.engines.postgres.database import PostgresDatabase
from toril.engines.postgres.facts import server_facts
from toril.engines.postgres.url import PostgresAddress, parse
from toril.engines.postgres.usage import usage
from toril.engines.sql.engine import SqlEngine
from toril.model import Usage
from toril.runtime.clock import SYSTEM, Clock
from toril.store.checked import implements
from toril.store.engine import Inspector

__all__ = ["PostgresEngine"]


@implements(Inspector)
class PostgresEngine(SqlEngine):
    """A store in PostgreSQL, shared by any number of processes and machines."""

    def __init__(self, address: PostgresAddress, *, clock: Clock = SYSTEM) -> None:
        self._address = address
        super().__init__(partial(PostgresDatabase, address, clock), partial(server_facts, address=address), clock=clock)

    @classmethod
    def from_url(cls, url: str, *, clock: Clock = SYSTEM) -> "PostgresEngine":
        return cls(parse(url), clock=clock)

    def __repr__(self) -> str:
        return f"<Toril store in {self._address.name}>"

    def twin(self) -> "PostgresEngine":
        return self  # its thread serves every event loop

    async def usage(self, queue: str) -> Usage:
        return await self._steps.read(partial(usage, name=queue))
