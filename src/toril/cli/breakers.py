"""`toril breakers`: list circuits, and open or close them by hand."""

from typing import Any, Final

import click

from toril import App
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.store_option import StoreOption, on_store, refuse_early_options, store_options
from toril.cli.terminal import Column, Lines, age, ahead, duration, json_option, show
from toril.operate.documents import of_circuit
from toril.records import CircuitRecord

__all__ = ["breakers"]

_COLUMNS: Final = [
    Column("key"), Column("state", 1), Column("since", 3), Column("failures", 2, numbers=True), Column("detail", 4),
]  # fmt: skip


@click.group(invoke_without_command=True)
@store_options
@json_option
@click.pass_context
def breakers(ctx: click.Context, *, place: StoreOption, as_json: bool) -> None:
    """List circuits that have counted failures; trip or reset one."""
    if ctx.invoked_subcommand is not None:
        refuse_early_options(ctx)
        return

    async def look(app: App) -> list[CircuitRecord]:
        return await app.breakers.list()

    found = list(map(of_circuit, on_store(place, look)))
    show(Lines(found, _COLUMNS, _row, "All circuits are closed."), as_json=as_json)


@breakers.command()
@click.argument("key")
@click.option("--for", "seconds", type=duration, help="How long it stays open: 10m.")
@store_options
@json_option
def trip(*, key: str, seconds: float | None, place: StoreOption, as_json: bool) -> None:
    """Open the circuit KEY: its jobs are deferred without spending an attempt."""

    async def act(app: App) -> CircuitRecord:
        return await app.breakers.trip(key, seconds)

    found = of_circuit(on_store(place, act))
    click.echo(on_a_line(found) if as_json else plain(f"{key} is open; the next probe is {ahead(found['till'])}."))


@breakers.command()
@click.argument("key")
@store_options
@json_option
def reset(*, key: str, place: StoreOption, as_json: bool) -> None:
    """Close the circuit KEY and reset its counts."""

    async def act(app: App) -> bool:
        return await app.breakers.reset(key)

    known = on_store(place, act)
    text = f"{key} is closed." if known else f"{key} was already closed."
    click.echo(on_a_line({"key": key, "state": "closed", "known": known}) if as_json else plain(text))


def _row(found: dict[str, Any]) -> list[object]:
    detail = {
        "open": f"next probe {ahead(found['till'])}",
        "half-open": f"{found['probes']} probes running, {found['passed']} passed",
    }.get(found["state"], "")
    return [found["key"], found["state"], age(found["since"]), found["failures"], detail]
