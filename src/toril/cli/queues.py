"""`toril queues`"""

from typing import Any, Final

import click

from toril import App
from toril.cli.output import Column, Lines, json_option, show
from toril.cli.place import Place, on_store, store_options
from toril.operate.documents import of_declaration, of_rate

__all__ = ["queues"]

_COLUMNS: Final = [
    Column("queue"),
    Column("waiting", 1, numbers=True),
    Column("prioritized", 7, numbers=True),
    Column("active", 2, numbers=True),
    Column("delayed", 5, numbers=True),
    Column("children", 9, numbers=True),
    Column("completed", 6, numbers=True),
    Column("failed", 3, numbers=True),
    Column("cancelled", 10, numbers=True),
    Column("kept", 8, numbers=True),
    Column("slots", 11, numbers=True),
    Column("rate", 12, numbers=True),
    Column("paused", 4),
]


@click.command()
@click.option("--bytes", "sizes", is_flag=True, help="Also estimate how many bytes each queue takes in the store.")
@store_options
@json_option
def queues(*, sizes: bool, place: Place, as_json: bool) -> None:
    """List the queues with their counts.

    `completed`, `failed` and `cancelled` count all jobs that have ended so; `kept` is how many are still stored.
    `slots` is how many jobs its living workers can run at once, or as many of them as are allowed to; `rate` how many
    may start in a time, as set in the store or else as the workers' code declares it. With
    `--bytes` the largest queue comes first; its size is estimated from up to 100 of its jobs.
    """
    found = on_store(place, _with_sizes if sizes else _documents)
    columns = [*_COLUMNS, Column("bytes", numbers=True)] if sizes else _COLUMNS
    show(Lines(found, columns, _row, "There are no queues yet."), as_json=as_json)


async def _documents(app: App) -> list[dict[str, Any]]:
    return [await _document(app, name) for name in await app.store.queues()]


async def _with_sizes(app: App) -> list[dict[str, Any]]:
    found = [
        {**document, "bytes": (await app.store.usage(document["queue"])).bytes} for document in await _documents(app)
    ]
    return sorted(found, key=lambda document: (-document["bytes"], document["queue"]))


async def _document(app: App, name: str) -> dict[str, Any]:
    view = await app.store.queue(name)
    counts = view.counts
    return {
        "queue": name,
        "waiting": counts.waiting,
        "prioritized": counts.prioritized,
        "active": counts.active,
        "delayed": counts.delayed,
        "waiting_children": counts.waiting_children,
        "completed": counts.completed,
        "failed": counts.failed,
        "paused": counts.paused,
        "completed_total": view.completed_total,
        "failed_total": view.failed_total,
        "cancelled_total": view.cancelled_total,
        "concurrency": view.settings.concurrency,
        "rate": of_rate(view.settings.rate),
        "max_waiting": view.settings.max_waiting,
        "declared": of_declaration(await app.store.declarations(name)),
    }


def _row(queue: dict[str, Any]) -> list[object]:
    ended = [queue[f"{ending}_total"] for ending in ("completed", "failed", "cancelled")]
    kept = queue["completed"] + queue["failed"]
    counts = [queue[name] for name in ("waiting", "prioritized", "active", "delayed", "waiting_children")]
    sizes = [f"{queue['bytes']:,}"] if "bytes" in queue else []
    limits = [_slots(queue), _rate(queue)]
    return [queue["queue"], *counts, *ended, kept, *limits, "paused" if queue["paused"] else "", *sizes]


def _slots(queue: dict[str, Any]) -> object:
    """A bound for the whole fleet leaves some of its slots unused."""
    slots = queue["declared"]["slots"] if queue["declared"] else 0
    return slots if queue["concurrency"] is None else f"{min(slots, queue['concurrency'])} of {slots}"


def _rate(queue: dict[str, Any]) -> str:
    rate = queue["rate"] or (queue["declared"] and queue["declared"]["rate"])
    return f"{rate['max']}/{rate['per']:g}s" if rate else ""
