"""`toril workers`"""

from functools import partial
from typing import Any, Final

import click

from toril import App
from toril.cli.output import Column, Lines, json_option, show
from toril.cli.place import Place, on_store, store_options
from toril.cli.times import age
from toril.documents import of_worker

__all__ = ["workers"]

_COLUMNS: Final = [
    Column("worker", 5),
    Column("host", 6),
    Column("pid", 0, numbers=True),
    Column("running", 1),
    Column("started", 4),
    Column("seen", 2),
    Column("version", 7),
    Column("queues", 3),
]


@click.command()
@store_options
@json_option
@click.option("--quiet", metavar="WORKER", help="Have this worker claim nothing more; what it runs goes on.")
@click.option("--stop", metavar="WORKER", help="Have this worker drain and end; it is not started anew.")
def workers(*, place: Place, as_json: bool, quiet: str | None, stop: str | None) -> None:
    """List the workers that are alive, or tell one of them to be quiet or to stop."""
    if quiet is not None:
        on_store(place, partial(App.quiet_worker, worker=quiet))
    if stop is not None:
        on_store(place, partial(App.stop_worker, worker=stop))
    if quiet is not None or stop is not None:
        return
    found = on_store(place, _documents)
    show(Lines(found, _COLUMNS, _row, "No worker is alive. Start one with: toril run MODULE:APP"), as_json=as_json)


async def _documents(app: App) -> list[dict[str, Any]]:
    return [of_worker(each) for each in await app.workers()]


def _row(worker: dict[str, Any]) -> list[object]:
    running = f"{worker['running']} of {worker['slots']}"
    seen, started = age(worker["seen_at"]), age(worker["started_at"])
    names = ", ".join(worker["queues"])
    return [worker["worker"], worker["host"], worker["pid"], running, started, seen, worker["version"], names]
