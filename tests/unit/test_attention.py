"""What needs attention, and when it does."""

from typing import Any

import pytest

from toril.model import CircuitRow, CircuitState, Finding, Severity
from toril.policy.attention import (
    CircuitOpen,
    HighFailureRate,
    Importance,
    ManyDeadLetters,
    NoWorker,
    Paused,
    QueueFacts,
    Slow,
    Stalling,
    StoreUnwell,
    importance_of,
    needs,
    suspects,
    trend,
    usual_rate,
)

NOW = 1_800_000_000_000
MINUTE = 60_000


def facts(**given: Any) -> QueueFacts:
    """A queue that is well, but for what is given."""
    well: dict[str, Any] = {
        "name": "email", "waiting": 3, "running": 2, "free": 3, "workers": 1, "paused": False,
        "completed": [10] * 60, "failed": [0] * 60, "wait_p95": 0.5, "oldest": 1.0, "target": 120.0, "stalls": 0,
    }  # fmt: skip
    return QueueFacts(**well | given)


def of(queue: QueueFacts, usual: float | None = 0.0, **given: Any) -> list[Any]:
    return needs([queue], now=NOW, usual={queue.name: usual}, **given)


def test_a_queue_that_is_well_needs_nothing() -> None:
    assert of(facts()) == []


@pytest.mark.parametrize(("oldest", "there"), [(29.0, False), (30.0, True), (None, True)])
def test_jobs_may_wait_half_a_minute_for_a_worker(oldest: float | None, there: bool) -> None:
    assert bool(of(facts(workers=0, oldest=oldest))) is there


def test_a_queue_without_a_worker_is_told_with_what_waits() -> None:
    assert of(facts(workers=0, waiting=9, oldest=90.0, growth=4.0)) == [NoWorker("email", NOW - 90_000, 9, 4.0)]


@pytest.mark.parametrize("given", [{"waiting": 0, "oldest": None}, {"paused": True, "oldest": 60.0}])
def test_an_empty_or_paused_queue_needs_no_worker(given: dict[str, Any]) -> None:
    assert of(facts(workers=0, **given)) == []


@pytest.mark.parametrize(
    ("completed", "failed", "usual", "there"),
    [
        (18, 1, 0.0, False),  # too few to tell
        (9, 10, None, True),  # few, but most of them
        (0, 5, 100.0, True),
        (0, 4, None, False),  # too few for that too
        (19, 1, 0.0, False),  # 5 % is not above 5 %
        (18, 2, 0.0, True),
        (18, 2, None, True),  # no job ended before
        (18, 2, 3.3, True),
        (18, 2, 3.4, False),  # as it often is
        (10, 10, 50.0, False),
        (9, 11, 100.0, True),  # more than half is too much, however usual
    ],
)
def test_failures_count_when_they_are_many_and_unusual(
    completed: int, failed: int, usual: float | None, there: bool
) -> None:
    queue = facts(completed=[0] * 59 + [completed], failed=[0] * 59 + [failed])

    assert bool(of(queue, usual)) is there


def test_what_fails_now_does_not_make_itself_look_usual() -> None:
    new = facts(completed=[0] * 60, failed=[0] * 50 + [9] * 10)
    busy = facts(completed=[10] * 60, failed=[0] * 30 + [4] * 30)

    assert usual_rate(new, 0, 90) is None, "all that ever ended has ended in the last half hour"
    assert usual_rate(busy, 10_300, 120) == 0.0
    assert usual_rate(busy, 1_200, 220) == 10.0
    assert usual_rate(busy, 0, 0) is None, "figures of another moment may lag behind"


def test_failures_before_the_last_half_hour_do_not_count() -> None:
    assert of(facts(completed=[1] * 60, failed=[50] * 30 + [0] * 30)) == []


def test_the_age_of_failures_is_that_of_the_stretch_that_goes_on() -> None:
    failed = [0] * 40 + [9] + [0] * 9 + [5, 0, 5] + [5] * 7
    (found,) = of(facts(completed=[0] * 60, failed=failed))

    assert found == HighFailureRate("email", NOW // MINUTE * MINUTE - 9 * MINUTE, 100.0, 0.0, 54)


def test_failures_that_are_over_are_as_old_as_they_are() -> None:
    (found,) = of(facts(completed=[0] * 60, failed=[0] * 45 + [9] * 5 + [0] * 10))

    assert found.since == NOW // MINUTE * MINUTE - 14 * MINUTE


def test_only_suspects_have_their_week_looked_up() -> None:
    assert suspects([facts(), facts(name="bad", failed=[1] * 60)]) == ["bad"]


def test_a_circuit_is_told_at_once_and_only_while_it_is_open() -> None:
    open_, half = (CircuitRow(key=key, state=state, since=5, till=9)
                   for key, state in (("a", CircuitState.OPEN), ("b", CircuitState.HALF_OPEN)))  # fmt: skip

    assert needs([], now=NOW, usual={}, circuits=[open_, half]) == [CircuitOpen("a", 5, 9)]


@pytest.mark.parametrize(("p95", "oldest", "there"), [(119.0, 60.0, False), (252.0, 60.0, True), (None, 121.0, True)])
def test_jobs_wait_too_long_by_what_ended_or_by_what_waits(p95: float | None, oldest: float, there: bool) -> None:
    assert bool(of(facts(wait_p95=p95, oldest=oldest))) is there


def test_a_slow_queue_tells_whether_its_slots_are_busy() -> None:
    assert of(facts(wait_p95=252.0, oldest=180.0, free=0)) == [Slow("email", NOW - MINUTE, 252.0, 120.0, True, None)]


def test_what_waited_long_ago_is_over_when_nothing_waits() -> None:
    assert of(facts(wait_p95=500.0, waiting=0, oldest=None)) == []


@pytest.mark.parametrize(("stalls", "there"), [(1, False), (2, True)])
def test_one_stall_may_happen(stalls: int, there: bool) -> None:
    assert of(facts(stalls=stalls)) == [Stalling("email", None, 2)] * there


@pytest.mark.parametrize(("minutes", "there"), [(14, False), (15, True)])
def test_a_pause_is_told_when_it_is_long_and_jobs_wait(minutes: int, there: bool) -> None:
    since = NOW - minutes * MINUTE
    paused = facts(paused=True, paused_since=since, paused_by="jonas", oldest=5.0)

    assert of(paused) == [Paused("email", since, 3, "jonas")] * there
    assert of(facts(paused=True, paused_since=0, waiting=0)) == []


def test_a_pause_of_unknown_age_is_as_old_as_what_waits() -> None:
    assert of(facts(paused=True, oldest=1000.0)) == [Paused("email", NOW - 1_000_000, 3, None)]


def test_dead_letters_that_pile_up_are_told() -> None:
    assert of(facts(), letters=19) == []
    assert of(facts(), letters=20) == [ManyDeadLetters(None, 20)]


def test_of_a_store_notices_are_left_out() -> None:
    bad, notice = (Finding(code="x", severity=severity, summary="s", where="w", fix="f")
                   for severity in (Severity.ERROR, Severity.NOTICE))  # fmt: skip

    assert of(facts(), findings=[bad, notice]) == [StoreUnwell(None, bad)]
    assert importance_of(StoreUnwell(None, bad)) is Importance.CRITICAL


def test_the_critical_come_first_and_of_one_kind_the_oldest() -> None:
    queues = [
        facts(name="old", paused=True, oldest=9000.0), facts(name="late", workers=0, oldest=60.0),
        facts(name="later", workers=0, oldest=90.0), facts(name="stalls", stalls=4),
    ]  # fmt: skip
    found: list[Any] = needs(queues, now=NOW, usual={})

    assert [each.queue for each in found] == ["later", "late", "stalls", "old"]


@pytest.mark.parametrize(
    ("waiting", "growth", "way"), [(1000, None, 0), (1000, 20.0, 0), (1000, 21.0, 1), (1000, -21.0, -1), (3, 1.0, 0)]
)
def test_a_backlog_moves_when_it_moves_by_a_fiftieth_a_minute(waiting: int, growth: float | None, way: int) -> None:
    assert trend(waiting, growth) == way
