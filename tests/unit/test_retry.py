"""When a job is tried again, and whether: pure decisions, with the statistics that they promise."""

import asyncio
import random
from datetime import timedelta
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toril import (
    Exponential,
    Fixed,
    InvalidOption,
    InvalidPayload,
    PermanentError,
    Retry,
    Strategy,
    TransientError,
    Undecodable,
)
from toril.errors import Resting, StepFailed
from toril.model import (
    Backoff,
    Claimed,
    Failed,
    Failure,
    JobOptions,
    Lease,
    Outcome,
    Rest,
    Rested,
    Retried,
    StepKind,
)
from toril.policy.retry import (
    ErrorTable,
    Nature,
    Waiting,
    delay_before_retry,
    judge,
    lineage,
    nature_of,
    respect_retry_after,
    unwrapped,
)


def delays(backoff: Waiting, attempts: int) -> list[float]:
    """The seconds between the attempts of a job that always fails."""
    wire = backoff.wire()
    return [delay_before_retry(wire, failures=n, previous=0, chance=0.5) / 1000 for n in range(1, attempts)]


def claimed(*, attempts: int = 5, made: int = 0, delay: int = 0, backoff: Backoff | None = None) -> Claimed:
    wire = Exponential(1).wire() if backoff is None else backoff
    options = JobOptions(backoff=wire)
    return Claimed(Lease("q", "1", "t"), "n", "{}", 1, 1, attempts, made, 0, 0, delay, 0, None, None, options)


def judged(error: BaseException, job: Claimed | None = None, table: ErrorTable = ErrorTable()) -> Outcome:
    return judge(error, Failure(str(error)), job or claimed(), chance=0.0, table=table)


@pytest.mark.covers("R045", "Q1")
def test_five_attempts_from_one_second_wait_fifteen_seconds_in_all() -> None:
    assert delays(Exponential(1), 5) == [1, 2, 4, 8]


@pytest.mark.covers("R046")
@given(st.integers(1, 10), st.integers(1, 10_000))
def test_each_delay_is_the_base_doubled_for_every_failure_before(n: int, base: int) -> None:
    wire = Exponential(base / 1000).wire()

    assert delay_before_retry(wire, failures=n, previous=0, chance=0.9) == base * 2 ** (n - 1)


@pytest.mark.covers("R055", "R056", "R057", "R058", "R059", "R051")
@pytest.mark.parametrize(("retry", "waits"), [
    (Retry(3, Exponential(5)), [5, 10]),  # email
    (Retry(3, Exponential(60)), [60, 120]),  # refreshing tokens
    (Retry(3, Exponential(2)), [2, 4]),  # embeddings
    (Retry(3, Exponential(30)), [30, 60]),  # polling
    (Retry(3, Fixed(30)), [30, 30]),
    (Retry(1), []),  # diagnostics
    (Retry(5, Exponential(2)), [2, 4, 8, 16]),
    (Retry(), [1, 2, 4, 8]),
])  # fmt: skip
def test_usual_policies_wait_as_they_say(retry: Retry, waits: list[float]) -> None:
    assert delays(retry.backoff, retry.attempts) == waits


@pytest.mark.covers("R047")
def test_a_cap_bounds_every_delay_and_comes_with_jitter() -> None:
    assert delays(Exponential(1, cap=30), 21)[-1] == 30
    assert Exponential(1, jitter="full").wire().cap == 30_000
    assert Exponential(60).wire().cap is None


@pytest.mark.covers("R048")
def test_full_jitter_is_uniform_from_nothing_to_the_delay() -> None:
    wire, chance = Exponential(1, jitter="full").wire(), random.Random(7)

    samples = [delay_before_retry(wire, failures=20, previous=0, chance=chance.random()) for _ in range(100_000)]

    assert min(samples) >= 0
    assert max(samples) <= 30_000
    assert mean(samples) == pytest.approx(15_000, rel=0.01)
    tenths = [sum(low <= each < low + 3_000 for each in samples) for low in range(0, 30_000, 3_000)]
    assert all(count == pytest.approx(10_000, rel=0.05) for count in tenths)


@pytest.mark.covers("R049")
def test_decorrelated_jitter_grows_from_the_delay_really_taken() -> None:
    wire, chance = Exponential(1, jitter="decorrelated").wire(), random.Random(7)
    previous = 0
    for n in range(1, 10_000):
        taken = delay_before_retry(wire, failures=n, previous=previous, chance=chance.random())
        assert 1_000 <= taken <= min(30_000, 3 * max(previous, 1_000))
        previous = taken

    assert delay_before_retry(wire, failures=2, previous=7_000, chance=0.999999) == pytest.approx(21_000, abs=1)
    assert delay_before_retry(wire, failures=1, previous=60_000, chance=0.999999) == pytest.approx(3_000, abs=1), (
        "what it waited for before its first attempt is no retry's delay"
    )


@pytest.mark.covers("R049", "R065")
def test_the_delay_really_taken_is_what_the_job_carries() -> None:
    wire = Exponential(1, jitter="decorrelated", cap=100).wire()
    job = claimed(made=1, delay=20_000, backoff=wire)

    outcome = judge(ValueError("x"), Failure("x"), job, chance=0.999999)

    assert isinstance(outcome, Retried)
    assert outcome.delay == pytest.approx(60_000, abs=1)


@pytest.mark.covers("R050", "F119")
def test_a_thousand_jobs_that_fail_at_once_come_back_apart() -> None:
    wire, chance = Exponential(4, jitter="full").wire(), random.Random(7)

    buckets: dict[int, int] = {}
    for _ in range(1_000):
        due = delay_before_retry(wire, failures=1, previous=0, chance=chance.random())
        buckets[due // 100] = buckets.get(due // 100, 0) + 1

    assert max(buckets.values()) <= 50


@pytest.mark.covers("R053")
def test_a_strategy_that_respects_retry_after_else_doubles() -> None:
    assert respect_retry_after(1, TransientError(retry_after=7), None) == 7
    assert respect_retry_after(1, TransientError(retry_after=timedelta(seconds=9)), None) == timedelta(seconds=9)
    assert [respect_retry_after(n, ValueError(), None) for n in range(1, 6)] == [4, 8, 16, 30, 30]


def test_a_strategy_travels_by_its_name_beside_what_others_understand() -> None:
    wire = Strategy("mine", Exponential(2, cap=9)).wire()

    assert (wire.kind, wire.delay, wire.cap, wire.strategy) == ("exponential", 2_000, 9_000, "mine")


@pytest.mark.covers("R070")
@pytest.mark.parametrize("error", [ConnectionRefusedError(), TimeoutError(), BrokenPipeError(), TransientError("x")])
def test_lost_connections_and_timeouts_are_transient(error: BaseException) -> None:
    assert nature_of(error) is Nature.TRANSIENT


@pytest.mark.covers("R071")
def test_invalid_data_is_permanent() -> None:
    from pydantic import BaseModel, ValidationError

    class Model(BaseModel):
        number: int

    with pytest.raises(ValidationError) as found:
        Model(number="x")  # type: ignore[arg-type]
    for error in (found.value, InvalidPayload("x"), Undecodable("x"), PermanentError("x")):
        assert nature_of(error) is Nature.PERMANENT
        assert isinstance(judged(error), Failed)


def test_what_is_not_known_is_tried_again_and_counts_against_nobody() -> None:
    assert nature_of(ValueError()) is Nature.UNKNOWN
    assert isinstance(judged(ValueError()), Retried)


@pytest.mark.covers("R071")
def test_a_table_gives_up_on_what_it_names_and_on_what_derives_from_it() -> None:
    table = Retry(give_up_on=LookupError).table

    assert isinstance(judged(KeyError(), table=table), Failed)
    assert isinstance(judged(ValueError(), table=table), Retried)


@pytest.mark.covers("R071")
def test_with_a_list_of_what_to_retry_all_else_is_given_up() -> None:
    table = Retry(on=(OSError, "some.library.Error")).table

    assert isinstance(judged(ConnectionError(), table=table), Retried)
    assert isinstance(judged(TransientError(), table=table), Retried), "the handler says so itself"
    assert isinstance(judged(ValueError(), table=table), Failed)


def test_the_class_nearer_to_the_error_decides() -> None:
    table = Retry(on=LookupError, give_up_on=(KeyError, Exception)).table

    assert isinstance(judged(KeyError(), table=table), Failed)
    assert isinstance(judged(IndexError(), table=table), Retried)
    assert isinstance(judged(ValueError(), table=table), Failed)


def test_what_an_error_says_itself_goes_before_any_table() -> None:
    assert isinstance(judged(PermanentError(), table=Retry(on=Exception).table), Failed)
    assert isinstance(judged(TransientError(), table=Retry(give_up_on=Exception).table), Retried)


def test_a_jobs_own_word_goes_before_its_queues() -> None:
    job = claimed(backoff=Retry(on=KeyError).wire())

    assert isinstance(judged(KeyError(), job, Retry(give_up_on=KeyError).table), Retried)


@pytest.mark.parametrize("given", [3, "ValueError", int, (None,), [ValueError, 3]])
def test_a_table_of_what_are_no_errors_is_refused(given: object) -> None:
    with pytest.raises(InvalidOption, match="exception classes"):
        Retry(on=given)  # type: ignore[arg-type]


def test_an_error_is_known_by_the_names_of_its_classes() -> None:
    assert lineage(KeyError())[:2] == ("builtins.KeyError", "builtins.LookupError")


@pytest.mark.covers("R073")
def test_the_last_attempt_is_the_last() -> None:
    made = [judged(ValueError(), claimed(attempts=10, made=n)) for n in range(10)]

    assert [type(outcome) for outcome in made] == [Retried] * 9 + [Failed]


@pytest.mark.covers("R065")
def test_an_errors_own_wish_is_a_lower_bound() -> None:
    assert judged(TransientError(retry_after=9)) == Retried(Failure(""), 9_000)
    assert judged(TransientError(retry_after=0.5)) == Retried(Failure(""), 1_000)


def failed_step(cause: BaseException | None, lineage: tuple[str, ...] = ()) -> StepFailed:
    error = StepFailed("charge", "Whatever", "it broke", lineage)
    error.__cause__ = cause
    return error


def test_a_failed_step_is_judged_by_its_cause() -> None:
    assert isinstance(judged(failed_step(PermanentError())), Failed)
    late = judged(failed_step(TransientError(retry_after=9)))
    assert isinstance(late, Retried)
    assert late.delay == 9_000
    assert isinstance(judged(failed_step(KeyError()), table=Retry(give_up_on=KeyError).table), Failed)
    assert nature_of(failed_step(ConnectionError())) is Nature.TRANSIENT


def test_a_failed_step_of_an_earlier_run_is_judged_by_the_names_of_its_cause() -> None:
    assert isinstance(judged(failed_step(None, lineage(PermanentError()))), Failed)
    assert isinstance(judged(failed_step(None, lineage(KeyError())), table=Retry(give_up_on=KeyError).table), Failed)
    assert nature_of(failed_step(None, lineage(TransientError()))) is Nature.TRANSIENT
    assert nature_of(failed_step(None, lineage(ConnectionError()))) is Nature.TRANSIENT
    assert nature_of(failed_step(None)) is Nature.UNKNOWN


def rest(key: str) -> Rest:
    return Rest(key=key, kind=StepKind.SLEEP, delay=1)


def test_tasks_of_a_handler_that_rest_make_one_rest_of_it() -> None:
    first, second = Resting(Rested(rests=(rest("a"), rest("b")))), Resting(Rested(rests=(rest("b"), rest("c"))))
    inner = BaseExceptionGroup("inner", [second, asyncio.CancelledError()])

    outcome = judged(unwrapped(BaseExceptionGroup("outer", [first, inner])))

    assert outcome == Rested(rests=(rest("a"), rest("b"), rest("c")))


def test_a_real_error_beside_a_rest_is_what_counts() -> None:
    resting, real = Resting(Rested(rests=(rest("a"),))), PermanentError("no")

    assert unwrapped(BaseExceptionGroup("g", [resting, BaseExceptionGroup("i", [real])])) is real
    two = unwrapped(BaseExceptionGroup("g", [resting, real, KeyError()]))
    assert isinstance(two, BaseExceptionGroup)
    assert len(two.exceptions) == 2


def test_other_groups_stay_as_they_are() -> None:
    for error in (ExceptionGroup("g", [KeyError()]), BaseExceptionGroup("g", [asyncio.CancelledError()]), KeyError()):
        assert unwrapped(error) is error
