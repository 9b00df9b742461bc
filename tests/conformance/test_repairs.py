"""Repairs: every fault that is planted is found, by reading alone, and mended; a store that is well has none."""

import base64
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.conformance.dumps import unchanged
from tests.conformance.jobs import add, claim, claim_one, ids, job, settle
from tests.conformance.plants import PLANTS, flow, idle, nowhere, plant, run, tell, unlisted, vanished
from tests.conftest import opened
from tests.kinds import REDIS
from toril.engines.redis import RedisEngine
from toril.engines.redis.faults import Walk
from toril.engines.sqlite import SqliteEngine
from toril.errors import InvalidOption
from toril.model import (
    AUTO_REPAIRED,
    Completed,
    Dedup,
    Failed,
    Failure,
    Fault,
    FaultKind,
    Finding,
    FlowNode,
    JobOptions,
    Keep,
    Limits,
    NewJob,
    Outcome,
    Page,
    Pause,
    RateLimit,
    RepairOutcome,
    Retried,
    Schedule,
    SetConcurrency,
)
from toril.model.states import State
from toril.operate.doctor import AutoRepair, Doctor
from toril.policy.doctor import finding_of
from toril.runtime.clock import SYSTEM
from toril.store.engine import Store
from toril.testing import ManualClock

CASES = [
    pytest.param(name, kind, how, id=f"{name}-{kind}{'-' * bool(how)}{how.replace(' ', '-')}")
    for (engine, kind, how) in PLANTS
    for name in (REDIS if engine is RedisEngine else ("sqlite",))
]


# Of a walk's cursor: what neither engine has ever given out.
ODD_SPOTS: list[Any] = [
    None, [], {}, "q", ["q"], ["q", "active"], ["q", "no", None], ["", "active", None], [1, "active", None],
    ["q", "active", -1], ["q", "active", 1.5], ["q", "active", [2**70]], ["q", "active", [True]], ["q", "active", {}],
    ["q", "active", "-1"], ["q", "active", "9" * 30], ["", "workers", ["x"]], ["", "layout", 7], ["q", "schedules", []],
    ["q", "active", str(2**53)], ["q", "active", "9" * 5000],
]  # fmt: skip


def _packed(spot: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(spot).encode()).decode().rstrip("=")


def _unpacked(cursor: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))


def doctor_of(engine: Store) -> Doctor:
    return Doctor(engine, SYSTEM, between=0.01)


async def layout(engine: Store) -> list[Finding]:
    """What is wrong with the layout."""
    return [finding_of(fault) for fault in await doctor_of(engine).faults(await engine.queues())]


async def in_parts(engine: Store) -> list[Finding]:
    """The same, by a walk that is broken off after each look, and goes on by its cursor."""
    names, cursor = await engine.queues(), None
    suspected: list[Fault] = []
    while True:
        async with aclosing(doctor_of(engine).looks(names, cursor=cursor)) as looks:
            look = await anext(looks)
        suspected += look.items
        cursor = look.cursor
        if cursor is None:
            return [finding_of(fault) for fault in await doctor_of(engine).confirmed(suspected)]


@pytest.fixture
async def sqlite(clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened("sqlite", clock, tmp_path) as store:
        yield store


@pytest.fixture
async def redis(clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened("redis", clock, tmp_path) as store:
        yield store


@pytest.mark.parametrize(("name", "kind", "how"), CASES)
async def test_a_planted_fault_is_found_and_mended(
    name: str, kind: FaultKind, how: str, clock: ManualClock, tmp_path: Path
) -> None:
    async with opened(name, clock, tmp_path) as engine:
        await plant(engine, clock, kind, how)

        async with unchanged(engine):
            found = await layout(engine)
            assert set(await in_parts(engine)) == set(found)

        assert kind.value in [finding.code for finding in found]
        assert all(finding.summary and finding.where and finding.fix for finding in found)

        repaired = await doctor_of(engine).repair(found)

        assert {each.finding.code for each in repaired if each.outcome is RepairOutcome.REPAIRED} >= {kind.value}
        assert [each for each in repaired if each.outcome is RepairOutcome.FAILED] == []
        assert await layout(engine) == []


class Hurried(ManualClock):
    """A clock by which every look takes a second."""

    def monotonic(self) -> float:
        self.advance(1000)
        return super().monotonic()

    async def sleep(self, seconds: float) -> None:
        self.pause(seconds)


async def test_a_doctor_in_a_hurry_looks_at_a_part_and_says_where_to_go_on(engine: Store, clock: ManualClock) -> None:
    await plant(engine, clock, FaultKind.ORPHAN)
    for _ in range(2):
        await add(engine, *(NewJob(name="n") for _ in range(600)), queue="z")
    doctor, found, parts, cursor = Doctor(engine, Hurried()), [], 0, None
    while parts == 0 or cursor is not None:
        part = await doctor.part(cursor=cursor, patience=0.5, quick=True)
        found += [(finding.code, parts) for finding in part.items]
        cursor = part.cursor
        parts += 1
    whole = await doctor.part(patience=10**6, quick=True)

    assert parts > 12
    assert whole.cursor is None
    assert sorted(finding.code for finding in whole.items) == sorted(code for code, _ in found)
    assert [code for code, _ in found].count("orphan") == 1
    assert all((part == 0) == (code in {"unread", "persistence", "fsync"}) for code, part in found)


async def test_a_part_ends_with_the_look_that_has_found_much(engine: Store) -> None:
    await add(engine, *(NewJob(name="n", id=f"job-{number}") for number in range(250)))
    await unlisted(engine)
    doctor, found, parts, cursor = doctor_of(engine), set(), 0, None
    while parts == 0 or cursor is not None:
        part = await doctor.part(cursor=cursor, patience=10**6, quick=True)
        found |= {finding.fault.subject for finding in part.items if finding.fault}
        cursor = part.cursor
        parts += 1

    assert found == {f"job-{number}" for number in range(250)}
    assert parts > 1


async def test_a_walk_goes_on_with_the_next_queue_where_its_own_is_gone(engine: Store, clock: ManualClock) -> None:
    await plant(engine, clock, FaultKind.ORPHAN)
    await add(engine, NewJob(name="n"), queue="a")
    async with aclosing(engine.repairs.scan(["a", "q"])) as looks:
        first = await anext(looks)

    rest = [fault.kind async for look in engine.repairs.scan(["q"], cursor=first.cursor) for fault in look]
    none = [look async for look in engine.repairs.scan([], cursor=first.cursor)]

    assert FaultKind.ORPHAN in rest
    assert none[-1].cursor is None


async def test_a_walk_goes_on_in_a_queue_that_was_removed_and_made_again(engine: Store) -> None:
    for queue, number in (("a", 600), ("a", 600), ("b", 3)):
        await add(engine, *(NewJob(name="n") for _ in range(number)), queue=queue)
    cursors = [look.cursor async for look in engine.repairs.scan(["a", "b"])]
    while (await engine.obliterate("a")).more:
        pass
    await add(engine, NewJob(name="again"), queue="a")

    suspected = [
        fault
        for cursor in cursors
        if cursor is not None
        async for look in engine.repairs.scan(["a", "b"], cursor=cursor)
        for fault in look
    ]

    assert suspected == []
    assert len((await claim(engine, queue="a")).jobs) == 1
    assert len((await claim(engine, queue="b")).jobs) == 3


async def test_a_job_is_put_back_into_no_line_but_that_of_its_own_queue(sqlite: Store, clock: ManualClock) -> None:
    await plant(sqlite, clock, FaultKind.ORPHAN)
    await add(sqlite, NewJob(name="n"), queue="b")
    (lost,) = [fault for fault in await doctor_of(sqlite).faults(["q"]) if fault.kind is FaultKind.ORPHAN]
    astray = replace(lost, queue="b")

    async with unchanged(sqlite):
        assert await sqlite.repairs.repair([astray], mode="repair") == [False]
    assert await sqlite.repairs.repair([lost], mode="repair") == [True]


@pytest.mark.parametrize("quick", [True, False])
async def test_a_cursor_of_a_quick_walk_is_good_for_a_whole_one_and_the_other_way_round(
    engine: Store, quick: bool
) -> None:
    await add(engine, NewJob(name="n"))
    doctor = doctor_of(engine)
    cursors = [look.cursor async for look in doctor.looks(["q"], quick=quick)]
    assert len(cursors) > 5
    for cursor in cursors[:-1]:
        part = await doctor.part(["q"], cursor=cursor, patience=10**6, quick=not quick)

        assert part == Page(())


async def test_only_what_is_not_quick_counts_and_says_what_it_left_out(sqlite: Store, clock: ManualClock) -> None:
    await plant(sqlite, clock, FaultKind.COUNT)
    doctor = doctor_of(sqlite)

    quick = await doctor.part(patience=10**6, quick=True)
    whole = await doctor.part(patience=10**6, quick=False)

    (unread,) = quick.items
    assert "and its jobs were not counted" in unread.summary
    assert [finding.code for finding in whole.items] == ["wrong_count", "wrong_count", "unread"]
    assert "not checked for damage" in whole.items[-1].summary
    assert "counted" not in whole.items[-1].summary


async def test_where_nobody_waits_a_look_takes_more_schedules(engine: Store, clock: ManualClock) -> None:
    for number in range(60):
        schedule = Schedule(id=f"tick-{number}", job=NewJob(name="n"), every=60_000)
        await engine.schedules.put("q", schedule, clock.now() + 60_000, expects=None)

    looks = {quick: [look async for look in doctor_of(engine).looks(["q"], quick=quick)] for quick in (True, False)}

    assert len(looks[True]) >= len(looks[False]) + 2
    assert not any(look.items for each in looks.values() for look in each)


async def test_a_look_goes_over_many_keys_if_it_has_little_to_ask(redis: Store) -> None:
    assert isinstance(redis, RedisEngine)
    scans, asked = Counter[str](), Counter[str]()

    async def ask(*words: Any) -> Any:
        scans[words[0]] += 1
        return await redis._runner.client.ask(*words)

    async def run(script: str, queue: str, words: Any) -> Any:
        asked[script] += 1
        return await redis._runner.read(script, queue, words)

    async def walked(queue: str) -> int:
        """How many looks it takes to go over the keys."""
        scans.clear()
        asked.clear()
        walk = Walk(redis._runner.address, redis._runner.fleet, ask, run, redis.repairs._there)
        steps = [_unpacked(look.cursor)[1] async for look in walk.faults([queue], None) if look.cursor]
        return steps.count("keys")

    for _ in range(2):
        await add(redis, *(NewJob(name="n") for _ in range(1000)))
    in_line = await walked("q")
    assert scans["SCAN"] > 10
    assert in_line <= scans["SCAN"] // 5 + 1
    assert asked["survey_jobs"] == 0

    await add(redis, *(NewJob(name="n", delay=60_000) for _ in range(1000)), queue="later")
    later = await walked("later")
    assert later > 4
    assert asked["survey_jobs"] <= 3 * (later + 1)


@pytest.mark.parametrize("spot", ["", "é", "x" * 300, *map(_packed, ODD_SPOTS)])
async def test_a_cursor_that_was_not_given_out_is_refused(engine: Store, spot: str) -> None:
    await add(engine, NewJob(name="n"))

    with pytest.raises(InvalidOption, match="cursor"):
        _ = [look async for look in engine.repairs.scan(["q"], cursor=spot)]
    with pytest.raises(InvalidOption, match="cursor"):
        await doctor_of(engine).part(["q"], cursor=spot, patience=1, quick=True)


async def test_a_repair_of_what_is_well_by_now_changes_nothing(engine: Store, clock: ManualClock) -> None:
    await plant(engine, clock, FaultKind.ORPHAN)
    found = await layout(engine)
    first = await doctor_of(engine).repair(found)

    async with unchanged(engine):
        again = await doctor_of(engine).repair(found)

    assert first[0].outcome is RepairOutcome.REPAIRED
    assert {each.outcome for each in again} == {RepairOutcome.GONE}


class Meanwhile(ManualClock):
    """A doctor's clock: between its two looks something happens."""

    def __init__(self, happens: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._happens = happens

    async def sleep(self, seconds: float) -> None:
        self.advance(round(seconds * 1000))
        await self._happens()


async def test_a_schedule_that_goes_on_all_the_time_is_not_taken_for_one_that_stands_still(
    engine: Store, clock: ManualClock
) -> None:
    await idle(engine, clock, -5_000)
    first = (await engine.schedules.get("q", "tick")).view
    assert first is not None

    async def another_run_begins_and_ends() -> None:
        await engine.schedules.advance("q", "tick", since=first.slot, to=first.slot + 60_000)
        await engine.remove("q", [f"repeat:tick:{first.slot + 60_000}"])

    suspected = [fault async for look in doctor_of(engine).looks(["q"]) for fault in look]
    found = await Doctor(engine, Meanwhile(another_run_begins_and_ends)).faults(["q"])

    assert found == []
    assert [(fault.kind, fault.place) for fault in suspected] == [(FaultKind.SCHEDULE, f"run repeat:tick:{first.slot}")]
    assert await doctor_of(engine).repair_faults(suspected) == [False]
    assert [fault.kind for fault in await doctor_of(engine).faults(["q"])] == [FaultKind.SCHEDULE]


async def test_a_job_that_was_lost_runs_once_after_the_repair(engine: Store, clock: ManualClock) -> None:
    await plant(engine, clock, FaultKind.ORPHAN)
    await doctor_of(engine).repair(await layout(engine))

    taken = ids((await claim(engine)).jobs)

    assert sorted(taken) == ["1", "lost"]
    assert ids((await claim(engine)).jobs) == []


async def test_of_two_places_the_one_that_loses_least_is_kept(redis: Store, clock: ManualClock) -> None:
    await plant(redis, clock, FaultKind.DOUBLE, "active wait")
    await doctor_of(redis).repair(await layout(redis))
    assert (await job(redis, "twin")).state is State.WAITING  # nobody holds it

    held = await claim_one(redis)
    await tell(redis, "LPUSH", "bull:q:wait", held.lease.id)  # type: ignore[arg-type]
    await doctor_of(redis).repair(await layout(redis))

    assert (await job(redis, held.lease.id)).state is State.ACTIVE
    assert (await settle(redis, held.lease)).value == "ok"


async def test_a_parent_that_was_forgotten_runs_after_the_repair(engine: Store, clock: ManualClock) -> None:
    await plant(engine, clock, FaultKind.PARENT, "no children")
    await doctor_of(engine).repair(await layout(engine))

    assert sorted(ids((await claim(engine)).jobs)) == ["1", "parent"]


@pytest.mark.parametrize("kind", [FaultKind.GHOST, FaultKind.LOCK, FaultKind.MARKER, FaultKind.PARENT, FaultKind.DEDUP])
async def test_what_needs_no_asking_is_mended_by_the_rounds_of_a_healer(
    redis: Store, clock: ManualClock, kind: FaultKind
) -> None:
    how = next(how for engine, each, how in PLANTS if engine is RedisEngine and each is kind)
    await plant(redis, clock, kind, how)
    healer = AutoRepair(doctor_of(redis), looks=5)  # few, so that a walk takes several rounds

    mended = [fault.kind for _ in range(6) for fault in await healer.round(["q"])]
    await healer.close()

    assert mended == [kind]
    assert await layout(redis) == []


@pytest.mark.covers("F110")
async def test_jobs_that_cannot_be_read_are_told_of_until_they_have_ended(engine: Store, clock: ManualClock) -> None:
    await engine.add("q", [NewJob(name="odd", id="odd"), NewJob(name="good", id="good")])
    await engine.add("q", [NewJob(name="odd", id="later", delay=60_000), NewJob(name="good", attempts=3)])
    for identity in ("odd", "later"):
        if isinstance(engine, RedisEngine):
            await tell(engine, "HSET", f"bull:q:{identity}", "opts", "[" * 100_000)
        else:
            await run(cast("SqliteEngine", engine), "UPDATE jobs SET options = '[[' WHERE id = ?", identity)

    found = await layout(engine)
    assert set(await in_parts(engine)) == set(found)
    assert [(each.code, each.severity, each.fault) for each in found] == [("unreadable_job", "warning", None)] * 2
    assert sorted(each.summary for each in found) == [
        f"queue 'q': the options of job {identity!r} cannot be read, so it will fail unstarted"
        for identity in ("later", "odd")
    ]

    assert (await claim_one(engine)).lease.id == "good", "a claim fails what it cannot read"
    await engine.remove("q", ["later"])
    assert await layout(engine) == []


async def test_what_takes_a_decision_is_left_to_people_by_a_healer(engine: Store, clock: ManualClock) -> None:
    await plant(engine, clock, FaultKind.ORPHAN)
    healer = AutoRepair(doctor_of(engine), looks=100)

    mended = await healer.round(["q"])
    await healer.close()

    assert FaultKind.ORPHAN not in AUTO_REPAIRED
    assert [fault.kind for fault in mended if fault.kind is not FaultKind.COUNT] == []
    assert "orphan" in [finding.code for finding in await layout(engine)]


async def test_a_store_after_a_mixed_load_has_no_fault(engine: Store, clock: ManualClock) -> None:
    keep = JobOptions(keep_completed=Keep(), keep_failed=Keep())
    for number in range(3):
        await add(engine, *(NewJob(name="n", options=keep) for _ in range(20)))
        await add(engine, *(NewJob(name="p", priority=1 + each % 3, options=keep) for each in range(10)))
        await add(engine, *(NewJob(name="d", delay=each * 100) for each in range(20)))
        await add(
            engine, NewJob(name="u", id=f"mine-{number}", dedup=Dedup(f"key-{number}")), NewJob(name="x", expires=50)
        )
        await add(engine, NewJob(name="u", dedup=Dedup("throttled", 60.0)))
    for name in "tp":
        schedule = Schedule(id=name, job=NewJob(name="t"), every=60_000)
        await engine.schedules.put("q", schedule, clock.now() + 60_000, expects=None)
    await engine.schedules.pause("q", "p")
    await flow(engine)
    half = FlowNode(queue="q", job=NewJob(name="half", id="half"), waits=True)  # the rest of it is on its way
    await engine.flows.add([half], held=[half.ref])
    await engine.configure("other", [Pause()])
    await engine.configure("narrow", [SetConcurrency(1)])
    for queue in ("other", "narrow", "slow"):
        await engine.add(queue, [NewJob(name="n"), NewJob(name="n")])
    await claim(engine, 2, queue="narrow")
    await claim(engine, 2, queue="slow", limits=Limits(rate=RateLimit(1, 60)))
    outcomes: list[Outcome | None] = [
        Completed(),
        Failed(Failure("no")),
        Retried(Failure("later"), 5_000),
        None,
        Completed(),
    ]
    for number in range(25):
        clock.advance(40)
        for each in (await claim(engine, 3, lease=2_000)).jobs:
            if (outcome := outcomes[(number + int(each.fence)) % 5]) is not None:
                await settle(engine, each.lease, outcome)
        await engine.recover("q")
        if number % 5 == 0:
            assert await layout(engine) == []
    await engine.retry("q", [record.id for record in (await engine.page("q", State.FAILED)).items][:5])
    await engine.cancel("q", [record.id for record in (await engine.page("q", State.DELAYED)).items][:3], reason="no")

    assert await layout(engine) == []


async def test_keys_that_nobody_here_knows_are_left_alone(redis: Store) -> None:
    await add(redis, NewJob(name="n"))
    for key in ("bull:q:toril:something", "bull:q:extra", "bull::relay:x", "bull:q:repeat:a:b", "other:q:1"):
        await tell(redis, "HSET", key, "name", "n")  # type: ignore[arg-type]
    await tell(redis, "HSET", "bull:q:parked", "name", "n", "timestamp", 1, "toril:somewhere", "else")  # type: ignore[arg-type]
    await tell(redis, "LPUSH", "bull:q:wait", "0:1700000000000")  # type: ignore[arg-type]

    async with unchanged(redis):
        assert await layout(redis) == []


async def test_a_key_of_another_type_is_told_of_and_hides_no_other_queue(redis: Store, clock: ManualClock) -> None:
    await plant(redis, clock, FaultKind.ORPHAN)
    await add(redis, NewJob(name="n"), queue="odd")
    await tell(redis, "SET", "bull:odd:delayed", "what")  # type: ignore[arg-type]

    found = await layout(redis)

    assert sorted(finding.code for finding in found) == ["foreign_key", "orphan"]
    assert "bull:odd:delayed is a string" in found[0].summary + found[1].summary


async def test_damage_is_found_in_queues_one_by_one(sqlite: Store, clock: ManualClock) -> None:
    assert isinstance(sqlite, SqliteEngine)
    await plant(sqlite, clock, FaultKind.COUNT)
    await add(sqlite, NewJob(name="n"), queue="well")

    found = await layout(sqlite)

    assert {finding.fault.queue for finding in found if finding.fault} == {"q"}
    await doctor_of(sqlite).repair(found)
    counts = await sqlite.counts("q")
    assert (counts.waiting, counts.delayed) == (1, 1)


async def test_a_ghost_that_is_named_like_a_key_takes_only_itself_along(redis: Store) -> None:
    await add(redis, *(NewJob(name="n", delay=60_000) for _ in range(3)))
    await tell(redis, "SET", "bull:q:note", "another program's")  # type: ignore[arg-type]
    await tell(redis, "LPUSH", "bull:q:wait", "delayed", "meta", "note", "toril:deadlines", "1:logs")  # type: ignore[arg-type]
    before = await tell(redis, "HGETALL", "bull:q:meta")  # type: ignore[arg-type]

    repaired = await doctor_of(redis).repair(await layout(redis))

    assert RepairOutcome.FAILED not in {each.outcome for each in repaired}
    assert (await redis.counts("q")).delayed == 3
    assert await tell(redis, "HGETALL", "bull:q:meta") == before  # type: ignore[arg-type]
    assert await tell(redis, "GET", "bull:q:note") == "another program's"  # type: ignore[arg-type]
    assert await tell(redis, "LLEN", "bull:q:wait") == 0  # type: ignore[arg-type]


async def test_words_of_the_layout_in_a_line_are_drained_without_their_keys(redis: Store) -> None:
    await add(redis, NewJob(name="n"))
    await tell(redis, "LPUSH", "bull:q:wait", "meta")  # type: ignore[arg-type]

    await redis.drain("q", states=frozenset({State.WAITING}))

    assert await tell(redis, "EXISTS", "bull:q:meta") == 1  # type: ignore[arg-type]


async def test_a_parent_that_stands_nowhere_waits_for_its_children_after_the_repair(
    engine: Store, clock: ManualClock
) -> None:
    await flow(engine)
    await nowhere(engine, "parent")

    await doctor_of(engine).repair(await layout(engine))

    assert (await job(engine, "parent")).state is State.WAITING_CHILDREN
    await settle(engine, (await claim_one(engine, queue="other")).lease)
    assert ids((await claim(engine)).jobs) == ["parent"]


async def test_a_job_that_has_failed_before_and_stands_nowhere_waits_again_after_the_repair(engine: Store) -> None:
    await add(engine, NewJob(name="n", attempts=3))
    again = await claim_one(engine)
    await settle(engine, again.lease, Retried(Failure("once", "LookupError"), 0))
    await unlisted(engine)

    await doctor_of(engine).repair(await layout(engine))

    assert ids((await claim(engine)).jobs) == [again.lease.id]


async def test_a_parent_in_two_places_waits_for_its_children_after_the_repair(redis: Store) -> None:
    await flow(redis)
    await tell(redis, "LPUSH", "bull:q:wait", "parent")  # type: ignore[arg-type]

    await doctor_of(redis).repair(await layout(redis))

    assert (await job(redis, "parent")).state is State.WAITING_CHILDREN


@pytest.mark.parametrize("how", ["healed", "asked for again"])
async def test_a_job_that_was_kept_for_the_end_of_another_is_made_when_that_is_gone(engine: Store, how: str) -> None:
    last = Dedup("k", mode="keep_last")
    await add(engine, NewJob(name="owner", dedup=last))
    owner = await claim_one(engine)
    await add(engine, NewJob(name="kept", data="7", dedup=last))
    await vanished(engine, owner.lease.id)

    if how == "healed":
        mended = await AutoRepair(doctor_of(engine), looks=1000).round(["q"])
        assert FaultKind.DEDUP in {fault.kind for fault in mended}
    else:
        await add(engine, NewJob(name="third", dedup=last))

    assert [(each.name, each.data) for each in (await claim(engine)).jobs] == [("kept", "7")]


async def test_a_key_of_another_type_hides_nothing_else_of_its_queue(redis: Store, clock: ManualClock) -> None:
    await plant(redis, clock, FaultKind.ORPHAN)
    await plant(redis, clock, FaultKind.PARENT, "no children")
    await plant(redis, clock, FaultKind.GHOST, "failed")
    await tell(redis, "SET", "bull:q:parent:dependencies", "what")  # type: ignore[arg-type]
    await tell(redis, "SET", "bull:q:repeat", "what")  # type: ignore[arg-type]

    found = await layout(redis)

    assert sorted(finding.code for finding in found) == ["foreign_key", "foreign_key", "ghost", "orphan"]
