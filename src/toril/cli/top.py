"""`toril top`: watch queues and workers in the terminal."""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from toril import App, EngineUnavailable, State
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.store_option import StoreOption, on_store, store_options
from toril.cli.terminal import duration, json_option, span
from toril.model import ms_of
from toril.operate.documents import of_overview
from toril.operate.metrics import Overview, QueueOverview
from toril.records import WorkerRecord
from toril.runtime.clock import SYSTEM

__all__ = ["top"]

_NARROW: Final = 80
_BARS: Final = " ▁▂▃▄▅▆▇█"
_LOOKED: Final = 20  # queues whose running jobs are read, and jobs of each
_QUIT: Final = frozenset({"q", "Q", "\x03", "\x04"})


@dataclass(frozen=True, slots=True)
class Frame:
    """The fleet at one moment; `running` has the names of the jobs that each worker runs, as far as they were read."""

    overview: Overview
    running: Mapping[str, Sequence[str]]


@click.command()
@click.option("--once", is_flag=True, help="Print once and exit.")
@click.option("--every", type=duration, default="2s", show_default=True, help="How often to refresh.")
@store_options
@json_option
def top(*, once: bool, every: float, place: StoreOption, as_json: bool) -> None:
    """Watch queues and workers live: throughput, waiting times and running jobs. Press q to quit."""
    if not 0.5 <= every <= 60:
        raise click.BadParameter("must be from 0.5s to 60s", param_hint="--every")
    if as_json:
        click.echo(on_a_line(on_store(place, _document)))
    elif once or not _is_terminal():
        found = on_store(place, look)
        out = _console()
        with out.capture() as captured:
            out.print(drawn(found, out.width))
        for line in captured.get().splitlines():
            click.echo(line.rstrip(), color=True)
    else:
        on_store(place, lambda app: _watch(app, every))


async def _document(app: App) -> dict[str, object]:
    return of_overview(await app.overview())


async def look(app: App) -> Frame:
    """Read the fleet. Running jobs are read from a few queues only, because there may be thousands."""
    overview = await app.overview()
    running: dict[str, list[str]] = {}
    busy = sorted((each for each in overview.queues if each.counts.active), key=lambda each: -each.counts.active)
    for each in busy[:_LOOKED]:
        for record in (await app.store.page(each.queue, State.ACTIVE, limit=_LOOKED)).items:
            running.setdefault(record.worker or "", []).append(record.name)
    return Frame(overview, running)


async def _watch(app: App, every: float) -> None:
    """Draw frames until q is pressed. If the store is away, keep the last frame and wait."""
    out, trouble = _console(), ""
    frame = await look(app)
    with _keys() as pressed, Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            body = drawn(frame, out.width, out.height - 1)
            live.update(Group(body, Text(trouble or "q to quit", "red" if trouble else "dim")), refresh=True)
            if await _quits(pressed, every):
                return
            try:
                frame, trouble = await look(app), ""
            except EngineUnavailable as error:
                trouble = plain(str(error))[: out.width]


async def _quits(pressed: "asyncio.Queue[str]", every: float) -> bool:
    """Whether q is pressed before the next frame."""
    timer = SYSTEM.later(every, lambda: pressed.put_nowait(""))
    try:
        while (key := await pressed.get()) not in _QUIT:
            if not key:  # time for the next frame
                return False
        return True
    finally:
        timer.cancel()


@contextmanager
def _keys() -> "Iterator[asyncio.Queue[str]]":
    """The keys that are pressed, without echo."""
    import termios  # noqa: PLC0415 - there is none on other systems than these
    import tty  # noqa: PLC0415

    pressed: asyncio.Queue[str] = asyncio.Queue()
    fd, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    # The end of input counts as a key, or it would be read again and again.
    loop.add_reader(fd, lambda: pressed.put_nowait(os.read(fd, 1).decode("latin-1") or "q"))
    try:
        yield pressed
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def drawn(frame: Frame, width: int, height: int = 1000) -> RenderableType:
    """A frame at this width. If not all queues fit, those that need attention come first."""
    found = frame.overview
    room = max(4, height - 5)
    workers = found.workers[: max(3, min(len(found.workers), room // 3))]
    queues = sorted(found.queues, key=_urgency)[: max(3, room - len(workers))]
    left_out = [(len(found.queues) - len(queues), "queues"), (len(found.workers) - len(workers), "workers")]
    rest = ", ".join(f"{many} more {what}" for many, what in left_out if many)
    parts: list[RenderableType] = [_head(found, width), _queues(queues, width), Text("")]
    parts.append(_workers(workers, frame.running, found.now) if workers else Text("no live workers", "red"))
    return Group(*parts, *([Text(f"and {rest}", "dim")] if rest else []))


def _urgency(each: QueueOverview) -> tuple[bool, bool, int, str]:
    counts = each.counts
    return (not each.waits_too_long, not counts.active, -(counts.waiting + counts.prioritized), each.queue)


def _head(found: Overview, width: int) -> Text:
    slots, running = sum(each.slots for each in found.workers), sum(each.running for each in found.workers)
    rate = sum(each.rate for each in found.queues)
    clock = f"{found.now:%H:%M:%S} UTC"
    line = "  ".join([
        _counted(len(found.queues), "queue"), _counted(len(found.workers), "worker"), f"{running} of {slots} slots",
        f"{_number(rate)}/min",
    ])  # fmt: skip
    return Text(f"{line:<{max(0, width - len(clock) - 1)}} {clock}", "bold", overflow="crop", no_wrap=True)


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _queues(queues: Sequence[QueueOverview], width: int) -> Table:
    wide = width >= _NARROW + 20
    ends = ("failed", "cancelled") if wide else ("failed",)
    table = _table("queue", "waiting", "active", "delayed", *ends, "/min", "fail%", "p95 wait", "oldest")
    if wide:
        table.add_column("last hour", no_wrap=True)
    for each in queues:
        counts = each.counts
        name = Text(plain(each.queue) + (" (paused)" if counts.paused else ""), "magenta" if counts.paused else "")
        name.truncate(max(12, width - 60), overflow="ellipsis")
        waits = "" if each.wait_p95 is None else span(round(each.wait_p95 * 1000))
        oldest = "" if each.oldest is None else span(round(each.oldest * 1000))
        failed = sum(each.failed)
        table.add_row(
            name,
            _number(counts.waiting + counts.prioritized),
            str(counts.active),
            _number(counts.delayed),
            Text(_number(failed), "red" if failed else ""),
            *([_number(each.cancelled)] if wide else []),
            _number(each.rate),
            Text(f"{each.failure_rate:g}", "red" if each.failure_rate >= 5 else ""),
            Text(waits, "red" if each.waits_too_long else ""),
            oldest,
            *([_sparks(each.completed)] if wide else []),
        )
    return table


def _workers(workers: Sequence[WorkerRecord], running: Mapping[str, Sequence[str]], now: datetime) -> Table:
    table = _table("worker", "running", "seen", last="jobs")
    for each in workers:
        names = plain(", ".join(sorted(set(running.get(each.id, ()))))) or plain(", ".join(each.queues))
        label = Text(plain(each.id))
        label.truncate(30, overflow="ellipsis")
        seen = span(ms_of(now) - ms_of(each.seen_at))
        table.add_row(label, f"{each.running} of {each.slots}", seen, Text(names))
    return table


def _table(first: str, *numbers: str, last: str | None = None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, expand=False)
    table.add_column(first, no_wrap=True, overflow="ellipsis")
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    if last is not None:
        table.add_column(last, no_wrap=True, overflow="ellipsis")
    return table


def _sparks(minutes: Sequence[int]) -> str:
    """An hour in twelve characters of five minutes."""
    parts = [sum(minutes[at : at + 5]) for at in range(max(0, len(minutes) - 60), len(minutes), 5)]
    most = max(parts, default=0) or 1
    return "".join(_BARS[-(-each * (len(_BARS) - 1) // most)] for each in parts)


def _number(value: float) -> str:
    """A number in at most five cells."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1000 if unit == 'k' else size):.3g}{unit}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout is not None and sys.stdout.isatty()


def _console() -> Console:
    made = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, no_color="NO_COLOR" in os.environ)
    if not made.is_terminal:
        given = os.environ.get("COLUMNS", "")
        made.width = int(given) if given.isdecimal() and 20 <= int(given) <= 1000 else _NARROW
    return made
