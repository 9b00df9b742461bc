"""`toril events`: follow the events of a queue."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal

import click

from toril import App, Gap
from toril.cli.completion import queue_names
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.store_option import StoreOption, declared, on_store, secrets_option, store_options
from toril.cli.terminal import json_option
from toril.model import EventRow
from toril.operate.documents import of_event
from toril.operate.history import Happening, recent
from toril.runtime.clock import SYSTEM
from toril.runtime.redaction import Redaction

__all__ = ["events"]

_A_LOOK: Final = 1000
_PAUSE: Final = 0.5  # seconds between two looks when nothing happens


@click.command()
@click.argument("queues", nargs=-1, metavar="[QUEUE]...", shell_complete=queue_names)
@click.option("-f", "--follow", is_flag=True, help="Follow new events until interrupted.")
@click.option(
    "-n", "--last", default=20, type=click.IntRange(0, 10_000), show_default=True, help="How many events to show."
)
@click.option("--after", metavar="PLACE", help="Only events after this place in one queue, as shown by --json.")
@secrets_option
@store_options
@json_option
def events(
    *, queues: tuple[str, ...], follow: bool, last: int, after: str | None, place: StoreOption, as_json: bool
) -> None:
    """Show recent events of the QUEUEs, or of all queues, newest last."""
    if after is not None and len(queues) != 1:
        raise click.UsageError("--after is a place in one queue: name exactly one QUEUE")

    async def look(app: App) -> None:
        names = [(await declared(app, name)).name for name in queues] or await app.store.queues()
        show = _shower(app.redaction, as_json=as_json)
        found = await asyncio.gather(*(recent(app.store, name, after, last) for name in names))
        merged = _by_time((name, event) for name, each in zip(names, found, strict=True) for event in each.items)
        show(merged[max(0, len(merged) - last) :])
        if follow:
            places: dict[str, str | None] = {name: each.last for name, each in zip(names, found, strict=True)}
            await _follow(app, places, show, "named" if queues else "all")

    on_store(place, look)


async def _follow(app: App, places: dict[str, str | None], show: Any, queues: Literal["named", "all"]) -> None:
    """Yield events after these places, and from new queues, in rounds: the events of a round are in the order of
    time."""
    while True:
        if queues == "all":
            places = dict.fromkeys(await app.store.queues()) | places
        looks = await asyncio.gather(
            *(app.store.events(name, after=place, limit=_A_LOOK) for name, place in places.items())
        )
        for (name, place), look in zip(list(places.items()), looks, strict=True):
            if look.gap and place is not None:
                show([(name, Gap(place))])
            places[name] = look.last
        found = _by_time((name, event) for name, look in zip(places, looks, strict=True) for event in look.items)
        show(found)
        if not found:
            await SYSTEM.sleep(_PAUSE)


def _by_time(found: Iterable[tuple[str, EventRow]]) -> list[tuple[str, EventRow]]:
    """Merge the events of several queues by time; those of one queue keep their order."""
    return sorted(found, key=lambda each: each[1].time)


def _shower(seen: Redaction, *, as_json: bool) -> Any:
    def show(found: Iterable[tuple[str, Happening]]) -> None:
        for queue, happening in found:
            document = _document(queue, happening, seen)
            click.echo(on_a_line(document) if as_json else plain(_line(document)))

    return show


def _document(queue: str, happening: Happening, seen: Redaction) -> dict[str, Any]:
    match happening:
        case Gap(at):
            return {"queue": queue, "kind": "gap", "at": at}
        case EventRow():
            return of_event(queue, happening, seen)


def _line(found: dict[str, Any]) -> str:
    if found["kind"] == "gap":
        return f"... some events of {found['queue']} are no longer stored ..."
    clock = datetime.fromtimestamp(found["time"] / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    rest = " ".join(_fact(name, value) for name, value in found["detail"].items() if value)
    return f"{clock} {found['queue']} {found['kind']} {found['id'] or ''} {rest}".rstrip()[:300]


def _fact(name: str, value: str) -> str:
    """A field of an event. BullMQ calls the due time of a job its delay."""
    if name == "delay" and value.isascii() and value.isdecimal() and len(value) < 15:
        return f"due={datetime.fromtimestamp(int(value) / 1000, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
    return f"{name}={value}"
