"""`toril scan`: run one of the app's scanners once."""

import asyncio
import sys

import click

from toril.app import App
from toril.cli.exit import CommandFailed, say
from toril.cli.loading import load
from toril.cli.store_option import is_typed
from toril.model.attempts import Result

__all__ = ["scan"]


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[MODULE:APP] SCANNER")
@click.option("--dry-run", is_flag=True, help="Only find; reset nothing.")
@click.option(
    "--app",
    "-A",
    metavar="MODULE:APP",
    envvar="TORIL_APP",
    help="The app that declares the scanner. [default: $TORIL_APP]",
)
def scan(*, words: tuple[str, ...], dry_run: bool, app: str | None) -> None:
    """Run a scanner once, now: find what is stuck and reset it. Exits with 1 if something could not be reset."""
    *named, scanner = words
    if len(named) > 1:
        raise click.UsageError(f"got unexpected extra arguments ({' '.join(words[2:])})")
    if named and is_typed("app"):
        raise click.UsageError("the app is given twice: use MODULE:APP or --app, not both")
    target = named[0] if named else app
    if target is None:
        raise click.UsageError("no app is given: put MODULE:APP before SCANNER, use --app, or set TORIL_APP")
    found = asyncio.run(_run(load(target), scanner, dry_run=dry_run))
    click.echo(found.line())
    for warning in found.warnings:
        say(f"Warning: {warning}")
    sys.stdout.flush()
    if failed := found.counts["failed"]:
        raise CommandFailed(f"{failed} could not be reset")


async def _run(app: App, scanner: str, *, dry_run: bool) -> Result:
    async with app.opened_with_lifespan():
        return await app.scan(scanner, dry_run=dry_run)
