"""`toril scan`: run a scanner of an app once, dry if one only wants to know."""

import asyncio
import sys

import click

from toril.cli.endings import Failure, say
from toril.cli.loading import load

__all__ = ["scan"]


@click.command()
@click.argument("target", metavar="MODULE:APP", envvar="TORIL_APP")
@click.argument("scanner")
@click.option("--dry-run", is_flag=True, help="Find, and reset nothing.")
def scan(*, target: str, scanner: str, dry_run: bool) -> None:
    """Run a scanner once, here and now: find what is stuck, and reset it. The code is 1 if some could not be."""
    found = asyncio.run(load(target).scan_alone(scanner, dry_run=dry_run))
    click.echo(found.line())
    for warning in found.warnings:
        say(f"Warning: {warning}")
    sys.stdout.flush()
    if failed := found.counts["failed"]:
        raise Failure(f"{failed} could not be reset")
