"""`toril drain`, `toril clean` and `toril obliterate`: remove many jobs at once."""

from collections.abc import Awaitable, Callable

import click

from toril import App, Queue, State
from toril.cli.arguments import agreed, yes_option
from toril.cli.completion import queue_argument
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.store_option import StoreOption, declared, on_store, store_options
from toril.cli.terminal import duration, json_option, span
from toril.model import Counts

__all__ = ["clean", "drain", "obliterate"]


@click.command()
@queue_argument
@click.option("--delayed", is_flag=True, help="Also remove delayed jobs.")
@yes_option
@store_options
@json_option
def drain(*, queue: str, delayed: bool, yes: bool, place: StoreOption, as_json: bool) -> None:
    """Remove the jobs of QUEUE that have not started."""
    counts = _counts(place, queue)
    many = counts.waiting + counts.prioritized + (counts.delayed if delayed else 0)
    if not many:
        _tell(queue, 0, as_json=as_json)
        return
    agreed(f"This removes {_jobs(many)} of {queue} that {_have(many)} not started.", yes=yes)
    _swept(place, queue, lambda q: q.drain(delayed="remove" if delayed else "keep"), as_json=as_json)


@click.command()
@queue_argument
@click.option(
    "--state",
    type=click.Choice([str(state) for state in State if state is not State.ACTIVE]),
    default="completed",
    show_default=True,
)
@click.option(
    "--older-than", type=duration, default="0", help="Only jobs that have been in this state for this long: 7d."
)
@click.option("--limit", type=click.IntRange(1), help="Remove at most this many, oldest first.")
@yes_option
@store_options
@json_option
def clean(
    *, queue: str, state: str, older_than: float, limit: int | None, yes: bool, place: StoreOption, as_json: bool
) -> None:
    """Remove jobs of QUEUE that are in one state, or only the older ones."""
    many = _counts(place, queue).of(State(state))
    if not many:
        _tell(queue, 0, as_json=as_json)
        return
    old = f" older than {span(round(older_than * 1000))}" if older_than else ""
    most = f", at most {limit}" if limit else ""
    agreed(f"This removes {state} jobs of {queue}{old}{most}; {many} are {state} now.", yes=yes)
    _swept(place, queue, lambda q: q.clean(State(state), older_than=older_than, limit=limit), as_json=as_json)


@click.command()
@queue_argument
@click.option("--force", is_flag=True, help="Remove it even while jobs are running.")
@yes_option
@store_options
@json_option
def obliterate(*, queue: str, force: bool, yes: bool, place: StoreOption, as_json: bool) -> None:
    """Remove QUEUE and everything in it: its jobs, run records, events and settings."""
    counts = _counts(place, queue)
    many = sum(counts.of(state) for state in State)
    agreed(f"This removes {queue} and its history, with {_jobs(many)} ({counts.active} running).", yes=yes)
    _swept(place, queue, lambda q: q.obliterate(force=force), as_json=as_json)


def _counts(place: StoreOption, name: str) -> Counts:
    async def look(app: App) -> Counts:
        return await (await declared(app, name)).counts()

    return on_store(place, look)


def _swept(place: StoreOption, name: str, sweep: Callable[[Queue], Awaitable[int]], *, as_json: bool) -> None:
    async def act(app: App) -> int:
        return await sweep(app.queue(name))

    _tell(name, on_store(place, act), as_json=as_json)


def _tell(queue: str, removed: int, *, as_json: bool) -> None:
    click.echo(on_a_line({"queue": queue, "removed": removed}) if as_json else plain(f"Removed {_jobs(removed)}."))


def _jobs(many: int) -> str:
    return "1 job" if many == 1 else f"{many} jobs"


def _have(many: int) -> str:
    return "has" if many == 1 else "have"
