"""The Redis scripts and the SQLite engine have short ways for what is usual. Whatever is done, they leave what the
long ones leave.

TORIL_SHORT_SEEDS says how many histories are lived both ways."""

import hashlib
import os
import random
from typing import Any

import pytest

from tests.conformance.dumps import dump
from tests.conformance.jobs import new_job
from tests.servers import running
from toril.engines.redis import RedisEngine, connect
from toril.engines.redis import runner as store
from toril.engines.redis.scripts import Script, script
from toril.engines.sqlite import SqliteEngine
from toril.engines.sqlite.url import parse
from toril.errors import TorilError
from toril.model import (
    KEEP_ALL,
    Call,
    Claim,
    Claimed,
    Completed,
    Dedup,
    Failed,
    Failure,
    Keep,
    NewJob,
    Outcome,
    Pause,
    RateLimit,
    Released,
    Resume,
    Retried,
    SetConcurrency,
    SetMaxWaiting,
    SetRateLimit,
    Setting,
    Settlement,
)

SEEDS = int(os.environ.get("TORIL_SHORT_SEEDS", "6"))
START = 1_800_000_000_000
_SHORT = {"exchange": "= fast_path.run(want, count)", "add": "= plain and new_jobs.add_plain(count)"}


def long_way(name: str, *letters: str, **options: bool) -> Script:
    """The script without its short way."""
    known = script(name, *letters, **options)
    if name not in _SHORT:
        return known
    assert _SHORT[name] in known.source
    source = known.source.replace(_SHORT[name], "= nil")
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest())  # noqa: S324


def some_job(chance: random.Random) -> NewJob:
    odd: list[dict[str, Any]] = [
        {"id": f"own-{chance.random()}"}, {"priority": 3}, {"delay": 40}, {"expires": 60}, {"keep_completed": KEEP_ALL},
        {"keep_completed": Keep(2)}, {"result_ttl": 500}, {"dedup": Dedup("k")}, {"subject": "s"}, {"lifo": True},
        {"group": "g"},
    ]  # fmt: skip
    plain: list[dict[str, Any]] = [{}] * 12
    return new_job(data='{"x": 1}', attempts=2, **chance.choice(plain + odd))


def some_outcome(chance: random.Random) -> Outcome:
    odd: list[Outcome] = [
        Failed(Failure("broken", "E")),
        Retried(Failure("broken", "E"), 30),
        Released(),
        Completed('"é' * 900 + '"'),
    ]
    usual: list[Outcome] = [Completed('{"y": 2}', summary="well"), *[Completed()] * 14]
    return chance.choice(usual + odd)


def some_setting(chance: random.Random) -> Setting:
    limit = chance.choice([None, RateLimit(2, 50)])
    settings: list[Setting] = [
        Pause(), Resume(), Resume(), SetConcurrency(chance.choice([None, 3])), SetRateLimit(limit),
        SetMaxWaiting(chance.choice([None, 4])),
    ]  # fmt: skip
    return chance.choice(settings)


def some_meddling(chance: random.Random, waiting: list[str], held: list[str]) -> list[tuple[Any, ...]]:
    """What other programs do, well or badly, as commands on keys of the queue."""
    ways: list[list[tuple[Any, ...]]] = [
        [("ZREM", "marker", "0")],
        [("HSET", "meta", "opts.maxLenEvents", chance.choice(["many", "-1", "1.5", "100000"]))],
        [("RPUSH", "wait", "nobody")],
        [("DEL", "limiter")],
    ]
    if waiting:
        ways += [
            [("RPUSH", "wait", waiting[-1])],
            [("HSET", waiting[-1], "opts", chance.choice(["{", "[]", '{"removeOnComplete":3}']))],
            [("HSET", waiting[-1], "defa", "from afar")],
            [("ZADD", "suspects", 1, waiting[-1])],
            [("DEL", waiting[-1])],
        ]
    if held:
        ways += [
            [("RPUSH", "wait", held[0])],
            [("SADD", "stalled", held[0])],
            [("SET", f"{held[0]}:lock", "of another")],
            [("HDEL", held[0], "name")],
            [("LREM", "active", 0, held[0])],
            [("DEL", held[0])],
        ]
    return chance.choice(ways)


class History:
    """The same random deeds for each engine that it is told to: the seed decides, and the answers are alike."""

    def __init__(self, engine: RedisEngine | SqliteEngine, seed: int) -> None:
        self.engine = engine
        self.answers: list[object] = []
        self._chance = random.Random(seed)
        self._held: list[Claimed] = []
        self._now = START
        self._seq = 0
        self._groups = seed % 4 == 0
        self._troubled = seed % 2 == 1

    async def go_on(self, steps: int) -> None:
        for turn in range(1, steps + 1):
            self._now += self._chance.choice([0, 1, 20, 70_000 if self._chance.random() < 0.1 else 5])
            if self._chance.random() < 0.4:
                await self._add()
            if self._troubled and self._chance.random() < 0.2:
                await self._trouble()
            await self._exchange(turn)

    async def _add(self) -> None:
        jobs = [some_job(self._chance) for _ in range(self._chance.randint(1, 6))]
        jobs = [NewJob(name="n") for _ in jobs] if self._chance.random() < 0.5 else jobs
        jobs = [job for job in jobs if self._groups or job.group is None]
        try:
            self.answers.append(await self.engine.add("q", jobs, call=self._call(), now=self._now))
        except TorilError as error:
            self.answers.append(repr(error))

    def _call(self) -> Call | None:
        """A new call, or the last one again."""
        self._seq += self._chance.choice([0, 1, 1, 1, 1, 1])
        return self._chance.choice([None, Call("producer", self._seq)])

    async def _trouble(self) -> None:
        chance = self._chance
        if isinstance(self.engine, SqliteEngine) or chance.random() < 0.3:
            await self.engine.configure("q", [some_setting(chance)], now=self._now)
            return
        waiting = await self.engine._runner.client.ask("LRANGE", "bull:q:wait", 0, -1)
        for verb, key, *rest in some_meddling(chance, waiting, [job.lease.id for job in self._held]):
            await self.engine._runner.client.ask(verb, f"bull:q:{key}", *rest)

    async def _exchange(self, turn: int) -> None:
        chance = self._chance
        leaving = [job for job in self._held if chance.random() < 0.7]
        self._held = [job for job in self._held if job not in leaving]
        batch = [Settlement(job.lease, some_outcome(chance)) for job in leaving]
        if batch and chance.random() < 0.05:
            batch.append(batch[0])
        lease = chance.choice([1_000_000, 1_000_000, 30]) if self._troubled else 1_000_000
        want = Claim(want=chance.choice([0, 1, 1, 5]), token=f"t{turn}", lease=lease, worker="w")
        call = Call("w", turn)
        try:
            answer = await self.engine.exchange("q", batch, want, call=call, now=self._now)
        except TorilError as error:
            self.answers.append(repr(error))
            return
        if chance.random() < 0.2:
            assert (await self.engine.exchange("q", batch, want, call=call, now=self._now)).jobs == answer.jobs
        self._held += answer.jobs
        self.answers.append(answer)


async def lived(seed: int, monkeypatch: pytest.MonkeyPatch, way: Any) -> tuple[list[object], Any]:
    server = running()
    server.tell("FLUSHALL")
    monkeypatch.setattr(store, "script", way)
    engine = connect(server.url)
    await engine.open()
    history = History(engine, seed)
    await history.go_on(60)
    found = await dump(engine)
    events = (await engine.events("q", limit=1000)).items
    await engine.close()
    found.pop("bull:q:events")
    return history.answers, (found, [(event.kind, event.job_id, event.detail) for event in events])


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_short_ways_leave_what_the_long_ones_leave(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    short = await lived(seed, monkeypatch, script)
    long = await lived(seed, monkeypatch, long_way)

    assert short[0] == long[0]
    assert short[1] == long[1]


async def lived_in_sqlite(seed: int, *, general: bool) -> tuple[list[object], Any]:
    engine = SqliteEngine(parse("memory://"), general=general)
    await engine.open()
    history = History(engine, seed)
    await history.go_on(60)
    found = await dump(engine)
    await engine.obliterate("q", running="remove", limit=10_000)
    await engine.close()
    return history.answers, found


@pytest.mark.parametrize("seed", range(4 * SEEDS))
async def test_the_steps_for_usual_jobs_leave_what_the_general_ones_leave(seed: int) -> None:
    usual = await lived_in_sqlite(seed, general=False)
    general = await lived_in_sqlite(seed, general=True)

    assert usual[0] == general[0]
    # How the answer to a call is kept may differ, as long as it is the same answer.
    assert usual[1].keys() == general[1].keys()
    assert {name: rows for name, rows in usual[1].items() if name != "calls"} == {
        name: rows for name, rows in general[1].items() if name != "calls"
    }


async def odd(monkeypatch: pytest.MonkeyPatch, way: Any, *meddling: tuple[Any, ...]) -> list[object]:
    """What is answered where one job runs and one waits, and another program has done this to the queue's keys."""
    server = running()
    server.tell("FLUSHALL")
    monkeypatch.setattr(store, "script", way)
    engine = connect(server.url)
    await engine.open()
    await engine.add("q", [NewJob(name="a"), NewJob(name="b")], now=START)
    first = await engine.exchange("q", [], Claim(want=1, token="t", lease=1000, worker="w"), now=START)
    for verb, key, *rest in meddling:
        await engine._runner.client.ask(verb, f"bull:q:{key}", *rest)
    added = await engine.add("q", [NewJob(name="c")], now=START)
    settled = [Settlement(job.lease, Completed()) for job in first.jobs]
    second = await engine.exchange("q", settled, Claim(want=2, token="u", lease=1000, worker="w"), now=START + 1)
    found = await dump(engine)
    found.pop("bull:q:events")
    await engine.close()
    return [added, second, found]


@pytest.mark.parametrize(
    "meddling",
    [
        pytest.param(("RPUSH", "wait", "1"), id="what ends stands in the line"),
        pytest.param(("RPUSH", "wait", "2"), id="one stands in the line twice"),
        pytest.param(("HSET", "meta", "opts.maxLenEvents", "many"), id="a bound of events that is no number"),
        pytest.param(("HSET", "meta", "opts.maxLenEvents", "-1"), id="a bound of events below zero"),
    ],
)
async def test_what_others_leave_is_met_both_ways_alike(
    meddling: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await odd(monkeypatch, script, meddling) == await odd(monkeypatch, long_way, meddling)
