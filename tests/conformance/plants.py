"""Faults, planted by hand into a store of either kind, as accidents and other programs leave them."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.conformance.jobs import LEASE, claim_one, settle
from toril.engines.postgres import PostgresEngine
from toril.engines.redis import RedisEngine
from toril.engines.sql.engine import SqlEngine
from toril.engines.sqlite import SqliteEngine
from toril.model import (
    Dedup,
    FaultKind,
    FlowNode,
    Heartbeat,
    JobOptions,
    JobRef,
    Keep,
    NewJob,
    Rest,
    Rested,
    Schedule,
    StepKind,
)
from toril.store.engine import Store
from toril.testing import ManualClock

__all__ = ["PLANTS", "flow", "nowhere", "plant", "run", "tell", "vanished"]

Q = "bull:q:"
Plant = Callable[[Any, ManualClock], Awaitable[None]]
PLANTS: dict[tuple[type, FaultKind, str], Plant] = {}


def plants(engine: type, kind: FaultKind, how: str = "") -> Callable[[Plant], Plant]:
    def note(fn: Plant) -> Plant:
        PLANTS[engine, kind, how] = fn
        return fn

    return note


async def plant(engine: Store, clock: ManualClock, kind: FaultKind, how: str = "") -> None:
    """Have this fault in queue `q`, beside jobs that are well."""
    await engine.add("q", [NewJob(name="well"), NewJob(name="later", delay=60_000)])
    await PLANTS[type(engine), kind, how](engine, clock)


async def tell(engine: RedisEngine, *command: object) -> Any:
    prefix = f"{engine._runner.address.prefix}:"  # keys are written here with the usual one
    own = (prefix + word[5:] if isinstance(word, str) and word.startswith("bull:") else word for word in command)
    return await engine._runner.client.ask(*own)


async def run(engine: SqlEngine, sql: str, *values: object) -> Any:
    return await engine._write(lambda tx: tx.run(sql, values), None)


for place, verb in (
    ("wait", ("LPUSH",)), ("active", ("LPUSH",)), ("paused", ("LPUSH",)), ("prioritized", ("ZADD", 1)),
    ("delayed", ("ZADD", 2**52)), ("waiting-children", ("ZADD", 1)), ("completed", ("ZADD", 1)),
    ("failed", ("ZADD", 1)),
):  # fmt: skip

    async def ghost(engine: RedisEngine, _: ManualClock, place: str = place, verb: tuple[Any, ...] = verb) -> None:
        await tell(engine, verb[0], Q + place, *verb[1:], "ghost")

    PLANTS[RedisEngine, FaultKind.GHOST, place] = ghost


@plants(RedisEngine, FaultKind.ORPHAN)
async def _(engine: RedisEngine, _: ManualClock) -> None:
    await engine.add("q", [NewJob(name="lost", id="lost")])
    await tell(engine, "LREM", Q + "wait", 0, "lost")


@plants(RedisEngine, FaultKind.ORPHAN, "prioritized")
async def _(engine: RedisEngine, _: ManualClock) -> None:
    await engine.add("q", [NewJob(name="lost", id="lost", priority=4)])
    await tell(engine, "ZREM", Q + "prioritized", "lost")


@plants(RedisEngine, FaultKind.ORPHAN, "ended")
async def _(engine: RedisEngine, clock: ManualClock) -> None:
    await tell(
        engine, "HSET", Q + "lost", "name", "n", "timestamp", 1, "data", "{}", "opts", "{}", "finishedOn", clock.now()
    )


for places in ("wait wait", "wait delayed", "active completed", "prioritized failed", "active wait"):

    async def double(engine: RedisEngine, _: ManualClock, places: str = places) -> None:
        await engine.add("q", [NewJob(name="twin", id="twin")])
        await tell(engine, "LREM", Q + "wait", 0, "twin")
        for place in places.split():
            words = ("LPUSH", Q + place) if place in {"wait", "active"} else ("ZADD", Q + place, 2**52)
            await tell(engine, *words, "twin")

    PLANTS[RedisEngine, FaultKind.DOUBLE, places] = double


@plants(RedisEngine, FaultKind.LOST)
async def _(engine: RedisEngine, clock: ManualClock) -> None:
    job = await claim_one(engine)
    await tell(engine, "DEL", Q + job.lease.id + ":lock")
    clock.advance(LEASE + 10_000)


@plants(RedisEngine, FaultKind.LOCK, "gone")
async def _(engine: RedisEngine, _: ManualClock) -> None:
    await tell(engine, "SET", Q + "gone:lock", "token")


@plants(RedisEngine, FaultKind.LOCK, "waiting")
async def _(engine: RedisEngine, _: ManualClock) -> None:
    await tell(engine, "SET", Q + "1:lock", "token", "PX", 30_000)


@plants(RedisEngine, FaultKind.MARKER)
async def _(engine: RedisEngine, _: ManualClock) -> None:
    await tell(engine, "DEL", Q + "marker")


@plants(RedisEngine, FaultKind.PARENT, "no children")
async def _(engine: RedisEngine, _: ManualClock) -> None:
    await engine.add("q", [NewJob(name="parent", id="parent")])
    await tell(engine, "LREM", Q + "wait", 0, "parent")
    await tell(engine, "ZADD", Q + "waiting-children", 1, "parent")


@plants(RedisEngine, FaultKind.PARENT, "children gone")
async def _(engine: RedisEngine, clock: ManualClock) -> None:
    await PLANTS[RedisEngine, FaultKind.PARENT, "no children"](engine, clock)
    await tell(engine, "SADD", Q + "parent:dependencies", Q + "child-1", Q + "child-2")


@plants(RedisEngine, FaultKind.PARENT, "a flow")
async def _(engine: RedisEngine, _: ManualClock) -> None:
    await flow(engine)
    await tell(engine, "LREM", "bull:other:wait", 0, "child")
    await tell(engine, "DEL", "bull:other:child")


@plants(RedisEngine, FaultKind.DEDUP, "gone")
async def _(engine: RedisEngine, _: ManualClock) -> None:
    await tell(engine, "SET", Q + "de:key", "gone")


@plants(RedisEngine, FaultKind.DEDUP, "ended")
async def _(engine: RedisEngine, clock: ManualClock) -> None:
    await engine.add("q", [NewJob(name="ended", id="ended")])
    await tell(engine, "LREM", Q + "wait", 0, "ended")
    await tell(engine, "ZADD", Q + "completed", clock.now(), "ended")
    await tell(engine, "SET", Q + "de:key", "ended")


@plants(RedisEngine, FaultKind.SUSPECT)
async def _(engine: RedisEngine, _: ManualClock) -> None:
    await tell(engine, "ZADD", Q + "toril:suspects", 1, "gone")


async def line(engine: SqliteEngine, place: int, key: int) -> None:
    await run(engine, "INSERT INTO line VALUES ((SELECT key FROM queues WHERE name = 'q'), ?, 77, ?, 77)", place, key)


async def key_of(engine: SqliteEngine, name: str) -> int:
    key: int = await engine._read_now(lambda tx: tx.one("SELECT key FROM jobs WHERE name = ?", (name,))[0])
    return key


@plants(SqliteEngine, FaultKind.GHOST, "line")
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    await line(engine, 0, (1 << 40) + 99)


@plants(SqliteEngine, FaultKind.GHOST, "active")
async def _(engine: SqliteEngine, clock: ManualClock) -> None:
    job = await claim_one(engine)
    await run(engine, "DELETE FROM jobs WHERE name = ?", job.name)


@plants(SqliteEngine, FaultKind.ORPHAN)
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    await engine.add("q", [NewJob(name="lost", id="lost")])
    await run(engine, "DELETE FROM line WHERE key = ?", await key_of(engine, "lost"))


@plants(SqliteEngine, FaultKind.ORPHAN, "nowhere")
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    await engine.add("q", [NewJob(name="lost", id="lost")])
    await run(engine, "DELETE FROM line WHERE key = ?", await key_of(engine, "lost"))
    await run(engine, "UPDATE jobs SET place = 99 WHERE name = 'lost'")


@plants(SqliteEngine, FaultKind.DOUBLE, "line")
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    await engine.add("q", [NewJob(name="twin", id="twin")])
    await line(engine, 6, await key_of(engine, "twin"))


@plants(SqliteEngine, FaultKind.DOUBLE, "active")
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    job = await claim_one(engine)
    await line(engine, 0, await key_of(engine, job.name))


@plants(SqliteEngine, FaultKind.PARENT, "no children")
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    await flow(engine)
    await run(engine, "DELETE FROM children")


@plants(SqliteEngine, FaultKind.PARENT, "children gone")
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    await flow(engine)
    for table in ("line", "jobs"):
        await run(engine, f"DELETE FROM {table} WHERE key = (SELECT key FROM ids WHERE id = 'child')")
    await run(engine, "DELETE FROM ids WHERE id = 'child'")
    await run(engine, "UPDATE queues SET waiting = 0 WHERE name = 'other'")


@plants(SqliteEngine, FaultKind.LOST)
async def _(engine: SqliteEngine, clock: ManualClock) -> None:
    await claim_one(engine)
    clock.advance(LEASE + 10_000)


@plants(SqliteEngine, FaultKind.DEDUP)
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    await engine.add("q", [NewJob(name="owner", dedup=Dedup("key"))])
    key = await key_of(engine, "owner")
    await run(engine, "DELETE FROM line WHERE key = ?", key)
    await run(engine, "DELETE FROM jobs WHERE key = ?", key)


@plants(SqliteEngine, FaultKind.ID)
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    await run(engine, "INSERT INTO ids VALUES ((SELECT key FROM queues WHERE name = 'q'), 'taken', 7)")


@plants(RedisEngine, FaultKind.REST, "gone")
async def _(engine: RedisEngine, _: ManualClock) -> None:
    await tell(engine, "ZADD", Q + "toril:resting", 99, "gone")


@plants(RedisEngine, FaultKind.REST, "promoted")
async def _(engine: RedisEngine, _: ManualClock) -> None:
    job = await claim_one(engine)
    rests = (Rest(key="s", kind=StepKind.SLEEP, delay=99_000),)
    await settle(engine, job.lease, Rested(rests=rests))
    await tell(engine, "ZREM", Q + "delayed", job.lease.id)
    await tell(engine, "LPUSH", Q + "wait", job.lease.id)


@plants(RedisEngine, FaultKind.WAIT)
async def _(engine: RedisEngine, _: ManualClock) -> None:
    await tell(engine, "HSET", Q + "toril:awaited", "paid\0invoice: 7", "7")


@plants(RedisEngine, FaultKind.PARENT, "resting, children gone")
async def _(engine: RedisEngine, _: ManualClock) -> None:
    parent = await claim_one(engine)
    child = FlowNode(queue="other", job=NewJob(name="child", id="child"), parent=JobRef("q", parent.lease.id))
    rests = (Rest(key="c", kind=StepKind.CALLED, text="[]"), Rest(key="s", kind=StepKind.SLEEP, delay=99_000))
    await settle(engine, parent.lease, Rested((child,), 1, rests))
    await tell(engine, "DEL", Q.replace(":q:", ":other:") + "child")


@plants(SqliteEngine, FaultKind.REST, "gone")
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    await run(engine, "INSERT INTO rests SELECT 7, key, 99, 0, '{}' FROM queues WHERE name = 'q'")


@plants(SqliteEngine, FaultKind.REST, "waiting")
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    await run(engine, "INSERT INTO rests SELECT key, key >> 40, 99, 1, '{}' FROM jobs WHERE name = 'well'")


@plants(SqliteEngine, FaultKind.WAIT)
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    await run(engine, "INSERT INTO awaited SELECT key, 'paid', 'invoice: 7', 7 FROM queues WHERE name = 'q'")


@plants(SqliteEngine, FaultKind.PARENT, "resting, children gone")
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    parent = await claim_one(engine)
    child = FlowNode(queue="other", job=NewJob(name="child", id="child"), parent=JobRef("q", parent.lease.id))
    rests = (Rest(key="c", kind=StepKind.CALLED, text="[]"), Rest(key="s", kind=StepKind.SLEEP, delay=99_000))
    await settle(engine, parent.lease, Rested((child,), 1, rests))
    await run(engine, "DELETE FROM children")


@plants(SqliteEngine, FaultKind.COUNT)
async def _(engine: SqliteEngine, _: ManualClock) -> None:
    await run(engine, "UPDATE queues SET waiting = waiting + 5, delayed = 0 WHERE name = 'q'")


@plants(PostgresEngine, FaultKind.ORPHAN)
async def _(engine: PostgresEngine, _: ManualClock) -> None:
    await engine.add("q", [NewJob(name="lost", id="lost")])
    await run(engine, "UPDATE toril.jobs SET rank = -(1::bigint << 60) WHERE name = 'lost'")


@plants(PostgresEngine, FaultKind.ORPHAN, "nowhere")
async def _(engine: PostgresEngine, _: ManualClock) -> None:
    await engine.add("q", [NewJob(name="lost", id="lost")])
    await run(engine, "UPDATE toril.jobs SET place = 99 WHERE name = 'lost'")


@plants(PostgresEngine, FaultKind.PARENT, "no children")
async def _(engine: PostgresEngine, _: ManualClock) -> None:
    await flow(engine)
    await run(engine, "DELETE FROM toril.children")


@plants(PostgresEngine, FaultKind.PARENT, "children gone")
async def _(engine: PostgresEngine, _: ManualClock) -> None:
    await flow(engine)
    await run(engine, "DELETE FROM toril.jobs WHERE id = 'child'")
    await run(engine, "DELETE FROM toril.ids WHERE id = 'child'")
    await run(
        engine,
        "UPDATE toril.standing SET waiting = 0 WHERE queue = (SELECT key FROM toril.queues WHERE name = 'other')",
    )


@plants(PostgresEngine, FaultKind.LOST)
async def _(engine: PostgresEngine, clock: ManualClock) -> None:
    await claim_one(engine)
    clock.advance(LEASE + 10_000)


@plants(PostgresEngine, FaultKind.DEDUP)
async def _(engine: PostgresEngine, _: ManualClock) -> None:
    await engine.add("q", [NewJob(name="owner", dedup=Dedup("key"))])
    await run(engine, "DELETE FROM toril.jobs WHERE name = 'owner'")


@plants(PostgresEngine, FaultKind.ID)
async def _(engine: PostgresEngine, _: ManualClock) -> None:
    await run(engine, "INSERT INTO toril.ids SELECT key, 'taken', 7 FROM toril.queues WHERE name = 'q'")


@plants(PostgresEngine, FaultKind.COUNT)
async def _(engine: PostgresEngine, _: ManualClock) -> None:
    await run(engine, "UPDATE toril.standing SET waiting = waiting + 5, delayed = 0")


async def flow(engine: Store) -> None:
    """A parent in queue `q`, and its child in another."""
    parent = FlowNode(queue="q", job=NewJob(name="parent", id="parent"), waits=True)
    child = FlowNode(queue="other", job=NewJob(name="child", id="child"), parent=parent.ref)
    await engine.flows.add([parent, child])


async def nowhere(engine: Store, parent: str) -> None:
    """A parent of this name and id, taken out of where it stands."""
    if isinstance(engine, RedisEngine):
        await tell(engine, "ZREM", Q + "waiting-children", parent)
    elif isinstance(engine, PostgresEngine):
        await run(engine, "UPDATE jobs SET place = 99 WHERE name = ?", parent)
    else:
        assert isinstance(engine, SqliteEngine)
        await run(engine, "DELETE FROM line WHERE key = ?", await key_of(engine, parent))
        await run(engine, "UPDATE jobs SET place = 99 WHERE name = ?", parent)


async def unlisted(engine: Store) -> None:
    """All that waits, taken out of the line."""
    if isinstance(engine, RedisEngine):
        await tell(engine, "DEL", Q + "wait")
    elif isinstance(engine, PostgresEngine):
        await run(engine, "UPDATE toril.jobs SET rank = rank - (1::bigint << 60) WHERE place = 0 AND rank > 0")
    else:
        assert isinstance(engine, SqliteEngine)
        await run(engine, "DELETE FROM line")


async def vanished(engine: Store, running: str) -> None:
    """A running job, deleted by another program."""
    if isinstance(engine, RedisEngine):
        await tell(engine, "DEL", Q + running, Q + running + ":lock")
    else:
        assert isinstance(engine, SqlEngine)
        await run(engine, "DELETE FROM jobs WHERE key IN (SELECT key FROM active)")


async def idle(engine: Store, clock: ManualClock, ahead: int) -> None:
    """A schedule whose run was deleted by hand, `ahead` ms before its time."""
    slot = clock.now() + 60_000
    schedule = Schedule(id="tick", job=NewJob(name="n", options=JobOptions(keep_completed=Keep())), every=60_000)
    await engine.schedules.put("q", schedule, slot, expects=None)
    await engine.remove("q", [f"repeat:tick:{slot}"])
    clock.advance(60_000 - ahead)


async def dead(engine: Store, clock: ManualClock) -> None:
    beat = Heartbeat(
        worker="w-dead", queues=["q"], slots=1, running=0, host="h", pid=1, version="0", started_at=clock.now()
    )
    await engine.heartbeat(beat, ttl=1000)
    clock.advance(600_000)


for kind in (RedisEngine, SqliteEngine, PostgresEngine):
    PLANTS[kind, FaultKind.WORKER, ""] = dead
    PLANTS[kind, FaultKind.SCHEDULE, "to come"] = lambda engine, clock: idle(engine, clock, 30_000)
    PLANTS[kind, FaultKind.SCHEDULE, "missed"] = lambda engine, clock: idle(engine, clock, -5_000)
