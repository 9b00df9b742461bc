"""`toril pause` and `toril resume`"""

from typing import Any

import click

from toril import App
from toril.cli.completion import queue_argument
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.output import json_option
from toril.cli.place import Place, declared, on_store, store_options

__all__ = ["pause", "resume"]


@click.command()
@queue_argument
@store_options
@json_option
def pause(*, queue: str, place: Place, as_json: bool) -> None:
    """Start nothing new in QUEUE, anywhere, until it is resumed. What runs goes on, and jobs can be added."""

    async def switch(app: App) -> dict[str, Any]:
        await (await declared(app, queue)).pause()
        return await _state(app, queue)

    found = on_store(place, switch)
    left = f"{found['active']} still run" if found["active"] else "nothing runs"
    _tell(found, f"{queue} is paused; {left}, and {found['waiting']} wait.", as_json=as_json)


@click.command()
@queue_argument
@store_options
@json_option
def resume(*, queue: str, place: Place, as_json: bool) -> None:
    """Let QUEUE go on."""

    async def switch(app: App) -> dict[str, Any]:
        await (await declared(app, queue)).resume()
        return await _state(app, queue)

    found = on_store(place, switch)
    _tell(found, f"{queue} goes on; {found['waiting']} wait.", as_json=as_json)


async def _state(app: App, name: str) -> dict[str, Any]:
    counts = await app.queue(name).counts()
    waiting = counts.waiting + counts.prioritized
    return {"queue": name, "paused": counts.paused, "active": counts.active, "waiting": waiting}


def _tell(found: dict[str, Any], line: str, *, as_json: bool) -> None:
    click.echo(on_a_line(found) if as_json else plain(line))
