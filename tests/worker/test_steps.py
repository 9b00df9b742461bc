"""What a run of a handler does by durable steps, on a store that keeps its word: values, failures, retries, names."""

import asyncio
import functools
from dataclasses import dataclass
from typing import Any

import pytest

from tests.worker.step_store import StepJob
from toril import (
    Exponential,
    Fixed,
    InvalidOption,
    LeaseLost,
    PermanentError,
    Retry,
    Snooze,
    TransientError,
)
from toril.context import StopReason, current_step
from toril.errors import EngineUnavailable, InvalidName, JobCancelled, StepChanged, StepClash, StepFailed, StepsTooLarge
from toril.model import Rested, SignalWait, StepKind, StepVerdict
from toril.worker.steps import AttemptSteps


@dataclass
class User:
    id: int
    tags: list[str]


class Calls:
    """Counts what steps do."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    async def double(self, number: int) -> int:
        self.made.append(number)
        return 2 * number

    def user(self, number: int) -> User:
        self.made.append(number)
        return User(number, ["new"])

    async def pair(self) -> Any:
        self.made.append("pair")
        return (1, 2)

    async def fail(self, error: Exception) -> int:
        self.made.append(type(error).__name__)
        raise error


@pytest.fixture
def job() -> StepJob:
    return StepJob()


@pytest.fixture
def calls() -> Calls:
    return Calls()


async def test_a_step_is_done_once_however_often_its_handler_runs(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> int:
        return int(await ctx.step("double", calls.double, (3,))) + int(await ctx.step("double", calls.double, (4,)))

    assert [await job.run(handler) for _ in range(3)] == [14, 14, 14]
    assert calls.made == [3, 4]
    assert list(job.store.rows) == ["double", "double#2"]


@pytest.mark.covers("R268")
async def test_the_first_run_sees_what_later_runs_read(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> list[Any]:
        user = await ctx.step("user", calls.user, (7,))
        return [
            user,
            await ctx.step("pair", calls.pair),
            await ctx.step("typed", lambda: {"id": 1, "tags": ()}, result=User),
        ]

    first, second = await job.run(handler), await job.run(handler)

    assert first == second == [User(7, ["new"]), [1, 2], User(1, [])]
    assert calls.made == [7, "pair"]


async def test_a_value_is_recorded_before_the_handler_goes_on(job: StepJob, calls: Calls) -> None:
    seen: list[list[str]] = []

    async def handler(ctx: AttemptSteps) -> None:
        await ctx.step("double", calls.double, (3,))
        seen.append(list(job.store.rows))

    await job.run(handler)

    assert seen == [["double"]]


async def test_a_record_is_sent_until_it_is_answered(job: StepJob, calls: Calls) -> None:
    job.store.lost = 4

    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.step("double", calls.double, (3,))

    async with job.clock.running():
        assert await job.run(handler) == 6
    assert job.store.calls == ["d double"], "a call that is sent again writes nothing more"


async def test_a_record_is_given_up_when_its_attempt_is_to_stop(job: StepJob, calls: Calls) -> None:
    job.store.lost = 1_000

    async def handler(ctx: AttemptSteps) -> Any:
        job.clock.later(9, lambda: job.signal.fire(StopReason.LEASE_LOST, "the lease was lost"))
        return await ctx.step("double", calls.double, (3,))

    async with job.clock.running():
        with pytest.raises(LeaseLost):
            await job.run(handler)


@pytest.mark.parametrize("verdict", [StepVerdict.LOST, StepVerdict.MISSING])
async def test_without_its_lease_an_attempt_records_nothing(job: StepJob, calls: Calls, verdict: StepVerdict) -> None:
    job.store.verdict = verdict

    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.step("double", calls.double, (3,))

    with pytest.raises(LeaseLost):
        await job.run(handler)


async def test_a_job_that_has_recorded_too_much_fails_for_good(job: StepJob, calls: Calls) -> None:
    job.store.verdict = StepVerdict.FULL

    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.step("double", calls.double, (3,))

    with pytest.raises(StepsTooLarge, match="10,000 steps or 16 MB"):
        await job.run(handler)


async def test_a_value_that_is_too_large_fails_for_good(job: StepJob) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.step("large", lambda: "x" * 2**21)

    with pytest.raises(StepsTooLarge, match="elsewhere and return where it is"):
        await job.run(handler)
    assert job.store.rows == {}


async def test_what_attempts_record_in_one_turn_goes_out_in_one_call(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.gather(*(ctx.step("double", calls.double, (n,)) for n in range(250)))

    assert await job.run(handler) == [2 * n for n in range(250)]
    assert job.store.batches == [100, 100, 50]


# failing


async def test_a_step_that_fails_raises_what_it_failed_by(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.step("charge", calls.fail, (TimeoutError("too late"),))

    with pytest.raises(StepFailed, match="step 'charge' failed: TimeoutError: too late") as found:
        await job.run(handler)
    assert isinstance(found.value.__cause__, TimeoutError)
    assert found.value.caused_by(OSError)
    assert job.store.rows == {}, "the attempt ends by it, so the next one does the step again"


@pytest.mark.covers("R269")
async def test_a_failure_that_was_caught_holds_for_its_attempt_and_no_longer(job: StepJob, calls: Calls) -> None:
    seen: list[bool] = []

    async def handler(ctx: AttemptSteps) -> str:
        try:
            await ctx.step("charge", calls.fail, (ConnectionError("away"),))
        except StepFailed as error:
            seen.append(error.caused_by(ConnectionError))
            await ctx.step("undo", calls.double, (1,))
            return f"undone: {error.kind}: {error.reason}"
        return "charged"

    first = [await job.run(handler) for _ in range(2)]
    assert calls.made == ["ConnectionError", 1]
    assert job.store.calls == ["e charge", "d undo"], "the failure is recorded before anything else happens"
    job.store.attempts_made = 1
    second = await job.run(handler)

    assert [*first, second] == ["undone: ConnectionError: away"] * 3
    assert seen == [True] * 3
    assert calls.made == ["ConnectionError", 1, "ConnectionError"]


async def test_a_failure_that_was_caught_is_recorded_before_whatever_comes_next(job: StepJob, calls: Calls) -> None:
    """Of two tasks that go on at once, the one that does not record it waits for it."""
    seen: list[bool] = []

    async def look() -> None:
        seen.append("charge" in job.store.rows)

    async def handler(ctx: AttemptSteps) -> None:
        with pytest.raises(StepFailed):
            await ctx.step("charge", calls.fail, (ConnectionError("away"),))
        await asyncio.gather(*(ctx.step("look", look, key=str(number)) for number in range(3)))

    await job.run(handler)
    assert seen == [True] * 3
    assert [call for call in job.store.calls if call.startswith("e ")] == ["e charge"]


async def test_a_rerun_forgets_failures_that_were_caught(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> None:
        try:
            await ctx.step("charge", calls.fail, (KeyError("x"),))
        except StepFailed:
            await ctx.step("undo", calls.double, (1,))

    await job.run(handler)
    job.store.reruns = 1
    await job.run(handler)

    assert calls.made == ["KeyError", 1, "KeyError"]


@pytest.mark.parametrize("error", [Snooze(5), JobCancelled("no"), LeaseLost("gone")])
async def test_what_says_what_becomes_of_the_job_passes_through(job: StepJob, calls: Calls, error: Exception) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.step("charge", calls.fail, (error,))

    with pytest.raises(type(error)):
        await job.run(handler)


# retries of a step


@pytest.mark.covers("R270")
async def test_a_step_is_tried_again_while_its_job_rests(job: StepJob, calls: Calls) -> None:
    tries: list[int | None] = []

    async def flaky() -> int:
        info = current_step()
        tries.append(None if info is None else info.tries)
        if len(tries) < 3:
            raise ConnectionError("away")
        return 5

    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.step("flaky", flaky, retry=Retry(3, Exponential(10)))

    start = job.clock.now()
    assert isinstance(await job.run(handler), Rested)
    assert await job.finish(handler) == 5
    assert tries == [1, 2, 3]
    assert job.runs == 4, "the second came before the time was over"
    assert job.clock.now() - start == 30_000


async def test_a_step_without_a_delay_is_tried_again_at_once(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.step("charge", calls.fail, (ConnectionError("away"),), retry=Retry(3, Fixed(0)))

    with pytest.raises(StepFailed):
        await job.run(handler)
    assert calls.made == ["ConnectionError"] * 3


async def test_a_permanent_error_ends_the_tries_of_a_step(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.step("charge", calls.fail, (PermanentError("no"),), retry=Retry(3, Fixed(0)))

    with pytest.raises(StepFailed):
        await job.run(handler)
    assert calls.made == ["PermanentError"]


async def test_an_error_can_ask_for_more_time_before_the_next_try(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        error = TransientError("busy", retry_after=60)
        return await ctx.step("charge", calls.fail, (error,), retry=Retry(3, Fixed(1)))

    rested = await job.run(handler)

    assert rested.rests[0].delay == 60_000


async def test_the_tries_of_a_step_count_within_one_attempt(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.step("charge", calls.fail, (ConnectionError("away"),), retry=Retry(2, Fixed(1)))

    assert isinstance(await job.run(handler), Rested)
    job.store.attempts_made = 1
    assert isinstance(await job.run(handler), Rested), "the first of two tries again"
    job.clock.advance(1_000)
    with pytest.raises(StepFailed):
        await job.run(handler)


async def test_a_step_that_takes_too_long_is_cut(job: StepJob) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.step("slow", forever, timeout=5_000)

    async with job.clock.running():
        with pytest.raises(StepFailed, match="longer than its timeout of 5 s") as found:
            await job.run(handler)
    assert found.value.caused_by(TimeoutError)


# names


async def test_a_name_that_two_tasks_take_is_refused(job: StepJob, calls: Calls) -> None:
    async def branch(ctx: AttemptSteps, number: int) -> Any:
        return await ctx.step("parse", calls.double, (number,))

    async def handler(ctx: AttemptSteps) -> Any:
        return await asyncio.gather(branch(ctx, 1), branch(ctx, 2))

    with pytest.raises(StepClash, match=r"give it key=…, or start the tasks by ctx.gather\(\)"):
        await job.run(handler)


async def test_steps_of_tasks_are_told_apart_by_keys(job: StepJob, calls: Calls) -> None:
    async def branch(ctx: AttemptSteps, number: int) -> Any:
        return await ctx.step("parse", calls.double, (number,), key=str(number))

    async def handler(ctx: AttemptSteps) -> Any:
        return await asyncio.gather(branch(ctx, 1), branch(ctx, 2))

    assert await job.run(handler) == [2, 4]
    assert set(job.store.rows) == {"parse:1", "parse:2"}


async def test_steps_are_numbered_in_the_order_in_which_they_are_called(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        first, second = ctx.step("a", calls.double, (1,)), ctx.step("a", calls.double, (2,))
        return [await second, await first]

    assert [await job.run(handler) for _ in range(2)] == [[4, 2], [4, 2]]
    assert calls.made == [2, 1]
    assert list(job.store.rows) == ["a#2", "a"]


async def test_a_key_is_asked_for_once_in_a_run(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> None:
        await ctx.step("a", calls.double, (1,), key="k")
        await ctx.step("a", calls.double, (1,), key="k")

    with pytest.raises(StepClash, match="asked for twice"):
        await job.run(handler)


async def test_a_step_within_a_step_is_refused(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        async def inner() -> Any:
            return await ctx.step("inner", calls.double, (1,))

        return await ctx.step("outer", inner)

    with pytest.raises(StepFailed, match="cannot begin within step 'outer'"):
        await job.run(handler)


async def test_impossible_steps_are_refused(job: StepJob) -> None:
    ctx = job.begin()

    with pytest.raises(InvalidName):
        await ctx.step("a/b", print)
    with pytest.raises(TypeError, match="needs a function"):
        await ctx.step("a", 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="retry must be a Retry"):
        await ctx.step("a", print, retry=3)  # type: ignore[arg-type]


async def test_code_within_a_step_has_a_key_for_other_systems(job: StepJob) -> None:
    found: list[str] = []

    def charge() -> None:
        info = current_step()
        assert info is not None
        found.append(info.idempotency_key)

    async def handler(ctx: AttemptSteps) -> None:
        await ctx.step("charge", charge, key="x")
        assert current_step() is None

    await job.run(handler)

    assert found == ["q:job:0:charge:x"]


# code that was edited


async def test_a_step_that_has_become_a_sleep_is_refused(job: StepJob, calls: Calls) -> None:
    async def before(ctx: AttemptSteps) -> None:
        await ctx.step("pause", calls.double, (1,))

    async def after(ctx: AttemptSteps) -> None:
        await ctx.sleep("pause", delay=1)

    await job.run(before)

    with pytest.raises(StepChanged, match="'pause' is a sleep now, but a step is recorded"):
        await job.run(after)


async def test_a_value_of_another_type_is_refused_by_the_field(job: StepJob) -> None:
    async def before(ctx: AttemptSteps) -> None:
        await ctx.step("user", lambda: {"id": "seven", "tags": []})

    async def after(ctx: AttemptSteps) -> None:
        await ctx.step("user", lambda: None, result=User)

    await job.run(before)

    with pytest.raises(StepChanged, match=r"\.id"):
        await job.run(after)


async def test_a_row_that_cannot_be_read_is_told(job: StepJob, calls: Calls) -> None:
    job.store.rows["a"] = "q of another version"

    async def handler(ctx: AttemptSteps) -> None:
        await ctx.step("a", calls.double, (1,))

    with pytest.raises(StepChanged, match="cannot be read"):
        await job.run(handler)


async def test_other_arguments_are_told_and_the_recorded_value_counts(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.step("a", calls.double, (job.runs,))

    assert [await job.run(handler) for _ in range(2)] == [2, 2]
    assert job.reports.lines == ["step a was recorded for other arguments; the recorded value counts"]


async def test_rows_that_are_not_asked_for_are_told(job: StepJob, calls: Calls) -> None:
    async def before(ctx: AttemptSteps) -> None:
        await ctx.step("old", calls.double, (1,))

    async def after(ctx: AttemptSteps) -> None:
        await ctx.step("new", calls.double, (1,))

    await job.run(before)
    await job.run(after)

    assert job.reports.lines == ["recorded, but not asked for: old"]


async def test_a_timeout_within_a_function_is_not_told_as_that_of_its_step(job: StepJob) -> None:
    async def slow() -> None:
        raise TimeoutError

    async def handler(ctx: AttemptSteps) -> None:
        await ctx.step("slow", slow, timeout=60_000)

    with pytest.raises(StepFailed) as found:
        await job.run(handler)
    assert found.value.kind == "TimeoutError"
    assert "its timeout of" not in found.value.reason


async def test_a_version_is_old_for_jobs_that_have_begun_with_older_code(job: StepJob, calls: Calls) -> None:
    async def handler(ctx: AttemptSteps) -> int:
        number = await ctx.version("layout", 2)
        await ctx.step("a", calls.double, (1,))
        return number

    fresh = StepJob()
    assert [await fresh.run(handler) for _ in range(2)] == [2, 2]

    async def before(ctx: AttemptSteps) -> None:
        await ctx.step("a", calls.double, (1,))

    await job.run(before)
    assert [await job.run(handler) for _ in range(2)] == [0, 0]


@pytest.mark.parametrize("ended", [False, True])
async def test_an_attempt_that_is_told_to_stop_during_an_outage_says_so(job: StepJob, ended: bool) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise EngineUnavailable("away")

    async def handler(ctx: AttemptSteps) -> str:
        job.store.receive = away  # type: ignore[method-assign]
        job.clock.later(9, lambda: job.signal.fire(StopReason.SHUTDOWN, "the worker is shutting down"))
        await ctx.wait_for({SignalWait("approval"): bool})
        return "never"

    async def has_ended(ctx: AttemptSteps) -> str:
        job.store.signals.append((SignalWait("approval"), "true"))
        await ctx.wait_for({SignalWait("approval"): bool})
        job.store.inbox = away  # type: ignore[method-assign]
        job.clock.later(9, lambda: job.signal.fire(StopReason.SHUTDOWN, "the worker is shutting down"))
        return "done"

    async with job.clock.running():
        if ended:
            assert await job.run(has_ended) == "done"
        else:
            with pytest.raises(JobCancelled, match="shutting down"):
                await job.run(handler)


async def test_a_version_is_new_in_each_branch_of_a_new_job(job: StepJob) -> None:
    async def branch(ctx: AttemptSteps, late: int) -> int:
        await ctx.sleep("nap", delay=1_000 * late)
        return await ctx.version("layout", 3)

    async def handler(ctx: AttemptSteps) -> list[int]:
        return await ctx.gather(branch(ctx, 1), branch(ctx, 2))

    assert await job.finish(handler) == [3, 3]


async def test_a_version_is_old_in_a_branch_that_has_begun_with_older_code(job: StepJob, calls: Calls) -> None:
    edited = False

    async def branch(ctx: AttemptSteps) -> int:
        number = await ctx.version("layout", 3) if edited else 0
        await ctx.step("a", calls.double, (1,))
        return number

    async def handler(ctx: AttemptSteps) -> list[int]:
        return await ctx.gather(branch(ctx))

    assert await job.run(handler) == [0]
    edited = True
    assert [await job.run(handler) for _ in range(2)] == [[0], [0]]


async def test_a_failure_of_an_earlier_attempt_does_not_make_a_version_old(job: StepJob, calls: Calls) -> None:
    job.store.put("a", StepKind.FAILED, '["ValueError","no",[]]', None)
    job.store.attempts_made = 1

    async def handler(ctx: AttemptSteps) -> int:
        number = await ctx.version("layout", 2)
        await ctx.step("a", calls.double, (1,))
        return number

    assert await job.run(handler) == 2


async def test_a_run_replays_until_something_new_happens(job: StepJob, calls: Calls) -> None:
    seen: list[bool] = []

    async def handler(ctx: AttemptSteps) -> None:
        seen.append(ctx.replaying)
        await ctx.step("a", calls.double, (1,))
        seen.append(ctx.replaying)
        await ctx.step("b", calls.double, (1,))
        seen.append(ctx.replaying)

    await job.run(handler)
    del job.store.rows["b"]
    job.store.rows["c"] = job.store.rows["a"]
    await job.run(handler)

    assert seen == [False, False, False, True, True, False]


async def test_after_its_end_an_attempt_takes_no_more_steps(job: StepJob, calls: Calls) -> None:
    async def handler(_: AttemptSteps) -> None:
        """Does nothing."""

    await job.run(handler)

    assert job.steps is not None
    with pytest.raises(LeaseLost, match="is over"):
        await job.steps.step("a", calls.double, (1,))


async def test_a_step_that_another_task_has_under_way_ends_before_the_attempt_does(job: StepJob) -> None:
    go, tasks = asyncio.Event(), list[asyncio.Task[Any]]()

    async def slow() -> int:
        await go.wait()
        return 1

    async def handler(ctx: AttemptSteps) -> str:
        tasks.append(asyncio.ensure_future(ctx.step("slow", slow)))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(go.set)
        return "returned"

    assert await job.run(handler) == "returned"
    assert list(job.store.rows) == ["slow"]
    assert await tasks[0] == 1


async def test_functions_of_all_kinds_are_steps(job: StepJob, calls: Calls) -> None:
    class Called:
        async def __call__(self, number: int) -> int:
            return number

    async def handler(ctx: AttemptSteps) -> list[Any]:
        return [
            await ctx.step("partial", functools.partial(calls.double, 2)),
            await ctx.step("object", Called(), (3,)),
            await ctx.step("lambda", lambda: calls.double(4)),
            await ctx.step("plain", len, ([1, 2],)),
        ]

    assert [await job.run(handler) for _ in range(2)] == [[4, 3, 8, 2]] * 2


async def test_many_steps_are_told_once(job: StepJob) -> None:
    async def handler(ctx: AttemptSteps) -> None:
        await ctx.gather(*(ctx.step("a", int) for _ in range(1_000)))
        await ctx.step("b", int)

    job.store.rows = {}
    await job.run(handler)

    assert [line for line in job.reports.lines if "has recorded" in line] != []
    assert len(job.reports.lines) == 1


async def test_signals_are_read_once_and_their_absence_is_recorded(job: StepJob) -> None:
    approval = SignalWait("approval")

    async def handler(ctx: AttemptSteps) -> list[Any]:
        found = [await ctx.wait_for({approval: bool}, timeout=60_000) for _ in range(2)]
        return [None if each is None else each[1] for each in found]

    assert isinstance(await job.run(handler), Rested)
    job.store.signals.append((approval, "true"))
    assert isinstance(await job.run(handler), Rested)
    assert await job.finish(handler) == [True, None]
    assert await job.run(handler) == [True, None], "also when a signal has come since"
    assert [text[0] for text in job.store.rows.values()] == [StepKind.RECEIVED.value] * 2
