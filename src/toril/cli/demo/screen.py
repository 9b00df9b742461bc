"""The live table of `toril demo`."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from toril import App, Job
from toril.cli.escaping import plain
from toril.cli.terminal import span
from toril.events import JobEvent
from toril.model import QueueSummary
from toril.runtime.clock import SYSTEM

__all__ = ["Chronicle", "DemoView", "Moment", "live", "picture", "spoken"]

_COLOURS: Final = {"emails": "cyan", "thumbnails": "magenta", "payments": "yellow", "exports": "blue"}
_ABOUT: Final = {
    "emails": "async, four at once; one is delayed",
    "thumbnails": "computing, in two child processes",
    "payments": "a flaky bank: retried with backoff",
    "exports": "long; the second gets cancelled",
}
_HEADS: Final = ("waiting", "active", "delayed", "done", "failed")
_SHORT_HEADS: Final = ("wait", "run", "later", "done", "fail")
_SIGNS: Final = {"completed": "✓", "retrying": "↻", "failed": "✗", "cancelled": "■"}
_PLAIN_SIGNS: Final = {"completed": "+", "retrying": "~", "failed": "x", "cancelled": "!"}
_STYLES: Final = {"completed": "green", "retrying": "yellow", "failed": "red", "cancelled": "magenta"}


Width: TypeAlias = Literal["wide", "usual", "narrow"]


@dataclass(frozen=True, slots=True)
class Moment:
    """An event, with its time."""

    at: float
    kind: str
    queue: str
    job: str
    text: str


@dataclass(frozen=True, slots=True)
class DemoView:
    """What the table shows at one moment."""

    seconds: float
    queues: Sequence[QueueSummary]
    running: Sequence[Job[Any]]
    moments: Sequence[Moment]

    @classmethod
    async def of(cls, app: App, seconds: float, moments: Iterable[Moment]) -> "DemoView":
        queues = [await app.store.queue(name) for name in app.queues]
        pages = [await app.queues[name].jobs("active", limit=20) for name in app.queues]
        return cls(seconds, queues, [job for page in pages for job in page.items], list(moments))


def picture(sight: DemoView, out: Console) -> RenderableType:
    """The whole table. Its height does not change, so nothing jumps."""
    width: Width = "wide" if out.width >= 88 else "usual" if out.width >= 56 else "narrow"
    left = max(4, out.height - 2 - (len(sight.queues) + 3) - 4)  # lines for running jobs and events
    running = min(10, (left + 1) // 2)
    parts: list[RenderableType] = [
        _title(sight),
        _framed("queues", _queues(sight, width)),
        _framed("running", _running(sight.running, running, width)),
        _framed("last events", _events(sight.moments, min(8, left - running), out)),
    ]
    return Group(*parts)


def _title(sight: DemoView) -> Text:
    ended = sum(view.ended_total for view in sight.queues)
    text = Text.assemble(("Toril demo", "bold"), f"  {sight.seconds:4.1f} s  {ended} jobs ended")
    text.no_wrap = True
    return text


def _framed(title: str, inside: RenderableType) -> Panel:
    return Panel(inside, title=Text(title, "bold"), title_align="left", border_style="bright_black", padding=(0, 1))


def _queues(sight: DemoView, width: Width) -> Table:
    table = Table.grid(padding=(0, 1 if width == "narrow" else 2, 0, 0), expand=True)
    table.add_column("", no_wrap=True)
    if width == "wide":
        table.add_column("", ratio=1, no_wrap=True, style="bright_black")
    for _ in range(5):
        table.add_column("", justify="right", no_wrap=True)
    heads = _HEADS if width != "narrow" else _SHORT_HEADS
    table.add_row(*([""] * (2 if width == "wide" else 1)), *(Text(head, "bright_black") for head in heads))
    for view in sight.queues:
        table.add_row(*_queue(view, width))
    return table


def _queue(view: QueueSummary, width: Width) -> list[RenderableType]:
    counts = view.counts
    numbers = [
        (counts.waiting, "bold"), (counts.active, "bold yellow"), (counts.delayed, "bold cyan"),
        (view.completed_total, "bold green"), (view.failed_total, "bold red"),
    ]  # fmt: skip
    cells: list[RenderableType] = [Text(view.name, _COLOURS.get(view.name, ""))]
    if width == "wide":
        cells.append(Text(_ABOUT.get(view.name, "")))
    return [*cells, *(Text(str(many), style if many else "bright_black") for many, style in numbers)]


def _running(jobs: Sequence[Job[Any]], rows: int, width: Width) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True, width=4)
    shown = jobs if len(jobs) <= rows else _some(jobs, rows - 1)
    for job in shown:
        table.add_row(*_bar(job, width))
    if len(jobs) > len(shown):
        table.add_row(Text(f"and {len(jobs) - len(shown)} more", "bright_black"), "", "")
    for _ in range(rows - table.row_count):
        table.add_row("", "", "")
    return table


def _some(jobs: Sequence[Job[Any]], many: int) -> list[Job[Any]]:
    """As many from each queue as there is room for."""
    seen: Counter[str] = Counter()
    ranks: list[tuple[int, int]] = []
    for job in jobs:
        ranks.append((seen[job.queue.name], len(ranks)))
        seen[job.queue.name] += 1
    return [jobs[index] for index in sorted(index for _, index in sorted(ranks)[:many])]


def _bar(job: Job[Any], width: Width) -> list[RenderableType]:
    done = job.progress if isinstance(job.progress, int | float) else 0
    colour = _COLOURS.get(job.queue.name, "white")
    name = Text("" if width == "narrow" else f"{job.queue.name:<11} ", colour)
    name.append(plain(f"{job.name} {job.id}"), "default")
    if job.attempts_made:
        number = job.attempts_made + 1
        name.append(f" ({number})" if width == "narrow" else f" (attempt {number})", "yellow")
    bar = ProgressBar(total=100, completed=done, complete_style=colour, finished_style=colour)
    return [name, bar, Text(f"{done:.0f}%")]


def _events(moments: Sequence[Moment], rows: int, out: Console) -> Group:
    signs = _SIGNS if out.encoding.startswith("utf") else _PLAIN_SIGNS
    lines = [_event(moment, signs) for moment in moments[-rows:]]
    return Group(*lines, *(Text("") for _ in range(rows - len(lines))))


def _event(moment: Moment, signs: dict[str, str]) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{moment.at:4.1f}  ", "bright_black")
    line.append(f"{signs[moment.kind]} ", _STYLES[moment.kind])
    line.append(f"{moment.queue} ", _COLOURS.get(moment.queue, ""))
    line.append(plain(f"{moment.job}  "))
    line.append(plain(moment.text), _STYLES[moment.kind] if moment.kind != "completed" else "bright_black")
    return line


_FRAME: Final = 0.1  # seconds
_KEPT: Final = 30


class Chronicle:
    """The latest events, as lines."""

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
            return f"{event.error}; retrying in {span(round((event.delay or 0) * 1000))}"
        case "cancelled":
            return f"cancelled: {event.error}"
        case _:
            return f"failed: {event.error}"


@asynccontextmanager
async def spoken(chronicle: Chronicle) -> AsyncIterator[None]:
    """The line for an event."""

    def tell(moment: Moment) -> None:
        click.echo(plain(f"{moment.at:5.1f} s  {moment.queue:<10}  {moment.job:<19}  {moment.text}"))

    chronicle.tell = tell
    click.echo("A small demo shop, on a store in one file:")
    yield
    click.echo()


@asynccontextmanager
async def live(app: App, chronicle: Chronicle, out: Console) -> AsyncIterator[None]:
    """The queues, the running jobs and the latest events, redrawn ten times a second."""
    with Live(console=out, auto_refresh=False, transient=True) as screen:
        async with asyncio.TaskGroup() as group:
            drawing = group.create_task(_draw(app, chronicle, screen))
            try:
                yield
            finally:
                drawing.cancel()


async def _draw(app: App, chronicle: Chronicle, screen: Live) -> None:
    while True:
        sight = await DemoView.of(app, chronicle.seconds, chronicle.moments)
        screen.update(picture(sight, screen.console), refresh=True)
        await SYSTEM.sleep(_FRAME)
