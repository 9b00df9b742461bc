"""The values check themselves: whoever holds one holds a valid one. Rows B42 to B58, as far as engines see them."""

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mypy import api

from toril.errors import InvalidName, InvalidOption, NotSerializable
from toril.model import (
    Backoff,
    Cancelled,
    Checkpoint,
    Claim,
    Completed,
    DataUpdate,
    Failure,
    Heartbeat,
    JobOptions,
    Keep,
    Lease,
    LogLine,
    NewJob,
    NewJobs,
    Progress,
    RateLimit,
    Retried,
    SetConcurrency,
    SetData,
    SetDelay,
    SetMaxWaiting,
    SetPriority,
    Snoozed,
    age_ms,
    per_ms,
    storable,
)

Make = Callable[..., Any]

NAN, INFINITY = float("nan"), float("inf")
TEN_YEARS = 10 * 366 * 86_400_000
WEEK = 7 * 86_400_000
NOT_WHOLE: list[object] = [1.5, NAN, INFINITY, "5", True, b"5", [5], timedelta(seconds=5), 10**5000]
LEASE = Lease("q", "1", "token")


def claim(want: int = 1, lease: int = 30_000, worker: str = "w", **more: Any) -> Claim:
    return Claim(**{"want": want, "token": "t", "lease": lease, "worker": worker, **more})


def new_job(name: str = "n", **own: Any) -> NewJob:
    return NewJob(name=name, **own)


def backoff(kind: Any = "fixed", delay: int = 1000, **more: Any) -> Backoff:
    return Backoff(kind=kind, delay=delay, **more)


def retried(**options: Any) -> Retried:
    return Retried(Failure("why"), **options)


def set_delay(**options: Any) -> SetDelay:
    return SetDelay("1", **options)


def set_priority(**options: Any) -> SetPriority:
    return SetPriority("1", **options)


def beat(worker: str) -> Heartbeat:
    return Heartbeat(worker=worker, queues=["q"], slots=1, running=0)


# row, how it is made, its field, the least and the most
NUMBERS: list[tuple[str, Make, str, int, int]] = [
    ("B42", new_job, "delay", 0, TEN_YEARS),
    ("B42", set_delay, "delay", 0, TEN_YEARS),
    ("B42", Snoozed, "delay", 0, TEN_YEARS),
    ("B42", retried, "delay", 0, TEN_YEARS),
    ("B43", new_job, "due", 0, 2**42),
    ("B44", new_job, "attempts", 1, 10_000),
    ("B45", backoff, "delay", 0, TEN_YEARS),
    ("B45", backoff, "cap", 0, TEN_YEARS),
    ("B46", new_job, "priority", 0, 2_097_151),
    ("B46", set_priority, "priority", 0, 2_097_151),
    ("B47", JobOptions, "timeout", 1, WEEK),
    ("B47", new_job, "expires", 1, TEN_YEARS),
    ("B48", Keep, "count", 0, 2**53),
    ("B48", JobOptions, "result_ttl", 1, TEN_YEARS),
    ("B48", JobOptions, "keep_logs", 0, 1_000_000),
    ("B56", SetConcurrency, "limit", 1, 1_000_000),
    ("B56", SetMaxWaiting, "limit", 1, 2**53),
    ("B56", claim, "want", 0, 100),
    ("B57", claim, "lease", 1, TEN_YEARS),
    ("B58", claim, "max_stalls", 0, 2**31),
    ("B58", RateLimit, "max", 1, 2**31),
]
EACH_NUMBER = pytest.mark.parametrize(
    ("make", "field", "low", "high"),
    [pytest.param(make, *rest, id=f"{row}-{make.__name__}.{rest[0]}") for row, make, *rest in NUMBERS],
)


@pytest.mark.covers("B42", "B43", "B44", "B45", "B46", "B47", "B48", "B56", "B57", "B58")
@EACH_NUMBER
def test_a_number_out_of_range_is_refused_with_the_range(make: Make, field: str, low: int, high: int) -> None:
    for value in (low - 1, high + 1, -(10**30), 10**30):
        with pytest.raises(InvalidOption, match=f"must be a whole number from {low} to {high}, not {value}([.]|$)"):
            make(**{field: value})


@pytest.mark.covers("B42", "B44", "B46", "B56")
@EACH_NUMBER
def test_what_is_no_whole_number_is_refused(make: Make, field: str, low: int, high: int) -> None:
    for value in NOT_WHOLE:
        with pytest.raises(InvalidOption, match=f"must be a whole number from {low} to {high}, not "):
            make(**{field: value})


@EACH_NUMBER
def test_both_ends_of_a_range_are_accepted(make: Make, field: str, low: int, high: int) -> None:
    assert getattr(make(**{field: low}), field) == low
    assert getattr(make(**{field: high}), field) == high


@pytest.mark.covers("B50")
def test_a_delay_and_a_due_time_exclude_each_other() -> None:
    with pytest.raises(InvalidOption, match="give delay or due, not both"):
        new_job(delay=1, due=1_800_000_000_000)


@pytest.mark.covers("B45")
@pytest.mark.parametrize(("wrong", "rule"), [
    ({"kind": "linear"}, "must be 'fixed' or 'exponential', not 'linear'"),
    ({"kind": None}, "must be 'fixed' or 'exponential', not None"),
    ({"jitter": 2}, "jitter must be from 0 to 1, not 2"),
    ({"jitter": -0.1}, "jitter must be from 0 to 1, not -0.1"),
    ({"jitter": NAN}, "jitter must be from 0 to 1, not nan"),
    ({"jitter": True}, "jitter must be from 0 to 1, not True"),
    ({"jitter": "1"}, "jitter must be from 0 to 1, not '1'"),
], ids=str)  # fmt: skip
def test_a_backoff_that_makes_no_sense_is_refused(wrong: dict[str, Any], rule: str) -> None:
    with pytest.raises(InvalidOption, match=rule):
        backoff(**wrong)


@pytest.mark.covers("B45")
@pytest.mark.parametrize("wrong", ["fixed", 5, {"kind": "fixed"}], ids=str)
def test_a_jobs_backoff_is_a_backoff(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="a job's backoff must be a Backoff"):
        JobOptions(backoff=wrong)


@pytest.mark.parametrize("jitter", [0, 0.5, 1])
def test_jitter_may_be_none_or_all_of_the_delay(jitter: float) -> None:
    assert backoff(kind="exponential", jitter=jitter).jitter == jitter


@pytest.mark.covers("B48")
@pytest.mark.parametrize("age", [-1, "x", NAN, INFINITY, True, TEN_YEARS, b"1", 10**400], ids=lambda age: str(age)[:9])
def test_an_age_to_keep_is_seconds_up_to_ten_years(age: Any) -> None:
    with pytest.raises((InvalidOption, TypeError), match="an age to keep must be "):
        Keep(age=age)


@pytest.mark.parametrize(("age", "ms"), [(None, None), (0, 0), (0.5, 500), (TEN_YEARS / 1000, TEN_YEARS)])
def test_an_age_to_keep_may_be_a_fraction_of_a_second(age: float | None, ms: int | None) -> None:
    assert age_ms(Keep(age=age)) == ms


@pytest.mark.covers("B58")
@pytest.mark.parametrize("per", [0, -1, NAN, INFINITY, "1", True, 0.0001, 31 * 86_400 + 1])
def test_a_rate_has_a_window_of_a_millisecond_to_31_days(per: Any) -> None:
    with pytest.raises((InvalidOption, TypeError), match="a rate limit's per must be "):
        RateLimit(1, per=per)


@pytest.mark.covers("B58")
def test_a_rates_window_slides_or_is_fixed() -> None:
    with pytest.raises(InvalidOption, match="window must be 'sliding' or 'fixed', not 'rolling'"):
        RateLimit(1, window="rolling")  # type: ignore[arg-type]
    assert (per_ms(RateLimit(1, 0.001)), per_ms(RateLimit(1, 31 * 86_400, "fixed"))) == (1, 31 * 86_400_000)


@pytest.mark.covers("B68")
@pytest.mark.parametrize("token", ["", "0", None])
def test_a_claim_needs_a_token_of_its_own(token: Any) -> None:
    with pytest.raises(InvalidOption, match="each claim needs a token of its own, not "):
        claim(token=token)


@pytest.mark.covers("B18")
@pytest.mark.parametrize("worker", ["", "a\nb", "a b", "w" * 129, None, "\ud800"], ids=ascii)
@pytest.mark.parametrize("make", [claim, beat])
def test_a_worker_is_named_by_one_printable_word(make: Make, worker: object) -> None:
    with pytest.raises(InvalidName, match="a worker's name must"):
        make(worker=worker)


@pytest.mark.covers("R168")
@pytest.mark.parametrize("worker", ["worker-host-17", "w:1:2", "wörker=7"])
@pytest.mark.parametrize("make", [claim, beat])
def test_a_workers_name_may_have_any_separator(make: Make, worker: str) -> None:
    assert make(worker=worker).worker == worker


@pytest.mark.covers("B11", "B12", "B15")
@pytest.mark.parametrize("wrong", [{"name": ""}, {"name": "a\nb"}, {"id": "12"}, {"id": "wait"}, {"id": ""}], ids=str)
def test_a_new_job_has_a_good_name_and_id(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidName):
        new_job(**wrong)


@pytest.mark.covers("B22")
@pytest.mark.parametrize("text", ["\ud800", None, b"{}", {}], ids=ascii)
@pytest.mark.parametrize("make", [
    lambda text: new_job(data=text), lambda text: SetData("1", text), lambda text: DataUpdate(LEASE, text), Completed,
    lambda text: Progress(LEASE, text), lambda text: Checkpoint(LEASE, text),
])  # fmt: skip
def test_payloads_are_text_that_utf_8_can_carry(make: Make, text: object) -> None:
    with pytest.raises(NotSerializable, match=r"must be JSON text, not |has a lone surrogate at character 0"):
        make(text)


TEXTS: list[tuple[Callable[[str], str], int]] = [
    (lambda text: Failure(text).reason, 64 * 1024),
    (lambda text: Failure("", kind=text).kind, 64 * 1024),
    (lambda text: Failure("", traceback=text).traceback, 64 * 1024),
    (lambda text: Cancelled(text).reason, 64 * 1024),
    (lambda text: LogLine(LEASE, text).line, 16 * 1024),
]
EACH_TEXT = pytest.mark.parametrize(
    ("kept", "limit"), TEXTS, ids=["reason", "kind", "traceback", "cancelled", "log line"]
)


@EACH_TEXT
def test_texts_about_a_job_are_made_fit_for_any_store(kept: Callable[[str], str], limit: int) -> None:
    assert kept("what went wrong: ü😀") == "what went wrong: ü😀"
    assert kept("a\ud800b") == "a?b"
    assert kept("x" * limit) == "x" * limit
    assert kept("x" * (limit + 1)) == "x" * (limit - 3) + "…"
    assert kept("ü" * limit) == "ü" * (limit // 2 - 2) + "…"


@settings(deadline=None)
@given(st.text(alphabet=st.characters(), max_size=300), st.integers(3, 200))
def test_a_storable_text_is_within_its_bytes(text: str, limit: int) -> None:
    kept = storable(text, limit)

    assert len(kept.encode()) <= limit
    assert storable(kept, limit) == kept


@pytest.mark.parametrize("value", [Keep(1), RateLimit(1), backoff(), Failure("x"), Snoozed(1), SetDelay("1", 0)])
def test_values_cannot_be_changed(value: Any) -> None:
    field = dataclasses.fields(value)[0].name

    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, None)


def test_equal_values_are_one_in_a_set() -> None:
    assert len({Lease("q", "1", "t"), Lease("q", "1", "t"), Lease("q", "2", "t")}) == 2
    assert len({new_job(id="a"), new_job(id="a")}) == 1


SNIPPET = """
from toril.model import Added, AddOutcome, Claimed, Completed, Lease, NewJob, Settlement
from toril.model.states import State

def change(job: NewJob, added: Added, lease: Lease, claimed: Claimed, done: Completed, settled: Settlement) -> None:
    job.name = "other"
    added.id = "other"
    lease.token = "other"
    claimed.data = "other"
    done.result = "other"
    settled.lease = lease

Added("1", AddOutcome.ADDED, State.WAITING)
NewJob(name="n")
NewJob("n")
"""


def test_the_type_checker_reports_a_change_of_a_hot_value(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    root = Path(__file__).parents[2]

    output, errors, _ = api.run(
        ["--config-file", str(root / "pyproject.toml"), "--cache-dir", str(root / ".mypy_cache"), str(snippet)]
    )

    assert errors == ""
    wanted = [line for line, text in enumerate(SNIPPET.splitlines(), 1) if " = " in text or text == 'NewJob("n")']
    assert [int(line.split(":")[1]) for line in output.splitlines() if ": error: " in line] == wanted
    assert output.count("read-only") == 6


def test_new_jobs_by_runs_are_a_sequence_of_jobs() -> None:
    first, second = new_job("a", data="1", attempts=3), new_job("b", data="4")
    jobs = NewJobs([(first, ["1", "2", "3"]), (second, ["4"])])

    assert list(jobs) == [new_job("a", data=text, attempts=3) for text in "123"] + [second]
    assert (len(jobs), jobs[1], jobs[-1]) == (4, new_job("a", data="2", attempts=3), second)
    assert jobs[2:] == [new_job("a", data="3", attempts=3), second]
    assert list(jobs.names()) == ["a", "a", "a", "b"]
    assert not NewJobs([])
