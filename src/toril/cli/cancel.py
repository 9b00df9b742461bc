"""`toril cancel`: cancel many jobs of a queue at once."""

from dataclasses import replace
from typing import Any, Final

import click

from toril import App, JobFilter, Queue, State
from toril.cli.arguments import agreed, yes_option
from toril.cli.completion import job_names, queue_argument
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.store_option import StoreOption, declared, on_store, store_options
from toril.cli.terminal import json_option

__all__ = ["cancel"]

_STATES: Final = ("waiting", "prioritized", "delayed", "waiting_children", "active")
_UNSTARTED: Final = ("waiting", "prioritized", "delayed")


@click.command()
@queue_argument
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES),
    multiple=True,
    default=_UNSTARTED,
    show_default=True,
    help="Only jobs in this state; repeatable. Running jobs are asked to stop.",
)
@click.option("--name", shell_complete=job_names, help="Only jobs with this name.")
@click.option("--error", help="Only jobs with this text in their last error.")
@click.option("--search", "text", help="Only jobs with this text in their id, name, error or payload.")
@click.option("--key", metavar="KEY[=VALUE]", help="Only jobs with this key in their payload: user.id, or user.id=7.")
@click.option("--worker", help="Only jobs that this worker is running or ran last.")
@click.option("--reason", default="Cancelled by an operator", show_default=True)
@click.option("--dry-run", is_flag=True, help="Only count the jobs.")
@yes_option
@store_options
@json_option
def cancel(
    *,
    queue: str,
    states: tuple[str, ...],
    reason: str,
    dry_run: bool,
    yes: bool,
    place: StoreOption,
    as_json: bool,
    **sought: Any,
) -> None:
    """Cancel jobs in QUEUE that have not started, or those that the options select. This cannot be undone.

    A waiting job never starts; a running job is asked to stop. Jobs added meanwhile are left alone.
    """
    where = JobFilter(**sought)

    async def look(app: App) -> tuple[dict[str, int], JobFilter]:
        return await _counted(await declared(app, queue), states, where)

    counts, where = on_store(place, look)
    if dry_run:
        _tell(
            {"queue": queue, "would_cancel": sum(counts.values())}, f"{_summary(counts)} in {queue}.", as_json=as_json
        )
        return
    agreed(f"This cancels {_summary(counts)} in {queue}. It cannot be undone.", yes=yes)

    async def act(app: App) -> tuple[int, int]:
        found = [await app.queue(queue).cancel_all(State(state), where, reason=reason) for state in counts]
        return sum(each.cancelled for each in found), sum(each.requested for each in found)

    cancelled, requested = on_store(place, act)
    asked = f" Asked {requested} running {'job' if requested == 1 else 'jobs'} to stop." if requested else ""
    facts = {"queue": queue, "cancelled": cancelled, "requested": requested}
    _tell(facts, f"Cancelled {_jobs(cancelled)}.{asked}", as_json=as_json)


async def _counted(found: Queue, states: tuple[str, ...], where: JobFilter) -> tuple[dict[str, int], JobFilter]:
    """How many jobs are in each state, and the filter with the time of the count."""
    counts: dict[str, int] = {}
    for state in dict.fromkeys(states):
        cursor, counts[state] = None, 0
        while True:
            page = await found.count(State(state), where, cursor=cursor)
            if where.until is None:
                where = replace(where, until=page.asked_at)
            counts[state] += page.count
            cursor = page.cursor
            if cursor is None:
                break
    return counts, where


def _summary(counts: dict[str, int]) -> str:
    some = [f"{many} {state.replace('_', ' ')}" for state, many in counts.items() if many]
    return _jobs(sum(counts.values())) + (f" ({', '.join(some)})" if some else "")


def _jobs(many: int) -> str:
    return "1 job" if many == 1 else f"{many} jobs"


def _tell(facts: dict[str, Any], line: str, *, as_json: bool) -> None:
    click.echo(on_a_line(facts) if as_json else plain(line))
