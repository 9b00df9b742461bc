"""`toril events`"""

import asyncio
from datetime import UTC, datetime
from typing import Any

import click

from toril import App, Gap
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.output import json_option
from toril.cli.place import Place, declared, on_store, store_options
from toril.documents import of_event
from toril.history import Happening, recent
from toril.history import follow as following
from toril.model import Event
from toril.showing import Redaction

__all__ = ["events"]


@click.command()
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until interrupted.")
@click.option("-n", "--last", default=20, type=click.IntRange(0, 10_000), show_default=True, help="How many to show.")
@click.option("--after", metavar="PLACE", help="Only what happened after this place in one queue, as --json shows it.")
@store_options
@json_option
def events(*, queues: tuple[str, ...], follow: bool, last: int, after: str | None, place: Place, as_json: bool) -> None:
    """Show what happened in the QUEUEs, in all if none is named."""
    if after is not None and len(queues) != 1:
        raise click.UsageError("a place is one of a queue: name that one queue with --after")

    async def look(app: App) -> None:
        show = _shower(app.redaction, as_json=as_json)
        names = [(await declared(app, name)).name for name in queues] or await app.store.queues()
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(_one(app, name, after, last, show, follow=follow))

    on_store(place, look)


async def _one(app: App, name: str, after: str | None, last: int, show: Any, *, follow: bool) -> None:
    found = await recent(app.store, name, after, last)
    for event in found.items:
        show(name, event)
    if follow:
        async for happening in following(app.store, name, found.last):
            show(name, happening)


def _shower(seen: Redaction, *, as_json: bool) -> Any:
    def show(queue: str, happening: Happening) -> None:
        document = _document(queue, happening, seen)
        click.echo(on_a_line(document) if as_json else plain(_line(document)))

    return show


def _document(queue: str, happening: Happening, seen: Redaction) -> dict[str, Any]:
    match happening:
        case Gap(at):
            return {"queue": queue, "kind": "gap", "at": at}
        case Event():
            return of_event(queue, happening, seen)


def _line(found: dict[str, Any]) -> str:
    if found["kind"] == "gap":
        return f"... some of what happened in {found['queue']} is no longer known ..."
    clock = datetime.fromtimestamp(found["time"] / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    rest = " ".join(f"{name}={value}" for name, value in found["detail"].items() if value)
    return f"{clock} {found['queue']} {found['kind']} {found['id'] or ''} {rest}".rstrip()[:300]
