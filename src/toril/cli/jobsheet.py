"""One job, dead letter or schedule on a page, for people."""

import json
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
from rich.text import Text

from toril.cli.escaping import compact, plain
from toril.cli.output import console
from toril.cli.times import age, ahead, span

__all__ = ["never_started", "show_job", "show_letter", "show_run", "show_schedule"]

_LINES: Final = 20  # of the job's log
_LONG: Final = 60_000  # characters of a payload


def never_started(found: dict[str, Any]) -> bool:
    """Whether a job, a dead letter or a run ended before its first attempt, as a parent does whose child has failed.
    On the wire that counts as one."""
    return found["started_at"] is None and (found.get("finished_at") or found.get("failed_at")) is not None


def show_job(job: dict[str, Any]) -> None:
    """All that is known of it, the errors of its attempts, the log's last lines, and the last traceback."""
    _facts(
        {
            "job": f"{job['id']}  {job['name']}  in {job['queue']}",
            "state": (job["ending"] or job["state"])
            + (f", {ahead(job['due_at'])}" if job["state"] == "delayed" else ""),
            "dead letter": job["dead_letter"],
            "attempts": _attempts(job, f"{job['attempts_made']} of {job['max_attempts']}"),
            "priority": job["priority"] or None,
            "progress": job["progress"],
            "told to stop": job["cancelling"],
            "unreadable": job["unreadable"],
            "error": job["error"] and f"{job['error_kind']}: {job['error']}",
            "worker": job["worker"],
            **_times(job),
            **_family(job),
            "metadata": job["metadata"] or None,
            "result": job["result"],
        }
    )
    _belongings(job)


def _belongings(found: dict[str, Any]) -> None:
    """What a job and a dead letter have alike."""
    _section("data", json.dumps(found["data"], indent=2, ensure_ascii=False)[:_LONG].split("\n"))
    _section("attempts", [] if never_started(found) else list(map(_attempt, found["errors"])))
    logs = found["logs"]
    _section("log" + (f" (the last {_LINES} of {len(logs)} lines)" if len(logs) > _LINES else ""), logs[-_LINES:])
    _section("traceback", found["traceback"].rstrip().split("\n") if found["traceback"] else [])


def _attempt(error: dict[str, Any]) -> str:
    """An attempt that failed, on a line."""
    when = "" if error["at"] is None else f"  {_moment(error['at'])}"
    kind = f"{error['error_kind']}: " if error["error_kind"] else ""
    return f"{error['attempt']}{when}  {kind}{compact(error['error'])}"


def _family(found: dict[str, Any]) -> dict[str, str]:
    """Who waits for it, and for whom it has waited."""
    facts = {}
    if found["parent"] is not None:
        facts["parent"] = f"{found['parent']['id']} in {found['parent']['queue']}"
    children = found["children"]
    counts = [f"{children[state]} {state}" for state in ("open", "completed", "ignored", "failed") if children[state]]
    if counts:
        named = [f"{each['id']} in {each['queue']} ({each['state']})" for each in children["not_completed"]]
        facts["children"] = ", ".join(counts) + (f": {', '.join(named)}" if named else "")
    return facts


def show_letter(letter: dict[str, Any]) -> None:
    """A job that failed for good, the errors of its attempts, its log, and the last traceback."""
    _facts(
        {
            "letter": f"{letter['id']}  {letter['name']}",
            "cause": letter["cause"] + (f": {letter['stall_cause']}" if letter["stall_cause"] else ""),
            "attempts": _attempts(letter, f"{letter['attempts_made']} of {letter['max_attempts']}"),
            "error": f"{letter['error_kind']}: {letter['error']}" if letter["error_kind"] else letter["error"],
            "worker": letter["worker"],
            **_times({**letter, "finished_at": letter["failed_at"]}),
            "progress": letter["progress"],
            **_family(letter),
            "metadata": letter["metadata"] or None,
        }
    )
    _belongings(letter)


def show_run(run: dict[str, Any]) -> None:
    """What is remembered of a job that is gone."""
    took = None if run["started_at"] is None else span(run["finished_at"] - run["started_at"])
    _facts(
        {
            "job": f"{run['id']}  {run['name']}  of {run['queue']} (ended and not kept; this is its run record)",
            "ended": run["cause"],
            "attempts": _attempts(run, f"{run['attempts_made']}"),
            "took": took,
            "worker": run["worker"],
            **_times(run),
            "result" if run["ending"] == "completed" else "error": run["text"] + ("" if run["whole"] else " …"),
        }
    )


def show_schedule(found: dict[str, Any], when: str) -> None:
    """A schedule, and its next runs in its own time zone."""
    zone = _zone(found["tz"])
    times = {
        name: None if found[key] is None else f"{_clock(found[key], zone)} ({said(found[key])})"
        for name, key, said in (
            ("next run", "next_at", ahead),
            ("starts", "start_at", ahead),
            ("ends", "end_at", ahead),
        )
    }
    _facts(
        {
            "schedule": f"{found['schedule']}  {found['job']}  in {found['queue']}",
            "state": found["state"],
            "when": when,
            **times,
            "jitter": span(found["jitter_ms"]) if found["jitter_ms"] else None,
            "overlap": found["overlap"],
            "catch up": found["catch_up"],
            "runs": f"{found['runs']}" + (f" of {found['limit']}" if found["limit"] else ""),
            "app": found["owner"] or "none: it was made at run time",
        }
    )
    _section("data", json.dumps(found["data"], indent=2, ensure_ascii=False)[:_LONG].split("\n"))
    _section("next runs", [_clock(moment, zone) for moment in found["upcoming"]] or ["none"])


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def _clock(moment: int, zone: ZoneInfo) -> str:
    return datetime.fromtimestamp(moment / 1000, zone).isoformat(sep=" ", timespec="seconds")


def _facts(facts: dict[str, Any]) -> None:
    out = console()
    wide = max(map(len, facts))
    for name, value in facts.items():
        if value is not None and value != "":
            out.print(Text.assemble((name.ljust(wide), "bold"), f"  {compact(value, _LONG)}"), soft_wrap=True)


def _section(title: str, lines: list[str]) -> None:
    if lines:
        console().print(Text(f"\n{title}", "bold"))
        for line in lines:
            click.echo("  " + plain(line))


def _attempts(found: dict[str, Any], made: str) -> str:
    return "none, it never started" if never_started(found) else made + _stalls(found)


def _stalls(found: dict[str, Any]) -> str:
    return f", and {found['stalls']} times its worker was lost" if found["stalls"] else ""


def _times(found: dict[str, Any]) -> dict[str, str]:
    return {
        name: _moment(found[key])
        for name, key in (("added", "added_at"), ("started", "started_at"), ("finished", "finished_at"))
        if found[key] is not None
    }


def _moment(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC ({age(ms)})"
