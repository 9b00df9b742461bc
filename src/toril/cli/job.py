"""`toril job`: show one job, or change it."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
from rich.text import Text

from toril import App, Explanation, Job, NotFound
from toril.cli.arguments import agreed, json_given, one, yes_option
from toril.cli.completion import queue_words
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import compact, plain
from toril.cli.exit import CommandFailed, say
from toril.cli.signals import check_sent, sent_text, signal_options
from toril.cli.store_option import StoreOption, declared, on_store, secrets_option, store_options
from toril.cli.terminal import Column, Lines, age, ahead, console, json_option, span
from toril.cli.terminal import show as show_lines
from toril.client.options import as_workers_declare
from toril.model import Kept, RunStatus
from toril.operate.documents import of_children, of_errors, of_explanation, of_job, of_run, of_steps
from toril.operate.lookup import find_job
from toril.operate.search import JobSearch
from toril.operate.steps import step_rows
from toril.operate.why import send_command
from toril.records import JobStack
from toril.runtime.clock import SYSTEM
from toril.signals import Signalled

__all__ = ["details", "found_job", "job", "never_started", "show_job", "show_letter", "show_run", "show_schedule"]

_LINES: Final = 20  # of the job's log
_LONG: Final = 60_000  # characters of a payload


def never_started(found: dict[str, Any]) -> bool:
    """Whether a job, a dead letter or a run ended before its first attempt, as a parent does if its child has failed.
    In BullMQ's layout this counts as one attempt."""
    return found["started_at"] is None and (found.get("finished_at") or found.get("failed_at")) is not None


def show_job(job: dict[str, Any]) -> None:
    """Print what is known of a job: the errors of its attempts, the last lines of its log, and the last traceback."""
    _facts(
        {
            "job": f"{job['id']}  {job['name']}  in {job['queue']}",
            "state": (job["ending"] or job["state"])
            + (f", {ahead(job['due_at'])}" if job["state"] == "delayed" and job["rest"] is None else ""),
            "resting": _rest(job["rest"]),
            "dead letter": job["dead_letter"],
            "attempts": _attempts(job, f"{job['attempts_made']} of {job['max_attempts']}"),
            "priority": job["priority"] or None,
            "progress": job["progress"],
            "asked to stop": job["cancelling"],
            "unreadable": job["unreadable"],
            "error": job["error"] and f"{job['error_kind']}: {job['error']}",
            "worker": job["worker"],
            **_times(job),
            **_family(job),
            "metadata": job["metadata"] or None,
            "result": job["result"],
        }
    )
    _print_details(job)


def _rest(rest: dict[str, Any] | None) -> str | None:
    """The steps that a job rests for; `toril job why` says it in a sentence."""
    if rest is None:
        return None
    steps = ", ".join(f"{each['key']} ({each['kind']})" for each in rest["for"]) or "its children"
    return f"for {steps}, since {_moment(rest['since'])}"


def _print_details(found: dict[str, Any]) -> None:
    """Print what jobs and dead letters have in common."""
    _section("data", json.dumps(found["data"], indent=2, ensure_ascii=False)[:_LONG].split("\n"))
    _section("attempts", [] if never_started(found) else list(map(_attempt, found["errors"])))
    logs = found["logs"]
    _section("log" + (f" (last {_LINES} of {len(logs)} lines)" if len(logs) > _LINES else ""), logs[-_LINES:])
    _section("traceback", found["traceback"].rstrip().split("\n") if found["traceback"] else [])


def _attempt(error: dict[str, Any]) -> str:
    """A failed attempt on one line."""
    when = "" if error["at"] is None else f"  {_moment(error['at'])}"
    kind = f"{error['error_kind']}: " if error["error_kind"] else ""
    return f"{error['attempt']}{when}  {kind}{compact(error['error'])}"


def _family(found: dict[str, Any]) -> dict[str, str]:
    """The job's parent and children."""
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
    """Print a dead letter: the errors of its attempts, its log, and the last traceback."""
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
    _print_details(letter)


def show_run(run: dict[str, Any]) -> None:
    """Print the run record of a job that is gone."""
    took = None if run["started_at"] is None else span(run["finished_at"] - run["started_at"])
    _facts(
        {
            "job": f"{run['id']}  {run['name']}  in {run['queue']} (no longer stored; this is its run record)",
            "ended": run["cause"],
            "attempts": _attempts(run, f"{run['attempts_made']}"),
            "took": took,
            "worker": run["worker"],
            **_times(run),
            "result" if run["ending"] == "completed" else "error": run["text"] + ("" if run["whole"] else " …"),
        }
    )


def show_schedule(found: dict[str, Any], when: str) -> None:
    """Print a schedule, with its next runs in its own time zone."""
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
            "app": found["owner"] or "none (created at run time)",
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
    return "none (never started)" if never_started(found) else made + _stalls(found)


def _stalls(found: dict[str, Any]) -> str:
    times = "once" if found["stalls"] == 1 else f"{found['stalls']} times"
    return f" (worker lost {times})" if found["stalls"] else ""


def _times(found: dict[str, Any]) -> dict[str, str]:
    return {
        name: _moment(found[key])
        for name, key in (("added", "added_at"), ("started", "started_at"), ("finished", "finished_at"))
        if found[key] is not None
    }


def _moment(ms: int) -> str:
    when = ahead(ms).replace("due in", "in") if ms > SYSTEM.now() else age(ms)
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC ({when})"


T = TypeVar("T")

_REMEMBERED: Final = 1000  # run records to search for a job that is gone


@click.group()
def job() -> None:
    """Show, explain, retry, cancel, promote, signal, rewind or remove one job.

    A job is named by its queue and id. You can leave out the queue if only one has a job with that id.
    """


@job.command()
@secrets_option
@one("job", "job_id")
def show(*, queue: str | None, job_id: str, place: StoreOption, as_json: bool) -> None:
    """Show a job or dead letter with its log and its attempts' errors, or the run record of a job that is gone."""
    kind, found = on_store(place, lambda app: _shown(app, queue, job_id))
    if as_json:
        click.echo(on_a_line(found))
    else:
        (show_job if kind == "job" else show_run)(found)


@job.command()
@one("job", "job_id")
def why(*, queue: str | None, job_id: str, place: StoreOption, as_json: bool) -> None:
    """Explain why a job is not running, or how it ended."""

    async def ask(app: App) -> tuple[str, Explanation, str | None]:
        name = await _where(app, job_id) if queue is None else (await declared(app, queue)).name
        answer = await app.queue(name).why(job_id)
        row = await find_job(app.store, name, job_id) if answer.facts.get("signals") else None
        return name, answer, None if row is None else send_command(row)

    name, answer, command = on_store(place, ask)
    if as_json:
        click.echo(on_a_line({"queue": name, "id": job_id} | of_explanation(answer)))
    else:
        click.echo(plain(answer.sentence))
        if command is not None:
            say(f"Send it with  {command}")


@job.command()
@one("job", "job_id")
def stack(*, queue: str | None, job_id: str, place: StoreOption, as_json: bool) -> None:
    """Show the stack of a running job: the frames of its coroutine, thread or process.

    Its worker answers within moments. If the worker's event loop is blocked, the supervisor answers with the stacks of
    all threads of the process.
    """

    async def ask(app: App) -> JobStack:
        found = await found_job(app, queue, job_id)
        return await found.queue.stack(found.id)

    answer = on_store(place, ask)
    if as_json:
        click.echo(on_a_line(asdict(answer)))
    else:
        click.echo("\n".join(plain(line) for line in answer.text.splitlines()))


@job.command()
@one("job", "job_id")
def retry(*, queue: str | None, job_id: str, place: StoreOption, as_json: bool) -> None:
    """Retry a finished job or a dead letter with a fresh set of attempts.

    A failed parent of a flow waits for its children that have not succeeded: those run again with it.
    """
    _act(place, queue, job_id, lambda found: found.retry(), "will run again", as_json=as_json)


@job.command()
@click.option("--reason", default="Cancelled by an operator", show_default=True)
@one("job", "job_id")
def cancel(*, queue: str | None, job_id: str, reason: str, place: StoreOption, as_json: bool) -> None:
    """Cancel a job. A waiting job never starts; a running job is asked to stop."""

    async def stop(app: App) -> tuple[Job[Any], str]:
        found = await found_job(app, queue, job_id)
        return found, await found.cancel(reason)

    found, outcome = on_store(place, stop)
    what = "was cancelled" if outcome == "cancelled" else "was asked to stop"
    _tell(found, what, {"outcome": outcome}, as_json=as_json)


@job.command()
@one("job", "job_id")
def promote(*, queue: str | None, job_id: str, place: StoreOption, as_json: bool) -> None:
    """Run a delayed job now."""
    _act(place, queue, job_id, lambda found: found.promote(), "is no longer delayed", as_json=as_json)


_STEP_COLUMNS: Final = [
    Column("step"), Column("kind", 1), Column("attempt", 4, numbers=True), Column("took", 3), Column("recorded", 2),
    Column("value"),
]  # fmt: skip
_TIMED: Final = {"sleep": "until", "wait": "times out", "retry": "next try"}


@job.command()
@secrets_option
@one("job", "job_id")
def steps(*, queue: str | None, job_id: str, place: StoreOption, as_json: bool) -> None:
    """List the durable steps that a job or dead letter has recorded, oldest first."""

    async def look(app: App) -> tuple[Job[Any], list[dict[str, Any]]]:
        found = await found_job(app, queue, job_id)
        return found, of_steps(await _rows_of(found), found)

    found, documents = on_store(place, look)
    none = f"Job {found.id} ({found.name}) in {found.queue.name} has not recorded any steps."
    show_lines(Lines(documents, _STEP_COLUMNS, _step_row, plain(none)), as_json=as_json)


async def _rows_of(found: Job[Any]) -> list[tuple[str, str]]:
    where: Kept = "queue" if found.dead_letter is None else "dead_letters"
    return await step_rows(found.queue.store, found.queue.name, found.id, where)


def _step_row(step: dict[str, Any]) -> list[object]:
    took = "" if step["kind"] not in ("step", "failed") else span(round(step["took"] * 1000))
    return [step["key"], step["kind"], step["attempt"] or "", took, age(step["at"]), _step_value(step)]


def _step_value(step: dict[str, Any]) -> str:
    """What a step returned or was told, how it failed, or until when it waits."""
    parts = [] if step["error"] is None else [compact(step["error"])]
    if step["kind"] in _TIMED:
        when = "no timeout" if step["until"] is None else f"{_TIMED[step['kind']]} {_moment(step['until'])}"
        return ", ".join([*parts, when])
    return parts[0] if parts else compact(step["value"])


@job.command()
@click.argument("words", nargs=-1, required=True, metavar="[QUEUE] ID NAME", shell_complete=queue_words)
@signal_options
@click.option("--if-waiting", is_flag=True, help="Send nothing unless the job is waiting for this signal now.")
@store_options
@json_option
def signal(
    *,
    words: tuple[str, ...],
    data: str | None,
    identity: str | None,
    if_waiting: bool,
    place: StoreOption,
    as_json: bool,
) -> None:
    """Send the signal NAME to a job. If the job does not wait for it now, it is kept until it does.

    To send one by a key instead of a job's id, use `toril signal`.
    """
    if len(words) not in (2, 3):
        raise click.UsageError(f"a signal needs [QUEUE] ID NAME; got {len(words)} arguments")
    queue, (job_id, name) = words[0] if len(words) == 3 else None, words[-2:]
    payload = True if data is None else json_given(data, "--data")

    async def send(app: App) -> tuple[Job[Any], Signalled]:
        found = await found_job(app, queue, job_id)
        await as_workers_declare(found.queue)  # refuses queues with a serializer that only the application has
        unless: Literal["keep", "refuse"] = "refuse" if if_waiting else "keep"
        return found, await found.signal(name, payload, id=identity, unless_waiting=unless)

    found, sent = on_store(place, send)
    check_sent(sent, name, job_id)
    if as_json:
        facts = {"signal": name, "outcome": sent.outcome.value}
        click.echo(on_a_line({"queue": found.queue.name, "id": found.id, "name": found.name, **facts}))
    else:
        click.echo(plain(sent_text(sent, f"to job {found.id} ({found.name}) in {found.queue.name}")))


@job.command()
@click.option("--to", metavar="STEP", help="Forget this step and all that were recorded after it; default: all steps.")
@yes_option
@one("job", "job_id")
def rewind(*, queue: str | None, job_id: str, to: str | None, yes: bool, place: StoreOption, as_json: bool) -> None:
    """Forget durable steps of a job, and run it again from there with all its attempts.

    The job may be waiting, resting, completed or failed, but not running. Signals that it read after that step are
    discarded.
    """

    async def look(app: App) -> tuple[Job[Any], list[str]]:
        found = await found_job(app, queue, job_id)
        keys = [key for key, _ in await _rows_of(found)]
        if to is not None and to not in keys:
            raise NotFound(f"job {job_id!r} has not recorded a step {to!r}; it has {_listed(keys) or 'none'}")
        return found, keys if to is None else keys[keys.index(to) :]

    found, forgotten = on_store(place, look)
    count = "1 step" if len(forgotten) == 1 else f"{len(forgotten)} steps"
    what = f"{count} ({_listed(forgotten)})" if forgotten else "no steps"
    agreed(f"Job {found.id} ({found.name}) in {found.queue.name} forgets {what} and runs again.", yes=yes)
    _act(place, found.queue.name, job_id, lambda found: found.rewind(to), "will run again", as_json=as_json)


_LISTED: Final = 5  # keys of steps to name


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
    return ", ".join(keys[:_LISTED]) + more


@job.command()
@yes_option
@one("job", "job_id")
def remove(*, queue: str | None, job_id: str, yes: bool, place: StoreOption, as_json: bool) -> None:
    """Remove a job or dead letter and everything that belongs to it. Cancel a running job instead."""
    found = on_store(place, lambda app: found_job(app, queue, job_id))
    agreed(f"This removes job {found.id} ({found.name}) from {found.queue.name}.", yes=yes)
    _act(place, found.queue.name, job_id, lambda found: found.remove(), "was removed", as_json=as_json)


def _act(
    place: StoreOption,
    queue: str | None,
    job_id: str,
    act: Callable[[Job[Any]], Awaitable[None]],
    what: str,
    *,
    as_json: bool,
) -> None:
    async def work(app: App) -> Job[Any]:
        found = await found_job(app, queue, job_id)
        await act(found)
        return found

    _tell(on_store(place, work), what, {"done": True}, as_json=as_json)


def _tell(found: Job[Any], what: str, facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(on_a_line({"queue": found.queue.name, "id": found.id, "name": found.name, **facts}))
    else:
        click.echo(plain(f"Job {found.id} ({found.name}) in {found.queue.name} {what}."))


async def found_job(app: App, queue: str | None, job_id: str) -> Job[Any]:
    """The job with this id, in any queue if none is given."""
    names = await app.store.queues() if queue is None else [(await declared(app, queue)).name]
    found = [each for name in names if (each := await app.queue(name).job(job_id)) is not None]
    if len(found) > 1:
        where = ", ".join(each.queue.name for each in found)
        raise CommandFailed(
            f"several queues have a job {job_id!r}: {where}. Name the queue, as in  {found[0].queue.name} {job_id}"
        )
    if not found:
        raise NotFound(f"there is no job {job_id!r} in {'any queue' if queue is None else f'queue {queue!r}'}")
    return found[0]


async def _where(app: App, job_id: str) -> str:
    """The queue of a job, or the one in which it ended."""
    try:
        return (await found_job(app, None, job_id)).queue.name
    except NotFound:
        return str((await _remembered(app, None, job_id))["queue"])


async def _shown(app: App, queue: str | None, job_id: str) -> tuple[str, dict[str, Any]]:
    try:
        found = await found_job(app, queue, job_id)
    except NotFound:
        return "run", await _remembered(app, queue, job_id)
    record = found.record
    trace = record.failure.traceback if record is not None and record.failure is not None else ""
    shown = app.redaction.text(trace, "traceback", found.queue.name, found.name)
    return "job", of_job(found) | {"traceback": shown} | await details(app, found)


async def details(app: App, found: Job[Any]) -> dict[str, Any]:
    """A job's log, the errors of its attempts, and the states of its children."""
    logs = [app.redaction.text(line, "log", found.queue.name, found.name) for line in await found.logs()]
    children = of_children(await app.tree(found, whole=False, depth=1))
    return {"logs": logs, "errors": of_errors(await found.errors(), found), "children": children}


async def _remembered(app: App, queue: str | None, job_id: str) -> dict[str, Any]:
    """The newest run record of a job that is gone."""
    names = await app.store.queues() if queue is None else [queue]
    found = []
    for name in names:
        for ending in RunStatus:
            page = await JobSearch(app.queue(name)).run_rows(ending, limit=_REMEMBERED)
            found += [of_run(name, run, app.redaction) for run in page.items if run.id == job_id][:1]
    if len({run["queue"] for run in found}) > 1:
        where = ", ".join(sorted({run["queue"] for run in found}))
        raise CommandFailed(
            f"several queues have run a job {job_id!r}: {where}. Name the queue, as in  {found[0]['queue']} {job_id}"
        )
    if not found:
        raise NotFound(f"there is no job {job_id!r} in {'any queue' if queue is None else f'queue {queue!r}'}")
    return max(found, key=lambda run: int(run["finished_at"]))
