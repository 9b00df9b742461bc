"""`toril doctor`: check a store, and repair what is wrong."""

from collections.abc import Sequence
from typing import Any, Final

import click

from toril import App, EngineUnavailable, EngineUnusable
from toril.cli.arguments import agreed, yes_option
from toril.cli.completion import queue_names
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.exit import say
from toril.cli.store_option import StoreOption, declared, on_store, store_options
from toril.cli.terminal import json_option
from toril.model import Finding, Repaired, RepairOutcome, Severity
from toril.operate.documents import of_finding
from toril.store.engine import redacted

__all__ = ["doctor"]

_COLOURS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow"}
_SHOWN: Final = 20  # repairs to list before asking


@click.command()
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    shell_complete=queue_names,
    help="Check only this queue; repeatable.",
)
@click.option("--repair", is_flag=True, help="Show what can be repaired, ask, and repair it.")
@click.option("--dry-run", is_flag=True, help="With --repair: only show what would be repaired.")
@yes_option
@store_options
@json_option
def doctor(
    *, queues: tuple[str, ...], repair: bool, dry_run: bool, yes: bool, place: StoreOption, as_json: bool
) -> int:
    """Check a store: the server or file, and how its jobs are stored. Nothing is changed without --repair.

    It is safe beside workers: every finding was seen twice, a second apart, and each repair checks once more in the
    same step. Exits with 1 if there are findings other than notices, else with 0.
    """
    if dry_run and not repair:
        raise click.UsageError("--dry-run needs --repair; without it, nothing is changed anyway")
    try:
        findings = on_store(place, lambda app: _looked_over(app, queues))
    except (EngineUnusable, EngineUnavailable) as error:
        findings = [_unusable(place, error)]
    if not repair:
        _show(findings, as_json=as_json)
        return _code(findings)
    repairable = [finding for finding in findings if finding.fault is not None]
    others = [finding for finding in findings if finding.fault is None]
    _foretell(repairable, others, as_json=as_json, dry_run=dry_run)
    if dry_run or not repairable:
        return _code(findings)
    agreed(f"This repairs {len(repairable)} of {len(findings)} findings.", yes=yes)
    return _code([*others, *_repair(place, repairable, as_json=as_json)])


def _show(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print each finding on a line of its own, with its fix below: a sentence cut off at the edge of the terminal helps
    nobody."""
    for finding in findings:
        if as_json:
            click.echo(on_a_line(of_finding(finding)))
            continue
        severity = click.style(f"{finding.severity.value:<8}", fg=_COLOURS.get(finding.severity))
        click.echo(f"{severity} {finding.code}: {plain(finding.summary)}")
        click.echo(plain(f"         where: {finding.where}"))
        click.echo(plain(f"         fix:   {finding.fix}"))
    if not findings:
        say("No problems found.")


async def _looked_over(app: App, queues: Sequence[str]) -> list[Finding]:
    for queue in queues:
        await declared(app, queue)
    return await app.doctor(queues or None)


def _foretell(repairable: Sequence[Finding], others: Sequence[Finding], *, as_json: bool, dry_run: bool) -> None:
    """List what would be repaired, and what `--repair` cannot repair. Documents of the former include the outcome."""
    if as_json:
        for finding in (*others, *(repairable if dry_run else ())):
            click.echo(on_a_line(of_finding(finding)))
    else:
        for finding in others:
            say(f"Not repairable: {finding.summary} ({finding.fix})")
        for finding in repairable[:_SHOWN]:
            say(f"Would repair: {finding.summary}")
        if len(repairable) > _SHOWN:
            say(f"Would repair: {len(repairable) - _SHOWN} more")
    if not repairable:
        say("There is nothing to repair.")


def _repair(place: StoreOption, repairable: Sequence[Finding], *, as_json: bool) -> list[Finding]:
    """Repair the findings that are still there."""
    repaired = on_store(place, lambda app: app.repair(repairable))
    for each in repaired:
        click.echo(on_a_line(_document(each)) if as_json else plain(f"{each.outcome.value:<7} {each.finding.summary}"))
    return [each.finding for each in repaired if each.outcome is RepairOutcome.FAILED]


def _code(findings: Sequence[Finding]) -> int:
    return 1 if any(finding.severity is not Severity.NOTICE for finding in findings) else 0


def _unusable(place: StoreOption, error: Exception) -> Finding:
    where = redacted(place.url) if place.url else place.app or "the store"
    return Finding(
        code="unusable",
        severity=Severity.ERROR,
        summary=str(error),
        where=where,
        fix="fix the problem above, then run toril doctor again",
    )


def _document(repaired: Repaired) -> dict[str, Any]:
    return of_finding(repaired.finding) | {"outcome": repaired.outcome.value}
