"""`toril schedules`: list, show, run, pause, resume and remove schedules."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from toril import App, NotFound, Queue
from toril.cli.arguments import agreed, one, yes_option
from toril.cli.completion import queue_names
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.exit import CommandFailed
from toril.cli.job import show_schedule
from toril.cli.store_option import StoreOption, declared, on_store, secrets_option, store_options
from toril.cli.terminal import Column, Lines, ahead, json_option, show, span
from toril.model import ScheduleRow
from toril.operate.documents import of_schedule
from toril.policy.schedules import upcoming

__all__ = ["schedules"]

T = TypeVar("T")

_COLUMNS = (
    Column("schedule"), Column("queue", 2), Column("job", 3), Column("when", 1), Column("next"),
    Column("runs", 4, numbers=True), Column("app", 5),
)  # fmt: skip


@click.group()
def schedules() -> None:
    """List, show, run, pause, resume or remove schedules.

    A schedule is named by its queue and id. You can leave out the queue if only one has a schedule with that id.
    """


@schedules.command("list")
@click.argument("queue", required=False, shell_complete=queue_names)
@secrets_option
@store_options
@json_option
def list_(*, queue: str | None, place: StoreOption, as_json: bool) -> None:
    """List the schedules of QUEUE, or of all queues."""
    found = on_store(place, lambda app: _all(app, queue))
    show(Lines(found, _COLUMNS, _row, "There are no schedules."), as_json=as_json)


@schedules.command("show")
@secrets_option
@one("schedule", "schedule")
def show_(*, queue: str | None, schedule: str, place: StoreOption, as_json: bool) -> None:
    """Show a schedule with its next ten runs."""

    async def work(app: App) -> dict[str, Any]:
        _, view = await _found(app, queue, schedule)
        return of_schedule(view, app.redaction) | {"upcoming": upcoming(view)}

    found = on_store(place, work)
    if as_json:
        click.echo(on_a_line(found))
        return
    show_schedule(found, _when(found))


@schedules.command()
@one("schedule", "schedule")
def run(*, queue: str | None, schedule: str, place: StoreOption, as_json: bool) -> None:
    """Run a schedule once now, in addition to its regular runs."""

    async def work(found: Queue) -> str:
        return f"now has an extra run: job {(await found.schedules.run_now(schedule)).id}"

    _act(place, queue, schedule, work, as_json=as_json)


@schedules.command()
@one("schedule", "schedule")
def pause(*, queue: str | None, schedule: str, place: StoreOption, as_json: bool) -> None:
    """Pause a schedule: no new runs until it is resumed. Running jobs finish."""

    async def work(found: Queue) -> str:
        await found.schedules.pause(schedule)
        return "was paused"

    _act(place, queue, schedule, work, as_json=as_json)


@schedules.command()
@one("schedule", "schedule")
def resume(*, queue: str | None, schedule: str, place: StoreOption, as_json: bool) -> None:
    """Resume a paused schedule with its next future run."""

    async def work(found: Queue) -> str:
        await found.schedules.resume(schedule)
        return "was resumed"

    _act(place, queue, schedule, work, as_json=as_json)


@schedules.command()
@yes_option
@one("schedule", "schedule")
def remove(*, queue: str | None, schedule: str, yes: bool, place: StoreOption, as_json: bool) -> None:
    """Remove a schedule and its pending run. A schedule declared in code comes back at the next startup."""
    name = on_store(place, lambda app: _found(app, queue, schedule))[0].name
    agreed(f"This removes schedule {schedule} of {name}.", yes=yes)

    async def work(found: Queue) -> str:
        await found.schedules.remove(schedule)
        return "was removed"

    _act(place, name, schedule, work, as_json=as_json)


def _act(
    place: StoreOption, queue: str | None, schedule: str, work: Callable[[Queue], Awaitable[str]], *, as_json: bool
) -> None:
    async def act(app: App) -> tuple[str, str]:
        found, _ = await _found(app, queue, schedule)
        return found.name, await work(found)

    name, what = on_store(place, act)
    if as_json:
        click.echo(on_a_line({"queue": name, "schedule": schedule, "done": what}))
    else:
        click.echo(plain(f"Schedule {schedule} of {name} {what}."))


async def _found(app: App, queue: str | None, schedule: str) -> tuple[Queue, ScheduleRow]:
    """The schedule with this id, in any queue if none is given."""
    names = await app.store.queues() if queue is None else [(await declared(app, queue)).name]
    found = []
    for name in names:
        try:
            found.append((app.queue(name), await app.queue(name).schedules.row(schedule)))
        except NotFound:
            continue
    if len(found) > 1:
        where = ", ".join(each.name for each, _ in found)
        raise CommandFailed(f"several queues have a schedule {schedule!r}: {where}. Name the queue too")
    if not found:
        raise NotFound(f"there is no schedule {schedule!r} in {'any queue' if queue is None else f'queue {queue!r}'}")
    return found[0]


async def _all(app: App, queue: str | None) -> list[dict[str, Any]]:
    names = await app.store.queues() if queue is None else [(await declared(app, queue)).name]
    found: list[dict[str, Any]] = []
    for name in names:
        cursor = None
        while True:
            page = await app.store.schedules.page(name, cursor=cursor, limit=100)
            found += [of_schedule(view, app.redaction) for view in page.items]
            cursor = page.cursor
            if cursor is None:
                break
    return found


def _row(found: dict[str, Any]) -> list[object]:
    coming = ahead(found["next_at"]) if found["state"] == "on" else found["state"]
    return [
        found["schedule"], found["queue"], found["job"], _when(found), coming, found["runs"],
        found["owner"] or "",
    ]  # fmt: skip


def _when(found: dict[str, Any]) -> str:
    return f"every {span(found['every_ms'])}" if found["cron"] is None else f"{found['cron']} ({found['tz']})"
