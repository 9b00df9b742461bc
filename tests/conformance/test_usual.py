"""The Redis scripts have short ways for what is usual. Whatever is done, they leave what the long ones leave."""

import hashlib
import random
from typing import Any

import pytest

from tests.conformance.dumps import dump
from tests.servers import running
from toril.engines.redis import RedisEngine, connect, store
from toril.engines.redis.scripts import Script, script
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
    Released,
    Retried,
    Settlement,
)

START = 1_800_000_000_000
_SHORT = {"exchange": "= usually()", "add": "= plain and plainly()"}


def long_way(name: str) -> Script:
    """The script without its short way."""
    known = script(name)
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
    return NewJob(name="n", data='{"x": 1}', attempts=2, **chance.choice(plain + odd))


def some_outcome(chance: random.Random) -> Outcome:
    odd: list[Outcome] = [
        Failed(Failure("broken", "E")),
        Retried(Failure("broken", "E"), 30),
        Released(),
        Completed('"é' * 900 + '"'),
    ]
    usual: list[Outcome] = [Completed('{"y": 2}', summary="well"), *[Completed()] * 14]
    return chance.choice(usual + odd)


class History:
    """The same random deeds for each engine that it is told to: the seed decides, and the answers are alike."""

    def __init__(self, engine: RedisEngine, seed: int) -> None:
        self.engine = engine
        self.answers: list[object] = []
        self._chance = random.Random(seed)
        self._held: list[Claimed] = []
        self._now = START
        self._groups = seed % 4 == 0

    async def go_on(self, steps: int) -> None:
        for turn in range(1, steps + 1):
            self._now += self._chance.choice([0, 1, 20, 70_000 if self._chance.random() < 0.1 else 5])
            if self._chance.random() < 0.4:
                await self._add()
            await self._exchange(turn)

    async def _add(self) -> None:
        jobs = [some_job(self._chance) for _ in range(self._chance.randint(1, 6))]
        jobs = [NewJob(name="n") for _ in jobs] if self._chance.random() < 0.5 else jobs
        self.answers.append(
            await self.engine.add("q", [job for job in jobs if self._groups or job.group is None], now=self._now)
        )

    async def _exchange(self, turn: int) -> None:
        chance = self._chance
        leaving = [job for job in self._held if chance.random() < 0.7]
        self._held = [job for job in self._held if job not in leaving]
        batch = [Settlement(job.lease, some_outcome(chance)) for job in leaving]
        if batch and chance.random() < 0.05:
            batch.append(batch[0])
        want = Claim(want=chance.choice([0, 1, 1, 5]), token=f"t{turn}", lease=1_000_000, worker="w")
        call = Call("w", turn)
        answer = await self.engine.exchange("q", batch, want, call=call, now=self._now)
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


@pytest.mark.parametrize("seed", range(6))
async def test_the_short_ways_leave_what_the_long_ones_leave(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    short = await lived(seed, monkeypatch, script)
    long = await lived(seed, monkeypatch, long_way)

    assert short[0] == long[0]
    assert short[1] == long[1]
