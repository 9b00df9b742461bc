"""The shop as it is seen while it works: a table that lives on a terminal, or plain lines."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import click
from rich.console import Console
from rich.live import Live

from toril import App
from toril.cli.demo.picture import Moment, Sight, picture
from toril.cli.escaping import plain
from toril.cli.times import span
from toril.events import JobEvent
from toril.runtime.clock import SYSTEM

__all__ = ["Chronicle", "live", "spoken"]

_FRAME: Final = 0.1  # seconds
_KEPT: Final = 30


class Chronicle:
    """The last things that happened, as lines."""

    def __init__(self, app: App) -> None:
        self._start = SYSTEM.monotonic()
        self.moments: deque[Moment] = deque(maxlen=_KEPT)
        self.tell: Callable[[Moment], None] = lambda _: None
        app.on("active", lambda event: self._happened("started", event))
        app.on("completed", lambda event: self._happened("completed", event))
        app.on("retrying", lambda event: self._happened("retrying", event))
        app.on("failed", lambda event: self._happened("failed", event))
        app.on("cancelled", lambda event: self._happened("cancelled", event))

    @property
    def seconds(self) -> float:
        return SYSTEM.monotonic() - self._start

    def _happened(self, kind: str, event: JobEvent) -> None:
        moment = Moment(self.seconds, kind, event.queue, f"{event.job_name} {event.job_id}", _said(kind, event))
        if kind != "started":
            self.moments.append(moment)
        self.tell(moment)


def _said(kind: str, event: JobEvent) -> str:
    match kind:
        case "started":
            return "started" if event.attempt == 1 else f"started, attempt {event.attempt}"
        case "completed":
            return f"completed in {span(round((event.duration or 0) * 1000))}"
        case "retrying":
            return f"{event.error}; again in {span(round((event.delay or 0) * 1000))}"
        case "cancelled":
            return f"cancelled: {event.error}"
        case _:
            return f"failed: {event.error}"


@asynccontextmanager
async def spoken(chronicle: Chronicle) -> AsyncIterator[None]:
    """A line for everything that happens."""

    def tell(moment: Moment) -> None:
        click.echo(plain(f"{moment.at:5.1f} s  {moment.queue:<10}  {moment.job:<19}  {moment.text}"))

    chronicle.tell = tell
    click.echo("A small shop of queues, on a store in one file:")
    yield
    click.echo()


@asynccontextmanager
async def live(app: App, chronicle: Chronicle, out: Console) -> AsyncIterator[None]:
    """A picture of the queues, the running jobs and the last events, drawn ten times a second."""
    with Live(console=out, auto_refresh=False, transient=True) as screen:
        async with asyncio.TaskGroup() as group:
            drawing = group.create_task(_draw(app, chronicle, screen))
            try:
                yield
            finally:
                drawing.cancel()


async def _draw(app: App, chronicle: Chronicle, screen: Live) -> None:
    while True:
        sight = await Sight.of(app, chronicle.seconds, chronicle.moments)
        screen.update(picture(sight, screen.console), refresh=True)
        await SYSTEM.sleep(_FRAME)
