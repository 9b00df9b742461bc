"""What stays with a dead letter: its log, its progress, the error of every attempt, and its flow."""

import re

import pytest

from tests.conformance.dumps import dump
from tests.conformance.jobs import add, claim, claim_one, job, settle
from toril.model import (
    ATTEMPT_ERRORS,
    ATTEMPT_REASON_BYTES,
    ATTEMPT_TRACEBACK_BYTES,
    KEEP_ALL,
    AttemptFailure,
    Cancelled,
    ChildState,
    Claim,
    Completed,
    Failed,
    Failure,
    FlowNode,
    JobOptions,
    JobRef,
    Keep,
    LogLine,
    NewJob,
    OnFailure,
    Progress,
    Replay,
    Retried,
    Settlement,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock

WHY = Failure("no such user", "LookupError", "Traceback: here")
TOP = JobRef("p", "top")
_BESIDE = re.compile(
    r":dead-letter:(?!meta$|toril$)|(?<!metrics)(?<!runs):(logs|dependencies|processed|failed|unsuccessful)$"
)


def tried(n: int) -> Failure:
    return Failure(f"reason {n}", f"Kind{n}", f"Traceback: attempt {n}")


async def talk(engine: Store, *lines: str, attempts: int = 1, progress: str | None = None, queue: str = "q") -> None:
    """Claim a job, log so many lines in each attempt, and fail it for good."""
    for n in range(1, attempts + 1):
        lease = (await claim_one(engine, queue=queue)).lease
        await engine.report(queue, [LogLine(lease, line) for line in lines])
        if progress is not None:
            await engine.report(queue, [Progress(lease, progress)])
        await settle(engine, lease, Retried(tried(n)) if n < attempts else Failed(WHY))


async def log(engine: Store, job_id: str, queue: str = "q") -> tuple[str, ...]:
    return (await engine.logs(queue, job_id, where="dead_letters")).items


async def family_dies(engine: Store) -> None:
    """A parent, one child that returns and one whose failure is the parent's too; all of them log."""
    await engine.flows.add([
        FlowNode(queue="p", job=NewJob(name="top", id="top"), waits=True),
        FlowNode(queue="q", job=NewJob(name="good", id="good"), parent=TOP),
        FlowNode(queue="q", job=NewJob(name="bad", id="bad"), parent=TOP, on_failure=OnFailure.FAIL),
    ])  # fmt: skip
    await settle(engine, (await claim_one(engine)).lease, Completed('"fine"'))
    await talk(engine, "a child's line")
    await claim(engine, queue="p")


async def belongings(engine: Store) -> dict[str, list[str]]:
    """Whatever is left of dead letters, of logs, and of what parents know."""
    found = await dump(engine)
    tables = {"letters", "logs", "children"}
    if tables <= found.keys():
        return {name: found[name] for name in sorted(tables) if found[name]}
    own = {"jobs": [row for row in found.pop("jobs") if ":dead-letter:" in row]}
    kept = {key: rows for key, rows in found.items() if _BESIDE.search(key)}
    return kept | (own if own["jobs"] else {})


async def test_the_log_and_the_progress_stay_with_a_dead_letter(engine: Store) -> None:
    await add(engine, NewJob(name="n", attempts=2))
    await talk(engine, "one", "två", attempts=2, progress='{"done": 3}')

    (letter,) = (await engine.dead_letters.page()).items

    assert letter.progress == '{"done": 3}'
    assert await log(engine, "1") == ("one", "två", "one", "två")
    assert (await engine.dead_letters.get(["q/1"]))[0] == letter
    assert (await engine.logs("q", "1")).items == (), "the job itself is gone"


async def test_the_log_of_a_dead_letter_is_bounded_and_comes_in_pages(engine: Store) -> None:
    await add(engine, NewJob(name="n", id="a:b:c%", options=JobOptions(keep_logs=5)))
    await talk(engine, *(f"line {n}" for n in range(8)))

    first = await engine.logs("q", "a:b:c%", where="dead_letters", limit=3)
    rest = await engine.logs("q", "a:b:c%", where="dead_letters", limit=3, cursor=first.cursor)

    assert (*first.items, *rest.items) == tuple(f"line {n}" for n in range(3, 8))
    assert rest.cursor is None


async def test_the_error_of_every_attempt_stays_with_a_dead_letter(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n", attempts=3))
    start = clock.now()
    for n in (1, 2):
        lease = (await claim_one(engine)).lease
        clock.advance(10)
        await settle(engine, lease, Retried(tried(n), 5))
        assert (await engine.errors("q", "1"))[-1] == AttemptFailure(n, start + n * 15 - 5, tried(n)), "while it waits"
        clock.advance(5)
    lease = (await claim_one(engine)).lease
    clock.advance(10)
    await settle(engine, lease, Failed(WHY))

    assert await engine.errors("q", "1", where="dead_letters") == (
        AttemptFailure(1, start + 10, tried(1)),
        AttemptFailure(2, start + 25, tried(2)),
        AttemptFailure(3, start + 40, WHY),
    )
    assert await engine.errors("q", "1") == ()


async def test_a_failed_job_that_is_kept_has_the_error_of_every_attempt_too(engine: Store) -> None:
    await add(engine, NewJob(name="n", attempts=3, options=JobOptions(keep_failed=KEEP_ALL)))
    await talk(engine, attempts=3)

    found = await engine.errors("q", "1")

    assert [(each.attempt, each.failure) for each in found] == [(1, tried(1)), (2, tried(2)), (3, WHY)]
    await engine.retry("q", ["1"])
    assert await engine.errors("q", "1") == (), "a retry begins anew"


async def test_errors_of_attempts_are_bounded_in_number_and_in_bytes(engine: Store) -> None:
    many = ATTEMPT_ERRORS + 5
    await add(engine, NewJob(name="n", attempts=many))
    long = Failure("ä" * 5_000, "K", "begin\n" + "ö" * 9_000 + "\nthe end")
    for _ in range(many - 1):
        await settle(engine, (await claim_one(engine)).lease, Retried(long))
    await settle(engine, (await claim_one(engine)).lease, Failed(long))

    *before, last = await engine.errors("q", "1", where="dead_letters")

    assert [each.attempt for each in before] == list(range(many - ATTEMPT_ERRORS, many))
    assert all(len(each.failure.reason.encode()) <= ATTEMPT_REASON_BYTES for each in before)
    assert all(len(each.failure.traceback.encode()) <= ATTEMPT_TRACEBACK_BYTES for each in before)
    assert all(each.failure.traceback.startswith("…") for each in before), "the end of a traceback says what was wrong"
    assert all(each.failure.traceback.endswith("ö\nthe end") for each in before)
    assert (last.attempt, last.failure) == (many, long), "the last one is whole"


async def test_a_job_that_is_lost_after_some_attempts_tells_of_all(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n", attempts=5))
    await settle(engine, (await claim_one(engine)).lease, Retried(tried(1)))
    await claim(engine, max_stalls=0)
    clock.advance(60_000)
    await engine.recover("q", cause="killed by signal 9")

    first, second = await engine.errors("q", "1", where="dead_letters")

    assert (first.attempt, first.failure) == (1, tried(1))
    assert (second.attempt, second.failure.kind, second.at) == (2, "JobStalled", clock.now())


async def test_who_was_cancelled_between_attempts_has_the_errors_of_those(engine: Store) -> None:
    await add(engine, NewJob(name="n", attempts=5, options=JobOptions(keep_failed=KEEP_ALL)))
    await settle(engine, (await claim_one(engine)).lease, Retried(tried(1), 1_000))
    await engine.cancel("q", ["1"], reason="enough")

    assert [each.failure for each in await engine.errors("q", "1")] == [tried(1)]
    assert (await job(engine, "1")).failure == Failure("enough", "JobCancelled")


async def test_a_dead_parent_knows_its_children_and_a_dead_child_its_parent(engine: Store) -> None:
    await family_dies(engine)

    top, bad = await engine.dead_letters.get(["p/top", "q/bad"])

    assert top is not None
    assert bad is not None
    assert bad.parent == TOP
    assert (await engine.flows.child_counts(TOP)).total == 0
    family = await engine.flows.child_counts(TOP, where="dead_letters")
    assert (family.completed, family.failed, family.open) == (1, 1, 0)
    children = {each.ref: each.state for each in (await engine.flows.children(TOP, where="dead_letters")).items}
    assert children == {JobRef("q", "good"): ChildState.COMPLETED, JobRef("q", "bad"): ChildState.FAILED}
    assert await log(engine, "bad") == ("a child's line",)


async def test_a_replayed_job_goes_on_with_its_log_and_begins_its_attempts_anew(engine: Store) -> None:
    await add(engine, NewJob(name="n", attempts=2, options=JobOptions(keep_logs=3)))
    await talk(engine, "before", attempts=2, progress="50")

    await engine.dead_letters.replay("q", [Replay("q/1")])

    found = await job(engine, "1")
    assert (found.state, found.progress, found.failure) == (State.WAITING, None, None)
    assert await engine.errors("q", "1") == ()
    assert (await engine.logs("q", "1")).items == ("before", "before")
    assert await log(engine, "1") == ()
    await talk(engine, "after", attempts=2)
    assert await log(engine, "1") == ("before", "after", "after"), "the newest three, as ever"
    assert [each.attempt for each in await engine.errors("q", "1", where="dead_letters")] == [1, 2]


async def test_nothing_of_a_replayed_job_is_left_when_it_completes(engine: Store) -> None:
    await family_dies(engine)
    while (await engine.obliterate("q")).more:  # which then knows of no job that ever logged
        pass
    await add(engine, *(NewJob(name="n") for _ in range(10)))
    await engine.dead_letters.replay("q", [Replay("q/bad")])
    await engine.dead_letters.replay("p", [Replay("p/top")])
    batch = [Settlement(each.lease, Completed()) for each in (await claim(engine, 20)).jobs]
    assert len(batch) == 11
    await engine.exchange("q", batch, Claim(want=0, token="all", lease=1, worker="w"))  # of many, few are looked at
    await settle(engine, (await claim_one(engine, queue="p")).lease, Completed())

    assert await belongings(engine) == {}


async def test_a_discarded_letter_leaves_nothing_behind(engine: Store) -> None:
    await family_dies(engine)
    await add(engine, NewJob(name="n", id="plain", attempts=2))
    await talk(engine, "one", attempts=2, progress="1")
    assert len(await belongings(engine)) > 1

    await engine.dead_letters.discard(["p/top", "q/bad", "q/plain"])

    assert await belongings(engine) == {}


@pytest.mark.parametrize("keep", [Keep(0), Keep(None, 1.0)], ids=["count", "age"])
async def test_what_retention_takes_leaves_nothing_behind(engine: Store, clock: ManualClock, keep: Keep) -> None:
    await family_dies(engine)
    await add(engine, NewJob(name="n", id="plain", attempts=2))
    await talk(engine, "one", attempts=2, progress="1")
    clock.advance(5_000)
    await engine.dead_letters.keep(keep)

    await engine.prune("q")

    assert await belongings(engine) == {}


async def test_a_newer_job_of_the_same_id_has_nothing_of_the_older_one(engine: Store) -> None:
    await family_dies(engine)
    await add(engine, NewJob(name="again", id="bad"), NewJob(name="other"))
    await talk(engine, "a new line")
    await add(engine, NewJob(name="again", id="top"), queue="p")
    await talk(engine, queue="p")

    assert await log(engine, "bad") == ("a new line",)
    assert await log(engine, "top", "p") == ()
    assert (await engine.flows.child_counts(TOP, where="dead_letters")).total == 0
    await engine.dead_letters.discard(["q/bad", "p/top"])
    assert await belongings(engine) == {}


async def test_a_letter_and_a_job_of_the_same_id_are_told_apart(engine: Store) -> None:
    await add(engine, NewJob(name="n", id="own"))
    await talk(engine, "the dead one")
    await add(engine, NewJob(name="n", id="own", attempts=3))
    lease = (await claim_one(engine)).lease
    await engine.report("q", [LogLine(lease, "the living one")])
    await settle(engine, lease, Retried(tried(7), 1_000))

    assert (await engine.logs("q", "own")).items == ("the living one",)
    assert await log(engine, "own") == ("the dead one",)
    assert [each.failure for each in await engine.errors("q", "own")] == [tried(7)]
    assert [each.failure for each in await engine.errors("q", "own", where="dead_letters")] == [WHY]


async def test_the_log_of_a_job_that_is_no_letter_goes_with_it(engine: Store) -> None:
    await add(engine, NewJob(name="n"), NewJob(name="n"))
    for outcome in (Completed(), Cancelled("enough")):
        lease = (await claim_one(engine)).lease
        await engine.report("q", [LogLine(lease, "line")])
        await settle(engine, lease, outcome)

    assert await belongings(engine) == {}


async def test_of_what_is_no_letter_nothing_is_known(engine: Store) -> None:
    assert await log(engine, "nobody") == ()
    assert await engine.errors("q", "nobody", where="dead_letters") == ()
    assert await engine.errors("q", "nobody") == ()
    assert (await engine.flows.child_counts(JobRef("q", "nobody"), where="dead_letters")).total == 0
    assert (await engine.flows.children(JobRef("q", "nobody"), where="dead_letters")).items == ()
