"""Formats output: tables, JSON Lines, times and log lines."""

import asyncio
import functools
import logging
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toril.cli.escaping import as_json, plain
from toril.model.durations import UNITS, seconds_written
from toril.runtime.clock import SYSTEM
from toril.runtime.logs import JobFields, output

__all__ = [
    "Column",
    "Lines",
    "ReadableLines",
    "age",
    "ahead",
    "console",
    "duration",
    "json_option",
    "show",
    "since",
    "span",
    "table",
    "write_logs",
]


def write_logs(level: str) -> None:
    """Write log lines of this level and above, from Toril and from the app."""
    handler = TerminalHandler(sys.stderr)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    output.writer = handler


_PIECE: Final = getattr(select, "PIPE_BUF", 512)  # bytes that a pipe takes at once, with nothing between them
_LOG: Final = logging.getLogger("toril")
_CALL_HANDLERS: Final = logging.Logger.callHandlers  # libraries that want to see every record replace this


class TerminalHandler(logging.StreamHandler[TextIO]):
    """Writes records one by one, and the lines of finished jobs together, once per turn of the loop: a record for each
    of them would cost more than the job. If anything else is to see these lines (another handler, a filter, a replaced
    formatter), they are passed on as records again."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._formatter = ReadableLines()
        self._job_fields = JobFields()
        self.setFormatter(self._formatter)
        self.addFilter(self._job_fields)
        self._lines: list[str] = []  # the loop's thread appends; whoever holds the handler's lock removes
        self._time = ""
        os.register_at_fork(after_in_child=self._lines.clear)  # these lines belong to the parent

    def take(self, level: int, text: str) -> bool:
        if not self._lines:
            if not self._sees_all():
                return False
            try:
                asyncio.get_running_loop().call_soon(self.flush)
            except RuntimeError:  # no loop is running, so there is no end of a turn
                return False
            self._time = time.strftime("%H:%M:%S", time.localtime(SYSTEM.now() / 1000))
        self._lines.append(f"{self._time} {_LEVELS[level]} {plain(text)}{self.terminator}")
        return True

    def unwritten(self) -> list[str]:
        return self._lines[:]

    def emit(self, record: logging.LogRecord) -> None:
        self._write_lines()
        super().emit(record)

    def flush(self) -> None:
        with self.lock or nullcontext():
            self._write_lines()
        super().flush()

    def _sees_all(self) -> bool:
        """Whether these lines reach only this handler, which prints them unchanged."""
        return (
            logging.root.handlers == [self]
            and self.formatter is self._formatter
            and self.filters == [self._job_fields]
            and self.level == logging.NOTSET
            and _LOG.propagate
            and not _LOG.filters
            and all(isinstance(each, logging.NullHandler) for each in _LOG.handlers)
            and logging.Logger.callHandlers is _CALL_HANDLERS
            and logging.getLogRecordFactory() is logging.LogRecord
        )

    def _write_lines(self) -> None:
        count = len(self._lines)
        if count:
            lines = self._lines[:count]
            del self._lines[:count]
            for text in _pieces(lines):
                try:
                    self.stream.write(text)
                except Exception:  # as for a record: an unwritable log must not end the process
                    self.handleError(logging.makeLogRecord({"msg": "%s", "args": (text,)}))


def _pieces(lines: Sequence[str]) -> Iterator[str]:
    """Whole lines, no more than a pipe takes at once: lines of other processes could come in the middle of more."""
    start, size = 0, 0
    for end, line in enumerate(lines):
        length = len(line) if line.isascii() else len(line.encode(errors="replace"))
        if size + length > _PIECE and end > start:
            yield "".join(lines[start:end])
            start, size = end, 0
        size += length
    yield "".join(lines[start:])


class ReadableLines(logging.Formatter):
    """`12:00:00 INFO    message`. What an app logs within a job carries the job's queue and id; a job that has failed
    comes with its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname:<7} {plain(record.getMessage())}"
        if record.name != "toril":
            facts = [f"{name}={vars(record)[name]}" for name in ("queue", "job_id") if name in vars(record)]
            line += plain(f" [{' '.join([record.name, *facts])}]")
        trace = self.formatException(record.exc_info) if record.exc_info else _trace_of_a_job(record)
        return "\n".join([line, *map(plain, trace.rstrip().split("\n"))]) if trace else line


_LEVELS: Final = {level: f"{logging.getLevelName(level):<7}" for level in (10, 20, 30, 40, 50)}


def _trace_of_a_job(record: logging.LogRecord) -> str:
    """The traceback of a failed job: its log record may be all that is kept of it."""
    failed = record.name == "toril" and "kind" in vars(record)
    return str(vars(record).get("detail", "")) if failed else ""


T = TypeVar("T")

_WIDE: Final = 100_000  # for pipes and files, which have no width
_STYLES: Final = {
    "active": "yellow", "completed": "green", "failed": "red", "delayed": "cyan", "paused": "magenta",
    "cancelled": "magenta", "expired": "red", "stalled": "red",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """A column. On a narrow terminal, the columns with the largest `rank` are left out first."""

    title: str
    rank: int = 0
    numbers: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """Documents for programs, and the same as rows of a table for people."""

    documents: Iterable[dict[str, Any]]
    columns: Sequence[Column]
    row: Callable[[dict[str, Any]], Sequence[object]]
    none: str


def json_option(fn: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--json`, as its argument `as_json`."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON Lines.")
    @functools.wraps(fn)
    def command(**rest: Any) -> T:
        return fn(**rest)

    return command


def show(lines: Lines, *, as_json: bool) -> None:
    """Print the documents or the table."""
    if as_json:
        documents(lines.documents)
        return
    rows = [[plain(cell) for cell in lines.row(document)] for document in lines.documents]
    if rows:
        table(lines.columns, rows)
    else:
        click.echo(lines.none, err=True)


def documents(found: Iterable[dict[str, Any]]) -> None:
    for document in found:
        click.echo(as_json(document))


def console() -> Console:
    """The terminal or its replacement. `NO_COLOR`, `TERM=dumb` and `COLUMNS` are honoured."""
    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    made = Console(file=sys.stdout, color_system=system, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _WIDE
    return made


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, as many as fit."""
    out = console()
    kept = _fitting(columns, rows, out.width)
    # By default, rich would narrow all columns to make room for the longest.
    rest = out.width - sum(max(len(columns[i].title), *(len(row[i]) for row in rows)) + _GAP for i in kept[:-1])
    grid = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for index in kept:
        column = columns[index]
        grid.add_column(
            column.title,
            justify="right" if column.numbers else "left",
            no_wrap=True,
            overflow="ellipsis" if out.encoding.startswith("utf") else "crop",
            max_width=rest if index == kept[-1] and rest >= _LEAST else None,
        )
    for row in rows:
        grid.add_row(*(Text(row[index], _STYLES.get(row[index], "")) for index in kept))
    with out.capture() as captured:
        out.print(grid)
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), color=True)


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that fit. A last column of free text may be cut instead of left out."""
    if width == _WIDE:
        return list(range(len(columns)))  # for programs, all of them, always
    kept = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    needs = [max(len(column.title), *(min(len(row[i]), 40) for row in rows)) for i, column in enumerate(columns)]
    while len(kept) > 1 and sum(needs[index] + _GAP for index in kept) - _GAP > width:
        last = max(kept, key=lambda index: columns[index].rank)
        if last == kept[-1] and sum(needs[index] + _GAP for index in kept[:-1]) + _LEAST <= width:
            break
        kept.remove(last)
    return kept


_GAP: Final = 2  # cells between columns
_LEAST: Final = 12  # cells, of what can be cut


def duration(written: str) -> float:
    """Parse `90`, `1.5s`, `10m`, `2h` or `7d`; without a unit, seconds."""
    seconds = seconds_written(written)
    if seconds is None:
        raise click.BadParameter(f"invalid duration {written!r}; expected 90, 1.5s, 10m, 2h, 7d or the like")
    return seconds


def span(ms: int) -> str:
    """A duration in its largest unit."""
    if ms < 1000:
        return f"{max(0, ms)}ms"
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.1f}s"
    for unit, size in (("s", 120), ("m", 7200), ("h", 172_800)):
        if seconds < size:
            return f"{int(seconds / UNITS[unit])}{unit}"
    return f"{int(seconds / UNITS['d'])}d"


def since(seconds: float | None) -> datetime | None:
    """The time that was this long ago."""
    return None if seconds is None else datetime.fromtimestamp(SYSTEM.now() / 1000 - seconds, UTC)


def age(ms: int | None) -> str:
    return "" if ms is None else f"{span(SYSTEM.now() - ms)} ago"


def ahead(ms: int | None) -> str:
    """How long until something is due."""
    if ms is None:
        return ""
    left = ms - SYSTEM.now()
    return "due now" if left <= 0 else f"due in {span(left)}"
