"""`toril torture`: stress-test a store by killing processes and cutting connections."""

import asyncio
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import click

from toril.cli.escaping import as_json as on_a_line
from toril.cli.exit import CommandFailed, say
from toril.cli.terminal import Column, json_option, table
from toril.runtime.clock import SYSTEM
from toril.store.connect import is_in_memory
from toril.torture.checker import PROMISES, TortureReport
from toril.torture.driver import Torture, faults_of
from toril.torture.driver import torture as tortured

__all__ = ["torture"]

_FIRST: Final = ("attempted", "acknowledged", "completed")
_STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option("--seed", type=int, help="Seed of the jobs and the faults. [default: random]")
@click.option(
    "--url",
    default="sqlite",
    show_default=True,
    metavar="URL",
    help="Store URL; or redis or sqlite, to start a store of its own and make its server fail too.",
)
@click.option("--jobs", type=click.IntRange(1, 10_000_000), default=3000, show_default=True)
@click.option(
    "--minutes", type=click.FloatRange(0.05, 10_000), default=1.0, show_default=True, help="Minutes of faults."
)
@click.option("--workers", type=click.IntRange(1, 64), default=4, show_default=True, help="Number of worker processes.")
@click.option(
    "--lease", type=click.FloatRange(0.5, 600), default=2.0, show_default=True, help="Lease of the jobs, in seconds."
)
@click.option(
    "--every", type=click.FloatRange(0.05, 600), default=0.8, show_default=True, help="Seconds between faults."
)
@click.option("--own-disk", is_flag=True, help="With --url sqlite, as root: use a disk that fills up and loses power.")
@click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), help="Write all results to this file, as JSON."
)
@click.option("--keep", is_flag=True, help="Keep the logs of the processes even if every promise was kept.")
@click.option("--dry-run", is_flag=True, help="Only print the faults that the seed produces.")
@json_option
def torture(
    *,
    seed: int | None,
    url: str,
    jobs: int,
    minutes: float,
    workers: int,
    lease: float,
    every: float,
    own_disk: bool,
    report: Path | None,
    keep: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run jobs in real processes that are killed, frozen and disconnected, and count the jobs lost.

    It uses queues of its own in the store and removes them afterwards. It only kills a store that it started itself.
    Exits with 0 if every promise was kept, with 1 if one was broken. A signal ends it early and leaves nothing behind.
    """
    if own_disk and url != "sqlite":
        raise click.UsageError("--own-disk needs --url sqlite")
    if is_in_memory(url):
        raise click.UsageError("memory:// is private to one process and does not outlive it: use sqlite:// or redis://")
    folder = Path(tempfile.mkdtemp(prefix="toril-torture-"))
    tag = SYSTEM.unique()[:8]
    drawn = int(SYSTEM.random() * 1_000_000) if seed is None else seed
    run = Torture(
        seed=drawn,
        url=url,
        jobs=jobs,
        seconds=minutes * 60,
        folder=folder,
        tag=tag,
        workers=workers,
        lease=lease,
        every=every,
        own_disk=own_disk,
    )
    try:
        if dry_run:
            return _print_plan(run)
        came = asyncio.run(_until_asked_to_stop(run))
        if isinstance(came, signal.Signals):
            return _stopped(came)
        keep = keep or bool(came.broken)  # they are needed to find out what went wrong
        return _print_report(came, report, as_json=as_json)
    finally:
        if keep:
            say(f"The logs of the processes are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


async def _until_asked_to_stop(run: Torture) -> TortureReport | signal.Signals:
    """The report; or the signal that came first, once everything that was started has ended."""
    loop, running, came = asyncio.get_running_loop(), asyncio.ensure_future(tortured(run)), list[signal.Signals]()

    def stop(number: signal.Signals) -> None:
        if not came:
            running.cancel()
        came.append(number)

    for number in _STOPS:
        loop.add_signal_handler(number, stop, number)
    try:
        return await running
    except asyncio.CancelledError:
        if not came:
            raise
        return came[0]


def _stopped(number: signal.Signals) -> int:
    say(f"Stopped by {number.name} before anything was counted")
    return 128 + number


def _print_plan(run: Torture) -> int:
    rows = [[f"{fault.at:.1f}", fault.kind.value, f"{fault.seconds:.1f}"] for fault in faults_of(run)]
    table([Column("at", numbers=True), Column("fault"), Column("for", numbers=True)], rows)
    return 0


def _print_report(report: TortureReport, path: Path | None, *, as_json: bool) -> int:
    if path is not None:
        path.write_text(json.dumps(report.document(), indent=1) + "\n", "utf-8")
    if as_json:
        click.echo(on_a_line(report.document()))
    else:
        _show(report)
    if report.broken:
        raise CommandFailed(f"seed {report.seed} broke a promise: {', '.join(report.broken)}")
    return 0


def _show(report: TortureReport) -> None:
    figures = report.figures
    others = [name for name in figures if name not in {*_FIRST, *PROMISES}]
    rows: list[list[Any]] = [[name, str(figures[name])] for name in (*_FIRST, *PROMISES, *others)]
    rows += [[f"fault: {name}", str(count)] for name, count in report.injected.items()]
    rows += [[f"recovery after kill -9, {name}", f"{seconds} s"] for name, seconds in report.recovery.items()]
    table([Column("what"), Column("count", numbers=True)], rows)
    for name, found in report.offenders.items():
        say(f"{name}: {', '.join(found)}")
    sys.stdout.flush()
    say(f"Seed {report.seed}, {report.seconds} s on {report.url}")
