"""Durable steps on the kinds of Redis: rows, signals and rests."""

import json
from collections.abc import AsyncIterator

import pytest

from tests.conformance.claims import add, claim, claim_one, settle
from tests.kinds import GUARDED, KINDS, REDIS, redis_of
from toril.codec.steps import dump_rest, load_rest
from toril.engines.redis import RedisEngine
from toril.errors import NotFound
from toril.model import (
    MAX_DELAY,
    Call,
    Claimed,
    Completed,
    Failed,
    Failure,
    FlowNode,
    JobOptions,
    JobRef,
    Keep,
    Lease,
    NewJob,
    NewSignal,
    OnFailure,
    Refused,
    Released,
    Replay,
    Rest,
    Rested,
    RestReason,
    RestRow,
    Retried,
    SetDelay,
    SignalOutcome,
    SignalWait,
    StepAnswer,
    StepKind,
    StepReport,
    StepVerdict,
    Verdict,
)
from toril.model.states import State
from toril.testing import ManualClock


@pytest.fixture(params=[kind for kind in KINDS if kind in {*REDIS, *GUARDED}])
async def redis(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[RedisEngine]:
    engine = redis_of(request.param, clock)
    await engine.open()
    yield engine
    await engine.close()


def report(lease: Lease, key: str, text: str = "1", kind: StepKind = StepKind.DONE, **more: object) -> StepReport:
    return StepReport(lease, key, kind, text, **more)  # type: ignore[arg-type]


async def record(redis: RedisEngine, *reports: StepReport) -> list[StepAnswer]:
    return await redis.steps.record("q", reports)


async def rows(redis: RedisEngine, job: str = "1", **more: object) -> dict[str, str]:
    page = await redis.steps.page("q", job, **more)  # type: ignore[arg-type]
    return dict(page.items)


def is_ok(*answers: StepAnswer) -> bool:
    return all(answer.verdict is StepVerdict.OK for answer in answers)


async def test_what_is_recorded_comes_with_the_next_claim(redis: RedisEngine, clock: ManualClock) -> None:
    await add(redis, NewJob(name="n", attempts=2))
    job = await claim_one(redis)
    assert job.steps is None

    (answer,) = await record(redis, report(job.lease, "ä:1", '{"a": 5.0}', took=7, digest="0123abcd"))
    assert answer == StepAnswer(StepVerdict.OK, clock.now(), None, 1, answer.bytes)
    await settle(redis, job.lease, Retried(Failure("x")))
    again = await claim_one(redis)

    assert again.steps is not None
    assert again.steps.now == clock.now()
    assert again.steps.rows == {"ä:1": f'd 1 {answer.now} 7 0123abcd 0.0 {{"a": 5.0}}'}
    assert answer.bytes == len("ä:1".encode()) + len(again.steps.rows["ä:1"].encode())


async def test_which_row_counts(redis: RedisEngine, clock: ManualClock) -> None:
    await add(redis, NewJob(name="n"))
    lease = (await claim_one(redis)).lease
    now = clock.now()
    assert is_ok(*await record(redis, report(lease, "a", "[1]", StepKind.RETRY, delay=5), report(lease, "a", "2")))
    assert (await record(redis, report(lease, "a", "3")))[0].row == f"d 2 {now} 0 - 0.0 2"
    assert (await record(redis, report(lease, "s", "", StepKind.SLEEP, delay=5)))[
        0
    ].row == f"z 3 {now} 0 - 0.0 {now + 5}"
    clock.advance(2)
    assert (await record(redis, report(lease, "s", "", StepKind.SLEEP, delay=9)))[
        0
    ].row == f"z 3 {now} 0 - 0.0 {now + 5}"
    (waits,) = await record(redis, report(lease, "p", "[]", StepKind.WAIT))
    assert waits.row == f"p 4 {now + 2} 0 - 0.0 - []"
    (bad, lost) = await record(redis, report(Lease("q", "9", "t"), "a"), report(Lease("q", "1", "t"), "a"))
    assert (bad.verdict, lost.verdict) == (StepVerdict.MISSING, StepVerdict.LOST)
    assert list(await rows(redis)) == ["a", "s", "p"]


async def test_a_call_that_is_repeated_records_once(redis: RedisEngine) -> None:
    await add(redis, NewJob(name="n"))
    lease = (await claim_one(redis)).lease
    sleep = report(lease, "s", "", StepKind.SLEEP, delay=5)

    first = await redis.steps.record("q", [sleep], call=Call("me", 1))

    assert await redis.steps.record("q", [sleep], call=Call("me", 1)) == first
    assert first[0].row is not None
    assert first[0].row.startswith("z 1 ")


async def test_limits(redis: RedisEngine) -> None:
    await add(redis, NewJob(name="n"))
    lease = (await claim_one(redis)).lease
    for first in range(0, 10_000, 100):
        await record(redis, *(report(lease, f"k{first + n}") for n in range(100)))

    (full,) = await record(redis, report(lease, "one more"))

    assert (full.verdict, full.steps) == (StepVerdict.FULL, 10_000)
    seen, cursor = list[str](), None
    while True:
        page = await redis.steps.page("q", "1", cursor=cursor, limit=1000)
        seen += [key for key, _ in page.items]
        if (cursor := page.cursor) is None:
            break
    assert seen == [f"k{n}" for n in range(10_000)]


async def test_bytes_are_limited_and_counted(redis: RedisEngine) -> None:
    await add(redis, NewJob(name="n"), NewJob(name="n"), NewJob(name="n"))
    jobs = (await claim(redis, 3)).jobs
    text = "x" * (4 * 1024 * 1024)
    for job in jobs:
        for key in "ab":
            assert is_ok(*await record(redis, report(job.lease, key, text)))
    lease = jobs[0].lease
    assert is_ok(*await record(redis, report(lease, "c", text)))
    (full, small) = await record(redis, report(lease, "d", text), report(lease, "e", "1"))
    assert (full.verdict, small.verdict) == (StepVerdict.FULL, StepVerdict.OK)
    for job in jobs:
        await settle(redis, job.lease, Released())

    for _ in range(3):
        found = await claim(redis, 5)
        assert len(found.jobs) == 1


async def test_rows_go_with_the_job_and_its_dead_letter(redis: RedisEngine) -> None:
    await add(redis, NewJob(name="n"))
    lease = (await claim_one(redis)).lease
    await record(redis, report(lease, "a"), report(lease, "b"))
    await settle(redis, lease, Failed(Failure("x")))
    assert await rows(redis) == {}
    assert list(await rows(redis, where="dead_letters")) == ["a", "b"]

    await redis.dead_letters.replay("q", [Replay("q/1")])
    again = await claim_one(redis)

    assert again.steps is not None
    assert (again.steps.reruns, again.steps.epoch, sorted(again.steps.rows)) == (1, 0, ["a", "b"])


async def test_a_job_that_has_completed_begins_anew(redis: RedisEngine) -> None:
    await add(redis, NewJob(name="n", options=JobOptions(keep_completed=Keep(5), keep_failed=Keep(5))))
    lease = (await claim_one(redis)).lease
    await record(redis, report(lease, "a"))
    await settle(redis, lease, Failed(Failure("x")))
    await redis.retry("q", ["1"])
    again = await claim_one(redis)
    assert again.steps is not None
    assert (again.steps.reruns, again.steps.epoch, list(again.steps.rows)) == (1, 0, ["a"])
    await settle(redis, again.lease, Completed())
    assert list(await rows(redis)) == ["a"]
    await redis.retry("q", ["1"])
    last = await claim_one(redis)
    assert last.steps is not None
    assert (last.steps.reruns, last.steps.epoch, last.steps.rows) == (2, 1, {})


def sleep(key: str, delay: int | None, **more: object) -> Rest:
    return Rest(key=key, kind=StepKind.SLEEP, delay=delay, **more)  # type: ignore[arg-type]


def wait(key: str, *signals: SignalWait, delay: int | None = None) -> Rest:
    return Rest(key=key, kind=StepKind.WAIT, text=waits(*signals), delay=delay, signals=signals)


def waits(*signals: SignalWait) -> str:
    return json.dumps([[each.name, each.key] for each in signals], separators=(",", ":"))


async def resting(redis: RedisEngine, *rests: Rest, **given: object) -> Claimed:
    await add(redis, NewJob(name="n", **given))  # type: ignore[arg-type]
    job = await claim_one(redis)
    assert await settle(redis, job.lease, Rested(rests=rests)) is Verdict.OK
    return job


async def state(redis: RedisEngine, job: str = "1") -> State | None:
    (row,) = await redis.jobs("q", [job])
    return None if row is None else row.state


async def deliver(redis: RedisEngine, *signals: NewSignal) -> list[SignalOutcome]:
    return [each.outcome for each in await redis.steps.deliver("q", signals)]


APPROVED = SignalWait("approved")
ORDER = SignalWait("paid", "order 5")


async def test_a_sleep(redis: RedisEngine, clock: ManualClock) -> None:
    began = clock.now()
    await resting(redis, sleep("a/b", 1000), sleep("c", 5000), expires=100)
    (row,) = await redis.jobs("q", ["1"])
    assert row is not None
    assert (row.state, row.due, row.delay, row.attempts_made) == (State.DELAYED, began + 1000, 0, 0)
    assert load_rest(row.rest) == RestRow(
        began,
        began + 1000,
        (RestReason("a/b", StepKind.SLEEP, began + 1000), RestReason("c", StepKind.SLEEP, began + 5000)),
    )
    assert row.rest == dump_rest(load_rest(row.rest))  # type: ignore[arg-type]
    assert (await redis.counts("q")).resting == 1
    assert [each.id for each in (await redis.steps.resting("q")).items] == ["1"]
    clock.advance(999)
    assert (await claim(redis)).jobs == ()
    clock.advance(1)
    again = await claim_one(redis)
    assert again.attempts_made == 0
    assert again.starts == 2
    assert again.steps is not None
    assert (await redis.counts("q")).resting == 0
    assert again.steps.rows["a/b"].endswith(f" {began + 1000}")
    assert await settle(redis, again.lease, Rested(rests=(sleep("c", 9000),))) is Verdict.OK
    (row,) = await redis.jobs("q", ["1"])
    assert row is not None
    assert row.due == began + 5000
    clock.advance(4000)
    last = await claim_one(redis)
    assert await settle(redis, last.lease, Rested(rests=(sleep("c", None, recorded=True),))) is Verdict.OK
    assert await state(redis) is State.WAITING
    await settle(redis, (await claim_one(redis)).lease)
    assert await state(redis) is None


async def test_a_signal_wakes(redis: RedisEngine, clock: ManualClock) -> None:
    await resting(redis, wait("w", APPROVED))
    (row,) = await redis.jobs("q", ["1"])
    assert row is not None
    assert row.due == clock.now() + MAX_DELAY
    assert await deliver(redis, NewSignal(name="other", job_id="1")) == [SignalOutcome.KEPT]
    assert [each.id for each in (await redis.steps.resting("q", signal="approved")).items] == ["1"]
    assert (await redis.steps.resting("q", signal="other")).items == ()
    ok = NewSignal(name="approved", job_id="1", payload='{"by": 5.0}', id="x")
    assert await deliver(redis, ok, ok) == [SignalOutcome.WOKEN, SignalOutcome.DUPLICATE]
    assert await state(redis) is State.WAITING
    assert [each.name for each in await redis.steps.inbox("q", "1")] == ["other", "approved"]
    job = await claim_one(redis)
    (answer, again) = [
        await redis.steps.receive(job.lease, "w", [APPROVED], call=Call("me", 1), digest="01234567") for _ in "12"
    ]
    assert answer == again
    assert answer.row == f'w 2 {clock.now()} 0 01234567 0.0 - ["approved",null] {{"by": 5.0}}'
    assert (await redis.steps.receive(job.lease, "w", [APPROVED])).row == answer.row
    assert await deliver(redis, ok, NewSignal(name="x", job_id="9")) == [SignalOutcome.DUPLICATE, SignalOutcome.MISSING]
    assert len(await redis.steps.inbox("q", "1")) == 1


async def test_signals_by_key(redis: RedisEngine, clock: ManualClock) -> None:
    paid = NewSignal(name="paid", key="order 5", id="p", ttl=1000)
    assert await deliver(redis, paid, paid) == [SignalOutcome.KEPT, SignalOutcome.DUPLICATE]
    clock.advance(1000)
    assert await deliver(redis, paid) == [SignalOutcome.KEPT]
    await redis.prune("q")
    await add(redis, NewJob(name="n"), NewJob(name="n"))
    one, two = (await claim(redis)).jobs
    got = await redis.steps.receive(one.lease, "w", [APPROVED, ORDER])
    assert got.row is not None
    assert got.row.endswith(' - ["paid","order 5"] true')
    assert (await redis.steps.receive(one.lease, "w2", [ORDER])).row is None
    assert (await redis.steps.receive(two.lease, "w", [ORDER])).verdict is StepVerdict.CLASH
    assert await settle(redis, two.lease, Rested(rests=(wait("w", ORDER),))) is Verdict.OK
    assert await state(redis, "2") is State.WAITING
    assert (await redis.steps.deliver("q", [NewSignal(name="paid", key="order 5", id="p2")]))[0].job_id == "1"
    await settle(redis, one.lease)
    two = await claim_one(redis)
    assert (await redis.steps.receive(two.lease, "w", [ORDER])).verdict is StepVerdict.OK
    assert await settle(redis, two.lease, Rested(rests=(wait("w", ORDER),))) is Verdict.OK
    assert await state(redis, "2") is State.DELAYED
    assert await deliver(redis, NewSignal(name="paid", key="order 5")) == [SignalOutcome.WOKEN]


async def test_a_wait_that_is_over(redis: RedisEngine, clock: ManualClock) -> None:
    began = clock.now()
    await resting(redis, wait("w", ORDER, delay=10))
    clock.advance(10)
    job = await claim_one(redis)
    answer = await redis.steps.receive(job.lease, "w", [ORDER])
    assert answer.row == f"w 2 {clock.now()} 0 - 0.0 {began + 10} null"
    assert await deliver(redis, NewSignal(name="paid", key="order 5")) == [SignalOutcome.KEPT]


async def test_what_is_done_to_a_resting_job(redis: RedisEngine, clock: ManualClock) -> None:
    for _ in range(4):
        await resting(redis, sleep("s", 1000), wait("w", APPROVED, delay=1500))
    assert (await redis.drain("q", states=frozenset({State.DELAYED}))).ids == ()
    assert (await redis.clean("q", state=State.DELAYED, grace=0)).ids == ()
    assert (await redis.update("q", [SetDelay("1", 5)])).refused == (Refused("1", State.DELAYED),)
    assert (await redis.promote("q", ["1"])).done == ("1",)
    job = await claim_one(redis)
    assert job.steps is not None
    assert job.steps.rows["s"].endswith(f" {clock.now()}")
    assert str(clock.now() + 1500) in job.steps.rows["w"]
    assert (await redis.cancel("q", ["2"], reason="r")).done == ("2",)
    assert (await redis.remove("q", ["3"])).done == ("3",)
    assert (await redis.counts("q")).resting == 1
    assert (await redis.steps.rewind("q", "4", "w")).done == ("4",)
    job = await claim_one(redis)
    assert job.steps is not None
    assert (job.steps.reruns, job.steps.epoch, list(job.steps.rows)) == (1, 1, ["s"])
    assert (await redis.steps.rewind("q", "4", None)).refused == (Refused("4", State.ACTIVE),)
    await settle(redis, job.lease, Released())
    with pytest.raises(NotFound):
        await redis.steps.rewind("q", "4", "w")
    assert (await redis.counts("q")).resting == 0


async def test_children_and_a_sleep(redis: RedisEngine) -> None:
    await add(redis, NewJob(name="n"), NewJob(name="n"))
    calls = Rest(key="c", kind=StepKind.CALLED, text='[["q","child"]]')
    for parent, rests in (("1", (calls, sleep("s", 5000))), ("2", (calls,))):
        new, ref = NewJob(name="c", id=f"child{parent}"), JobRef("q", parent)
        child = FlowNode(queue="q", job=new, parent=ref, on_failure=OnFailure.IGNORE)
        (job,) = (await claim(redis, 1)).jobs
        assert await settle(redis, job.lease, Rested((child,), 0, rests)) is Verdict.OK
        stands = State.DELAYED if parent == "1" else State.WAITING_CHILDREN
        assert await state(redis, parent) is stands
        if parent == "1":
            first = await claim(redis, 1)  # 2
            assert first.jobs[0].lease.id == "2"
            await settle(redis, first.jobs[0].lease, Released())
    assert (await redis.counts("q")).resting == 2
    for each in (await claim(redis)).jobs:
        await settle(redis, each.lease)
    assert [await state(redis, each) for each in "12"] == [State.WAITING] * 2
    assert (await redis.counts("q")).resting == 0
