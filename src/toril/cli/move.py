"""`toril move`: move everything to another store while workers run on both."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.exit import CommandFailed, say
from toril.cli.store_option import check_there
from toril.cli.terminal import Column, json_option, table
from toril.errors import InvalidOption
from toril.model import LOAD, JobRef
from toril.operate.transfer import Transfer, TransferPlan, TransferProgress
from toril.runtime.clock import SYSTEM
from toril.store.connect import is_in_memory
from toril.store.engine import Store, connect, redacted

__all__ = ["move"]

_OFTEN: Final = 10.0  # seconds between lines where there is no terminal
_SHOWN: Final = 10


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--prefix", default="bull", show_default=True, help="Redis key prefix of FROM.")
@click.option("--to-prefix", metavar="TEXT", help="Redis key prefix of TO, if it differs.")
@click.option(
    "--batch-size",
    "load",
    type=click.IntRange(1, 10_000),
    default=LOAD,
    show_default=True,
    help="Jobs per batch.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be moved and what conflicts.")
@json_option
def move(
    *, source: str, target: str, prefix: str, to_prefix: str | None, load: int, dry_run: bool, as_json: bool
) -> int:
    """Move everything from the store FROM to the store TO: jobs in every state, schedules, dead letters, settings and
    records. Workers of both can keep running.

    The queues of FROM are paused first. Jobs running there are moved once they end, and jobs added there meanwhile are
    moved as well. If the move is interrupted, run the same command again: it continues where it stopped.
    """
    for url in (source, target):
        if redacted(url) != url:
            say("Warning: other users of this machine can see a password on the command line")
    check_there(source, named=True)
    if is_in_memory(target):
        raise InvalidOption(
            "a memory:// store is gone when this command ends: move to sqlite://, postgresql:// or redis://"
        )
    prefixes = (prefix, prefix if to_prefix is None else to_prefix)
    return asyncio.run(_moved((source, target), prefixes, load, dry_run=dry_run, as_json=as_json))


async def _moved(urls: tuple[str, str], prefixes: tuple[str, str], load: int, *, dry_run: bool, as_json: bool) -> int:
    began = SYSTEM.monotonic()
    async with _opened(urls[0], prefixes[0]) as source, _opened(urls[1], prefixes[1]) as target:
        if dry_run:
            outlook = await Transfer(source, target, SYSTEM).outlook()
            _foretell(outlook, as_json=as_json)
            return 1 if outlook.clashes else 0
        with _watched(as_json=as_json) as tell:
            moved = await Transfer(source, target, SYSTEM, load=load, tell=tell).move()
    _tell(moved, redacted(urls[1]), SYSTEM.monotonic() - began, as_json=as_json)
    return 0


@asynccontextmanager
async def _opened(url: str, prefix: str) -> AsyncIterator[Store]:
    store = connect(url, prefix=prefix)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _foretell(outlook: TransferPlan, *, as_json: bool) -> None:
    queues = {
        queue: {"jobs": jobs, "running": running, "schedules": schedules}
        for queue, (jobs, running, schedules) in outlook.queues.items()
    }
    if as_json:
        click.echo(on_a_line({"queues": queues, "dead_letters": outlook.letters, "clashes": _refs(outlook.clashes)}))
        return
    if queues:
        columns = [Column("queue"), Column("jobs", numbers=True), Column("running", numbers=True)]
        rows = [[queue, *map(str, counts.values())] for queue, counts in queues.items()]
        table([*columns, Column("schedules", numbers=True)], rows)
    kinds = f"{_many(outlook.schedules, 'schedule')} and {_many(outlook.letters, 'dead letter')}"
    click.echo(f"Would move {_many(outlook.jobs, 'job')}, {kinds}.")
    for ref in outlook.clashes[:_SHOWN]:
        say(f"Conflict: TO also has a job {ref.id!r} in queue {ref.queue!r}; remove or finish it there")
    if outlook.clashes:
        raise CommandFailed(f"{_many(len(outlook.clashes), 'job id')} in conflict")


def _refs(refs: tuple[JobRef, ...] | list[JobRef]) -> list[dict[str, str]]:
    return [{"queue": ref.queue, "id": ref.id} for ref in refs]


@contextmanager
def _watched(*, as_json: bool) -> Iterator[Callable[[TransferProgress], None]]:
    """A progress bar on a terminal, else a line now and then."""
    if as_json or sys.stderr is None or not sys.stderr.isatty():
        yield _Lines(quiet=as_json).tell
        return
    from rich.console import Console  # noqa: PLC0415 - only where there is a terminal

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("moving", total=None)

        def tell(moving: TransferProgress) -> None:
            waits = f"moving ({moving.running} still running)" if moving.running else "moving"
            bar.update(task, description=waits, completed=moving.jobs, total=moving.jobs + moving.left)

        yield tell


class _Lines:
    """Progress as lines, where there is no terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._shown_at = SYSTEM.monotonic()

    def tell(self, moving: TransferProgress) -> None:
        if not self._quiet and SYSTEM.monotonic() - self._shown_at >= _OFTEN:
            self._shown_at = SYSTEM.monotonic()
            say(f"moved {moving.jobs} jobs; {moving.left} left, {moving.running} of them running")


def _tell(moved: TransferProgress, target: str, seconds: float, *, as_json: bool) -> None:
    if as_json:
        document: dict[str, Any] = {
            "jobs": moved.jobs, "schedules": moved.schedules, "dead_letters": moved.letters,
            "already_there": _refs(moved.taken), "seconds": round(seconds, 3),
        }  # fmt: skip
        click.echo(on_a_line(document))
        return
    kinds = f"{_many(moved.schedules, 'schedule')} and {_many(moved.letters, 'dead letter')}"
    click.echo(f"Moved {_many(moved.jobs, 'job')}, {kinds} in {seconds:.1f} s.")
    for ref in moved.taken[:_SHOWN]:
        click.echo(plain(f"Skipped: {ref.id} of {ref.queue}, since TO already has a job with that id"))
    if len(moved.taken) > _SHOWN:
        click.echo(f"Skipped: {len(moved.taken) - _SHOWN} more")
    say(f"The old store is empty and its queues are paused. Point workers and producers at {target},")
    say("then run this command again to move anything still added to the old store.")


def _many(many: int, word: str) -> str:
    return f"{many} {word}{'' if many == 1 else 's'}"
