"""What is in a store, row for row, so that a test can say: nothing was changed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toril.engines.postgres import PostgresEngine
from toril.engines.redis import RedisEngine
from toril.engines.sql.transaction import Transaction
from toril.engines.sqlite import SqliteEngine
from toril.store.engine import Store

__all__ = ["dump", "keys_of", "unchanged"]

Dump = dict[str, list[str]]


async def dump(engine: Store) -> Dump:
    """All that the store holds: for each table, or key, its rows in a fixed order."""
    match engine:
        case SqliteEngine():
            return await engine._read_now(_tables)
        case PostgresEngine():
            return await engine._read_now(_relations)
        case RedisEngine():
            return await _keys(engine)
        case _:
            raise AssertionError(f"nobody has said how to read all of {engine!r}")


@asynccontextmanager
async def unchanged(engine: Store) -> AsyncIterator[None]:
    """Whatever happens within leaves the store as it was, and well."""
    before = await dump(engine)
    yield
    assert await dump(engine) == before
    assert (await engine.health()).ok


def _tables(tx: Transaction) -> Dump:
    names = [name for (name,) in tx.all("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {name: sorted(repr(row) for row in tx.all(f"SELECT * FROM {name}")) for name in names}


def _relations(tx: Transaction) -> Dump:
    names = [name for (name,) in tx.all("SELECT tablename FROM pg_tables WHERE schemaname = 'toril'")]
    return {name: sorted(repr(row) for row in tx.all(f"SELECT * FROM toril.{name}")) for name in names}


_READ = {
    "string": ("GET",), "list": ("LRANGE", 0, -1), "set": ("SMEMBERS",), "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "hash": ("HGETALL",), "stream": ("XRANGE", "-", "+"),
}  # fmt: skip


async def _keys(engine: RedisEngine) -> Dump:
    """Every key, and the hashes of jobs together as `jobs`."""
    found: Dump = {"jobs": []}
    for key in await keys_of(engine, "*"):
        verb, *rest = _READ[await engine._runner.client.ask("TYPE", key)]
        content = await engine._runner.client.ask(verb, key, *rest)
        if verb in {"SMEMBERS", "HGETALL"}:  # these have no order, and may be read in another one each time
            step = 1 if verb == "SMEMBERS" else 2
            content = sorted(tuple(content[at : at + step]) for at in range(0, len(content), step))
        if verb == "HGETALL" and any(pair[0] == "timestamp" for pair in content):
            found["jobs"].append(f"{key}: {content}")
        else:
            found[key] = [repr(content)]
    return found


async def keys_of(engine: RedisEngine, pattern: str) -> list[str]:
    """The keys like this, sorted; asked for in the way that is open to a user with few rights."""
    found, cursor = set[str](), "0"
    while True:
        cursor, some = await engine._runner.client.ask("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        found.update(some)
        if cursor == "0":
            return sorted(found)
