"""The summary of `toril demo`, from the store's run records."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import click
from rich.console import Console
from rich.text import Text

from toril import App
from toril.cli.escaping import compact, plain
from toril.cli.terminal import Column, console, span, table
from toril.model import RunRow, RunStatus
from toril.operate.search import JobSearch

__all__ = ["Summary", "show_summary"]


_COLUMNS: Final = [
    Column("queue"),
    Column("jobs", 1, numbers=True),
    Column("completed", 2, numbers=True),
    Column("failed", 3, numbers=True),
    Column("cancelled", 4, numbers=True),
    Column("retries", 5, numbers=True),
    Column("median", 6, numbers=True),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The run records of every queue, and the totals they should add up to."""

    added: int
    seconds: float
    runs: dict[str, list[RunRow]]

    @classmethod
    async def read(cls, app: App, added: int, seconds: float) -> "Summary":
        runs = {name: [run for ending in RunStatus for run in await _runs(app, name, ending)] for name in app.queues}
        return cls(added=added, seconds=seconds, runs=runs)

    @property
    def everything(self) -> list[tuple[str, RunRow]]:
        return [(name, run) for name, runs in self.runs.items() for run in runs]

    @property
    def ended(self) -> int:
        return len(self.everything)

    @property
    def adds_up(self) -> bool:
        return self.ended == self.added


async def _runs(app: App, name: str, status: RunStatus) -> list[RunRow]:
    found: list[RunRow] = []
    cursor: str | None = None
    while True:
        page = await JobSearch(app.queues[name]).run_rows(status, cursor, 1000)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


def show_summary(summary: Summary, url: str, program: str) -> None:
    """Print the counts, what was special, and what to try next."""
    out = console()
    every = [run for _, run in summary.everything]
    table(_COLUMNS, [*(_figures(name, runs) for name, runs in summary.runs.items()), _figures("total", every)])
    click.echo()
    _paragraph(
        out,
        f"{summary.ended} of {summary.added} jobs ended in {summary.seconds:.1f} s: "
        f"{_many(every, 'completed')} completed, {_many(every, 'failed')} failed, "
        f"{_many(every, 'cancelled')} cancelled; {_retries(every)} failed attempts were retried.",
    )
    click.echo()
    for line in _stories(summary):
        _paragraph(out, line)
    click.echo("\nThe shop's store is still there. Try next:\n")
    for line in _next(url, program):
        click.echo(f"  {line}")


def _paragraph(out: Console, text: str) -> None:
    out.print(Text(plain(text)))


def _figures(name: str, runs: Sequence[RunRow]) -> list[str]:
    counts = [len(runs), _many(runs, "completed"), _many(runs, "failed"), _many(runs, "cancelled"), _retries(runs)]
    took = [run.finished_at - run.started_at for run in runs if run.started_at is not None]
    return [name, *map(str, counts), span(round(median(took))) if took else ""]


def _many(runs: Sequence[RunRow], cause: str) -> int:
    return sum(run.cause == cause for run in runs)


def _retries(runs: Sequence[RunRow]) -> int:
    return sum(max(0, run.attempts_made - 1) for run in runs)


def _stories(summary: Summary) -> list[str]:
    """One line for each job that did not simply complete."""
    lines = []
    for queue, run in sorted(summary.everything, key=lambda each: each[1].finished_at):
        what = f"{queue}: {run.name} {run.id}"
        waited = (run.started_at or run.finished_at) - run.added_at
        if run.cause != "completed":
            lines.append(f"{what} {'was cancelled' if run.cause == 'cancelled' else 'failed'}: {run.text}")
        elif run.attempts_made > 1:
            lines.append(f"{what} needed {run.attempts_made} attempts: {_said(run)}")
        elif run.name == "ask_for_review":
            lines.append(f"{what} was delayed and started after {span(waited)}: {_said(run)}")
    return lines


def _said(run: RunRow) -> str:
    """What the handler returned."""
    return compact(json.loads(run.text) if run.whole else run.text)


def _next(url: str, program: str) -> list[str]:
    return [
        f"export TORIL_URL={url}",
        f"{program} queues",
        f"{program} jobs payments --state failed",
        f"{program} jobs emails --runs",
        f"""{program} add emails send_receipt '{{"order": 99, "to": "you@example.org"}}'""",
        f"{program} run toril.cli.demo.shop:app --burst",
    ]
