"""Recording steps: which row counts, what comes with a claim, how long rows stay."""

from itertools import count
from typing import Any

import pytest

from tests.conformance.dumps import dump
from tests.conformance.jobs import LEASE, add, claim, claim_one, new_job, settle
from tests.conformance.stepping import (
    WHY,
    all_rows,
    plant_row,
    recorded,
    report,
    row,
    rows_of,
    running,
    steps_of,
    with_steps,
    write,
)
from toril.codec.steps import dump_step, load_step
from toril.errors import CallTooLate, InvalidName, InvalidOption
from toril.model import (
    CLAIMED_STEP_BYTES,
    KEEP_ALL,
    MAX_STEP_BYTES,
    MAX_STEPS,
    RECORDED_AT_ONCE,
    Call,
    Claim,
    Completed,
    Failed,
    Keep,
    Lease,
    RecordedSteps,
    Released,
    Replay,
    Retried,
    Settlement,
    Snoozed,
    StepVerdict,
    letter_id,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock

MB = 1024 * 1024
_senders = count(1)


def a_call() -> Call:
    """A call of a sender of its own."""
    return Call(f"sender-{next(_senders)}", 1)


async def again(engine: Store, lease: Lease) -> None:
    """Give a job back."""
    await settle(engine, lease, Released())


async def test_a_recorded_step_comes_with_the_next_claim(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    written = await write(step_engine, lease, "a", text='{"n":1}')
    await again(step_engine, lease)

    job = await claim_one(step_engine)

    assert job.steps == RecordedSteps({"a": dump_step(written)}, 0, 0, clock.now())


@pytest.mark.parametrize(
    ("kind", "text", "given", "wanted"),
    [
        ("d", '{"a": 5.0}', {"took": 7, "digest": "0123abcd"}, 'd 1 NOW 7 0123abcd 0.0 {"a": 5.0}'),
        ("e", '["K","why",["a.K"]]', {}, 'e 1 NOW 0 - 0.0 ["K","why",["a.K"]]'),
        ("c", '[["q","c1"]]', {}, 'c 1 NOW 0 - 0.0 [["q","c1"]]'),
        ("v", "3", {}, "v 1 NOW 0 - 0.0 3"),
        ("z", "", {"delay": 500}, "z 1 NOW 0 - 0.0 LATER"),
        ("t", '[1,"K","why"]', {"delay": 500}, 't 1 NOW 0 - 0.0 LATER [1,"K","why"]'),
        ("p", '[["ok",null]]', {"delay": 500}, 'p 1 NOW 0 - 0.0 LATER [["ok",null]]'),
        ("p", '[["ok","k"]]', {}, 'p 1 NOW 0 - 0.0 - [["ok","k"]]'),
    ],
)
async def test_a_row_has_the_same_text_in_every_store(
    step_engine: Store, clock: ManualClock, kind: str, text: str, given: dict[str, object], wanted: str
) -> None:
    lease = (await running(step_engine)).lease

    (answer,) = await recorded(step_engine, report(lease, "a", kind, text, **given))

    text = wanted.replace("NOW", str(clock.now())).replace("LATER", str(clock.now() + 500))
    assert await all_rows(step_engine, lease.id) == {"a": text}
    assert (answer.verdict, answer.now, answer.steps, answer.bytes) == (
        StepVerdict.OK, clock.now(), 1, len("a") + len(text),
    )  # fmt: skip
    assert answer.row == (text if kind in "zpt" else None)


async def test_the_store_numbers_dates_and_attributes_rows(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine, attempts=3, keep_failed=KEEP_ALL)).lease
    first = await write(step_engine, lease, "a")
    clock.advance(5)
    second = await write(step_engine, lease, "b")
    await settle(step_engine, lease, Retried(WHY))
    lease = (await claim_one(step_engine)).lease
    third = await write(step_engine, lease, "c")
    await settle(step_engine, lease, Failed(WHY))
    await step_engine.retry("q", [lease.id])
    fourth = await write(step_engine, (await claim_one(step_engine)).lease, "d")

    assert [each.seq for each in (first, second, third, fourth)] == [1, 2, 3, 4]
    assert second.at - first.at == 5
    assert [(each.reruns, each.attempt) for each in (first, second, third, fourth)] == [(0, 0), (0, 0), (0, 1), (1, 0)]


async def test_without_the_lease_nothing_is_recorded(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    named = (await running(step_engine, id="mine")).lease
    await settle(step_engine, named)
    before = await dump(step_engine)

    others = [
        Lease("q", lease.id, "another"), Lease("q", "77", lease.token), named, Lease("q", "", lease.token),
    ]  # fmt: skip
    answers = await recorded(step_engine, *(report(each) for each in others))
    assert [each.verdict for each in answers] == [StepVerdict.LOST, *[StepVerdict.MISSING] * 3]
    assert [each.now for each in answers] == [clock.now()] * 4
    (unknown,) = await recorded(step_engine, report(Lease("nowhere", "1", "t")))
    assert unknown.verdict is StepVerdict.MISSING
    assert await dump(step_engine) == before

    clock.advance(LEASE)
    (late,) = await recorded(step_engine, report(lease))
    assert late.verdict is StepVerdict.LOST
    assert await all_rows(step_engine, lease.id) == {}


async def test_one_bad_report_leaves_the_others_alone(step_engine: Store) -> None:
    one, two = (await running(step_engine)).lease, (await running(step_engine)).lease

    answers = await recorded(step_engine, report(one, "a"), report(Lease("q", one.id, "no"), "b"), report(two, "a"))

    assert [each.verdict for each in answers] == [StepVerdict.OK, StepVerdict.LOST, StepVerdict.OK]
    assert list(await all_rows(step_engine, one.id)) == ["a"]
    assert list(await all_rows(step_engine, two.id)) == ["a"]


FIRST = {
    "d": ("1", {}), "e": ('["K","why",[]]', {}), "c": ('[["q","x"]]', {}), "v": ("1", {}), "z": ("", {"delay": 100}),
    "p": ('[["ok",null]]', {"delay": 100}), "t": ('[1,"K","why"]', {"delay": 100}),
}  # fmt: skip
SECOND = {
    "d": ("2", {}), "e": ('["K","again",[]]', {}), "c": ('[["q","y"]]', {}), "v": ("2", {}), "z": ("", {"delay": 900}),
    "p": ('[["no",null]]', {"delay": 900}), "t": ('[2,"K","why"]', {"delay": 900}),
}  # fmt: skip


@pytest.mark.parametrize("then", SECOND)
@pytest.mark.parametrize("there", FIRST)
async def test_failures_and_tries_give_way_and_other_rows_stay(step_engine: Store, there: str, then: str) -> None:
    lease = (await running(step_engine)).lease
    text, given = FIRST[there]
    before = await write(step_engine, lease, "a", there, text, **given)
    text, given = SECOND[then]

    (answer,) = await recorded(step_engine, report(lease, "a", then, text, **given))

    after = await row(step_engine, lease.id, "a")
    assert after is not None
    if there in "et":
        assert (after.kind, after.seq, after.text) == (then, 2, text)
        assert answer.row == (dump_step(after) if then in "zpt" else None)
    else:
        assert after == before
        assert answer.row == dump_step(before)
    assert (answer.verdict, answer.steps) == (StepVerdict.OK, 1)
    assert answer.bytes == len("a") + len(dump_step(after))
    assert (await write(step_engine, lease, "b")).seq == after.seq + 1


async def test_a_wait_keeps_its_first_time_however_often_it_is_recorded(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    for key, kind in (("s", "z"), ("w", "p")):
        text, given = FIRST[kind]
        first = await write(step_engine, lease, key, kind, text, **given)
        clock.advance(50)

        assert await write(step_engine, lease, key, kind, text, **given) == first


async def test_a_row_that_is_replaced_makes_room(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    await write(step_engine, lease, "a", "e", f'["K","{"x" * 5000}",[]]')
    (answer,) = await recorded(step_engine, report(lease, "a"))

    (text,) = (await all_rows(step_engine, lease.id)).values()
    assert answer.bytes == 1 + len(text)
    assert answer.steps == 1


async def test_bytes_are_those_of_keys_and_rows(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    await recorded(step_engine, *(report(lease, f"ä{n}", text=f'"{"é" * n}"') for n in range(20)))
    (answer,) = await recorded(step_engine, report(lease, "last"))

    rows = await all_rows(step_engine, lease.id)
    assert answer.steps == len(rows) == 21
    assert answer.bytes == sum(len(key.encode()) + len(text.encode()) for key, text in rows.items())


async def test_a_job_may_have_ten_thousand_rows(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    for at in range(0, MAX_STEPS, RECORDED_AT_ONCE):
        answers = await recorded(step_engine, *(report(lease, f"k{n}") for n in range(at, at + RECORDED_AT_ONCE)))
        assert {each.verdict for each in answers} == {StepVerdict.OK}

    full, there = await recorded(step_engine, report(lease, "more"), report(lease, "k5", text="2"))

    assert (full.verdict, there.verdict) == (StepVerdict.FULL, StepVerdict.OK)
    assert await row(step_engine, lease.id, "more") is None
    await again(step_engine, lease)
    claimed = await claim_one(step_engine)
    assert len(rows_of(claimed)) == MAX_STEPS

    await again(step_engine, claimed.lease)
    assert (await steps_of(step_engine).rewind("q", lease.id, None)).done == (lease.id,)
    assert rows_of(await claim_one(step_engine)) == []


async def test_a_job_may_have_16_mb_of_rows(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    for n in range(MAX_STEP_BYTES // MB - 1):
        await write(step_engine, lease, f"k{n}", text="1" * MB)

    large, small = await recorded(step_engine, report(lease, "large", text="1" * MB), report(lease, "small"))

    assert (large.verdict, large.row) == (StepVerdict.FULL, None)
    assert small.verdict is StepVerdict.OK
    assert MAX_STEP_BYTES - MB < small.bytes <= MAX_STEP_BYTES
    assert "large" not in await all_rows(step_engine, lease.id)


async def test_a_call_that_is_sent_again_has_the_same_answer(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    call = a_call()
    reports = [report(lease, "a"), report(lease, "s", "z", "", delay=100), report(Lease("q", lease.id, "no"), "b")]
    first = await recorded(step_engine, *reports, call=call)
    clock.advance(10)
    before = await dump(step_engine)

    assert await recorded(step_engine, *reports, call=call) == first
    assert await dump(step_engine) == before
    with pytest.raises(CallTooLate):
        await recorded(step_engine, *reports, call=Call(call.sender, 0))


async def test_a_batch_has_a_limit_and_may_be_empty(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    with pytest.raises(InvalidOption, match="at most 100 steps"):
        await recorded(step_engine, *(report(lease, f"k{n}") for n in range(RECORDED_AT_ONCE + 1)))
    with pytest.raises(InvalidName):
        await steps_of(step_engine).record("", [report(lease)])
    assert await steps_of(step_engine).record("q", []) == []
    assert await all_rows(step_engine, lease.id) == {}


async def test_a_job_without_steps_has_none(step_engine: Store) -> None:
    stepping = (await running(step_engine)).lease
    await write(step_engine, stepping)
    await again(step_engine, stepping)
    await add(step_engine, new_job("other"))

    jobs = {job.name: job.steps for job in (await claim(step_engine)).jobs}

    assert jobs["other"] is None
    assert jobs["n"] is not None


async def test_rows_survive_whatever_a_job_goes_through(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine, attempts=5)).lease
    kept = {"a": dump_step(await write(step_engine, lease, "a"))}
    for outcome in (Released(), Retried(WHY), Retried(WHY, 10), Snoozed(10), None):
        if outcome is None:
            clock.advance(LEASE)
            await step_engine.recover("q")
        else:
            await settle(step_engine, lease, outcome)
        clock.advance(10)
        job = await claim_one(step_engine, alone=outcome is None)
        assert job.steps == RecordedSteps(kept, 0, 0, clock.now()), outcome
        lease = job.lease


async def test_rows_stay_with_a_kept_job(step_engine: Store) -> None:
    for outcome in (Completed(), Failed(WHY)):
        lease = (await running(step_engine, keep_completed=KEEP_ALL, keep_failed=KEEP_ALL)).lease
        written = await write(step_engine, lease)
        await settle(step_engine, lease, outcome)

        assert await all_rows(step_engine, lease.id) == {"a": dump_step(written)}


async def traces(engine: Store) -> int:
    """How many lines of what is stored mention the value that these tests record."""
    return sum("tell-tale" in line for lines in (await dump(engine)).values() for line in lines)


async def test_rows_go_with_their_job(step_engine: Store, clock: ManualClock) -> None:
    async def ended(**given: Any) -> Lease:
        lease = (await running(step_engine, **given)).lease
        await write(step_engine, lease, text='"tell-tale"')
        return lease

    await settle(step_engine, await ended())  # completed, and not kept
    assert await traces(step_engine) == 0

    lease = await ended(keep_completed=KEEP_ALL)
    await settle(step_engine, lease)
    assert await traces(step_engine) > 0
    await step_engine.remove("q", [lease.id])
    assert await traces(step_engine) == 0

    for _ in range(3):  # trimmed to one, which is the last
        await settle(step_engine, await ended(keep_completed=Keep(1)))
    await settle(step_engine, (await running(step_engine, keep_completed=Keep(1))).lease)
    assert await traces(step_engine) == 0

    await settle(step_engine, await ended(keep_completed=Keep(None, 1)))
    clock.advance(2_000)
    await step_engine.prune("q")
    assert await traces(step_engine) == 0

    await again(step_engine, await ended())
    await step_engine.drain("q", states=frozenset({State.WAITING}))
    assert await traces(step_engine) == 0

    await again(step_engine, await ended())
    await step_engine.obliterate("q", running="remove")
    assert await traces(step_engine) == 0


async def test_a_dead_letter_keeps_its_rows(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    written = await write(step_engine, lease)
    await settle(step_engine, lease, Failed(WHY))

    assert await all_rows(step_engine, lease.id, where="dead_letters") == {"a": dump_step(written)}
    assert await all_rows(step_engine, lease.id) == {}


@pytest.mark.covers("R278")
async def test_a_replay_goes_on_with_the_rows(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    written = await write(step_engine, lease)
    await settle(step_engine, lease, Failed(WHY))

    await step_engine.dead_letters.replay("q", [Replay(letter_id("q", lease.id))])

    job = await claim_one(step_engine)
    assert job.steps == RecordedSteps({"a": dump_step(written)}, 1, 0, clock.now())
    assert (await write(step_engine, job.lease, "b")).seq == 2
    assert await all_rows(step_engine, lease.id, where="dead_letters") == {}


async def test_the_rows_of_a_second_letter_take_the_place_of_the_first(step_engine: Store) -> None:
    for key in ("a", "b"):
        lease = (await running(step_engine, id="mine")).lease
        await write(step_engine, lease, key)
        await settle(step_engine, lease, Failed(WHY))

    assert list(await all_rows(step_engine, "mine", where="dead_letters")) == ["b"]


async def test_a_retry_of_a_failed_job_goes_on_and_that_of_a_completed_one_begins_anew(
    step_engine: Store, clock: ManualClock
) -> None:
    for outcome, rows, epoch in ((Failed(WHY), ["a"], 0), (Completed(), [], 1)):
        lease = (await running(step_engine, keep_completed=KEEP_ALL, keep_failed=KEEP_ALL)).lease
        await write(step_engine, lease)
        await settle(step_engine, lease, outcome)
        await step_engine.retry("q", [lease.id])

        job = await claim_one(step_engine)

        assert job.steps is not None
        assert rows_of(job) == rows
        assert (job.steps.reruns, job.steps.epoch, job.steps.now) == (1, epoch, clock.now())
        (answer,) = await recorded(step_engine, report(job.lease, "b"))
        assert answer.steps == len(rows) + 1
        assert answer.bytes == sum(
            len(key) + len(text) for key, text in (await all_rows(step_engine, lease.id)).items()
        )
        await settle(step_engine, job.lease)


async def test_a_job_without_rows_that_is_run_again_says_so(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine, keep_failed=KEEP_ALL)).lease
    await settle(step_engine, lease, Failed(WHY))
    await step_engine.retry("q", [lease.id])
    again = await claim_one(step_engine)
    assert again.steps == RecordedSteps({}, 1, 0, clock.now())

    lease = (await running(step_engine)).lease
    await settle(step_engine, lease, Failed(WHY))
    await step_engine.dead_letters.replay("q", [Replay(letter_id("q", lease.id))])
    assert (await claim_one(step_engine)).steps == RecordedSteps({}, 1, 0, clock.now())


async def test_a_letter_that_is_discarded_or_pruned_leaves_nothing(step_engine: Store, clock: ManualClock) -> None:
    async def dead() -> str:
        lease = (await running(step_engine)).lease
        await write(step_engine, lease, text='"tell-tale"')
        await settle(step_engine, lease, Failed(WHY))
        assert await traces(step_engine) > 0
        return letter_id("q", lease.id)

    await step_engine.dead_letters.discard([await dead()])
    assert await traces(step_engine) == 0

    await dead()
    await step_engine.dead_letters.keep(Keep(None, 1))
    clock.advance(2_000)
    await step_engine.prune("q")
    assert await traces(step_engine) == 0

    await dead()
    await step_engine.dead_letters.keep(Keep(0))
    await step_engine.prune("q")
    assert await traces(step_engine) == 0


async def test_a_new_job_of_the_same_id_has_no_rows_of_the_old(step_engine: Store) -> None:
    for outcome in (Completed(), Failed(WHY)):
        lease = (await running(step_engine, id="mine")).lease
        await write(step_engine, lease)
        await settle(step_engine, lease, outcome)
        job = await running(step_engine, id="mine")
        assert job.steps is None
        assert await all_rows(step_engine, "mine") == {}
        await settle(step_engine, job.lease)


async def test_rows_are_paged_in_the_order_in_which_they_were_recorded(step_engine: Store) -> None:
    lease = (await with_steps(step_engine, "z", "a", "m", "b")).lease
    await write(step_engine, lease, "t", "t", '[1,"K","why"]', delay=5)
    await write(step_engine, lease, "last")
    await write(step_engine, lease, "t")

    assert list(await all_rows(step_engine, lease.id, limit=2)) == ["z", "a", "m", "b", "last", "t"]
    first = await steps_of(step_engine).page("q", lease.id, limit=3)
    await write(step_engine, lease, "new")
    rest = await steps_of(step_engine).page("q", lease.id, cursor=first.cursor)
    assert [key for key, _ in (*first, *rest)] == ["z", "a", "m", "b", "last", "t", "new"]
    assert (await steps_of(step_engine).page("q", "77")).items == ()
    assert (await steps_of(step_engine).page("nowhere", "1")).items == ()
    with pytest.raises(InvalidOption):
        await steps_of(step_engine).page("q", lease.id, cursor="no")


async def test_a_page_of_large_rows_is_short(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    for n in range(10):
        await write(step_engine, lease, f"k{n}", text="1" * MB)

    page = await steps_of(step_engine).page("q", lease.id)

    assert 0 < len(page) < 10
    assert page.cursor is not None
    assert len(await all_rows(step_engine, lease.id)) == 10


async def test_a_claim_takes_no_more_jobs_once_it_has_8_mb_of_rows(step_engine: Store, clock: ManualClock) -> None:
    leases = [(await running(step_engine)).lease for _ in range(4)]
    for lease in leases:
        for n in range(CLAIMED_STEP_BYTES // MB // 2):
            await write(step_engine, lease, f"k{n}", text="1" * MB)
    for lease in reversed(leases):
        await again(step_engine, lease)

    first = await claim(step_engine)
    second = await claim(step_engine)

    assert [job.lease.id for job in first.jobs] == [lease.id for lease in leases[:2]]
    assert first.wake_at == clock.now()
    assert [job.lease.id for job in second.jobs] == [lease.id for lease in leases[2:]]
    assert all(len(rows_of(job)) == 4 for job in (*first.jobs, *second.jobs))


async def test_an_exchange_that_is_sent_again_brings_the_rows_again(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    await write(step_engine, lease)
    call, wanted = a_call(), Claim(want=1, token="t1", lease=LEASE, worker="w")
    first = await step_engine.exchange("q", [Settlement(lease, Released())], wanted, call=call)

    second = await step_engine.exchange("q", [Settlement(lease, Released())], wanted, call=call)

    assert second.jobs == first.jobs
    assert rows_of(second.jobs[0]) == ["a"]


async def test_any_key_and_value_comes_back_as_it_was(step_engine: Store) -> None:
    keys = [
        "a/b[0]/c:d#2", "\"quoted\" 'key'", "käse 🧀", "x" * 512, "%s ? {} \\ $1", "toril:steps", " 1e400",
        "-", "0", "k k",
    ]  # fmt: skip
    values = ['"5.0"', "5.0", "1e400", "123456789012345678901234567890", '" \\u0000\\n"', '"🧀\u2028"', "[ 1 , 2 ]"]
    lease = (await running(step_engine)).lease
    wanted = {}
    for n, key in enumerate(keys):
        value = values[n % len(values)]
        assert (await write(step_engine, lease, key, text=value)).text == value
        wanted[key] = value
    await again(step_engine, lease)

    job = await claim_one(step_engine)

    assert job.steps is not None
    found = {key: load_step(key, text) for key, text in job.steps.rows.items()}
    assert {key: each.text for key, each in found.items() if each is not None} == wanted


async def test_a_row_that_nobody_can_read_is_kept(step_engine: Store) -> None:
    """As a later version may write: it is neither replaced nor lost."""
    lease = (await running(step_engine)).lease
    size = len(dump_step(await write(step_engine, lease)))
    strange = "y 1 ?".ljust(size)
    await plant_row(step_engine, lease.id, "a", strange)
    assert load_step("a", strange) is None

    for kind, (text, given) in FIRST.items():
        (answer,) = await recorded(step_engine, report(lease, "a", kind, text, **given))
        assert (answer.verdict, answer.row, answer.steps) == (StepVerdict.OK, strange, 1)
    assert await all_rows(step_engine, lease.id) == {"a": strange}
    await again(step_engine, lease)
    job = await claim_one(step_engine)
    assert job.steps is not None
    assert job.steps.rows == {"a": strange}
    await settle(step_engine, job.lease, Failed(WHY))
    assert await all_rows(step_engine, lease.id, where="dead_letters") == {"a": strange}
