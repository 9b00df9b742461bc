"""`toril queues`"""

from typing import Any, Final

import click

from toril import App
from toril.cli.output import Column, Lines, json_option, show
from toril.cli.place import Place, on_store, store_options

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
    Column("kept", 8, numbers=True),
    Column("paused", 4),
]


@click.command()
@click.option("--bytes", "sizes", is_flag=True, help="Also estimate how many bytes each queue takes in the store.")
@store_options
@json_option
def queues(*, sizes: bool, place: Place, as_json: bool) -> None:
    """List the queues with their counts.

    `completed` and `failed` count all jobs that have ended so; `kept` is how many of them are still stored. With
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
        "concurrency": view.settings.concurrency,
        "max_waiting": view.settings.max_waiting,
    }


def _row(queue: dict[str, Any]) -> list[object]:
    ended = [queue["completed_total"], queue["failed_total"], queue["completed"] + queue["failed"]]
    counts = [queue[name] for name in ("waiting", "prioritized", "active", "delayed", "waiting_children")]
    sizes = [f"{queue['bytes']:,}"] if "bytes" in queue else []
    return [queue["queue"], *counts, *ended, "paused" if queue["paused"] else "", *sizes]
