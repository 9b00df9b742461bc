"""What ended in a queue by job name, made of run records."""

from typing import Any

from toril.model import Cause, RunRow, RunStatus
from toril.policy.job_names import by_name
from toril.policy.retention import RUNS

NOW = 1_800_000_000_000


def run(name: str, ago: int, took: int | None = 100, cause: Cause = Cause.COMPLETED, **more: Any) -> RunRow:
    ending = {Cause.COMPLETED: RunStatus.COMPLETED, Cause.CANCELLED: RunStatus.CANCELLED}.get(cause, RunStatus.FAILED)
    finished = NOW - ago
    plain: dict[str, Any] = {
        "id": "1", "name": name, "ending": ending, "cause": cause, "added_at": finished - 5_000,
        "started_at": None if took is None else finished - took, "finished_at": finished, "attempts_made": 1,
        "stalls": 0, "worker": "w", "text": "", "whole": True,
    }  # fmt: skip
    return RunRow(**plain | more)


def test_names_come_with_how_many_failed_and_how_long_they_ran() -> None:
    completed = [run("send", n * 1_000, took=n + 1) for n in range(100)] + [run("digest", 120_000, took=9_000)]
    failed = [
        run("digest", 1_000, took=50, cause=Cause.FAILED), run("digest", 2_000, took=60, cause=Cause.STALLED),
        run("send", 4_000, took=None, cause=Cause.EXPIRED),
    ]  # fmt: skip
    cancelled = [run("send", 3_000, took=None, cause=Cause.CANCELLED)]
    found = by_name([completed, failed, cancelled], NOW)
    digest, send = found.names

    assert found.since == NOW - 120_000
    assert (digest.name, digest.completed, digest.failed, digest.cancelled) == ("digest", 1, 2, 0)
    assert (send.name, send.completed, send.failed, send.cancelled) == ("send", 100, 1, 1)
    assert (round(digest.failure_rate, 1), round(send.failure_rate, 1)) == (66.7, 1.0)
    assert (send.p50, send.p95, digest.p50, digest.p95) == (50, 95, 60, 9_000)
    assert (send.rate, digest.rate, digest.last_at) == (51.0, 1.5, NOW - 1_000)


def test_what_is_told_reaches_as_far_as_all_records_do() -> None:
    many = [run("fast", n * 10) for n in range(RUNS)]  # the last ten seconds, and no more is known of what completed
    old = [run("slow", ago, cause=Cause.FAILED) for ago in (5_000, 60_000, 3_600_000)]
    found = by_name([many, old], NOW)

    assert found.since == NOW - (RUNS - 1) * 10
    assert [(each.name, each.ended, round(each.rate)) for each in found.names] == [("slow", 1, 6), ("fast", RUNS, 6006)]


def test_nothing_is_told_of_what_ended_long_ago() -> None:
    assert by_name([[run("old", 90_000_000)]], NOW).names == ()
    assert by_name([], NOW).names == ()
    assert by_name([[run("new", 5)]], NOW).since == NOW - 60_000
