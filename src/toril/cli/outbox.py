"""`toril outbox`: create, list, retry and relay an outbox."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final, TypeVar

import click

from toril.cli.exit import say
from toril.cli.store_option import StoreOption, on_store, store_options
from toril.cli.terminal import Column, Lines, json_option, show, span, write_logs
from toril.outbox.database import Database, OutboxRow
from toril.store.engine import redacted

__all__ = ["outbox"]

T = TypeVar("T")

_COLUMNS: Final = [
    Column("id", numbers=True), Column("age", 3, numbers=True), Column("queue", 1), Column("job", 4),
    Column("state", 2), Column("error", 5),
]  # fmt: skip
_PAGE: Final = 1000

_database = click.argument("database", metavar="URL", envvar="TORIL_OUTBOX")


@click.group()
def outbox() -> None:
    """Manage an outbox: jobs that an application wrote to its own database at URL and that wait to be relayed.

    URL is postgresql://… or sqlite:///app.db. If it contains a password, set TORIL_OUTBOX instead of typing it here.
    """


@outbox.command()
@_database
def create(*, database: str) -> None:
    """Create the tables of an outbox if they do not exist."""
    _in(database, Database.create)
    click.echo(f"The outbox in {redacted(database)} is ready.")


@outbox.command("list")
@_database
@click.option("--refused", is_flag=True, help="Only rows that were refused.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Maximum number of rows.")
@json_option
def listed(*, database: str, refused: bool, limit: int, as_json: bool) -> None:
    """List the rows of an outbox, oldest first."""

    def look(opened: Database) -> list[OutboxRow]:
        found = (row for row in _rows(opened) if row.error is not None or not refused)
        return [row for row, _ in zip(found, range(limit), strict=False)]

    rows = _in(database, look)
    show(Lines(map(_document, rows), _COLUMNS, _row, "The outbox is empty."), as_json=as_json)


@outbox.command()
@_database
@click.argument("rows", metavar="ID...", type=int, nargs=-1, required=True)
def retry(*, database: str, rows: tuple[int, ...]) -> None:
    """Retry rows that were refused."""

    def again(opened: Database) -> None:
        for row in rows:
            opened.again(row)

    _in(database, again)
    click.echo(f"{len(rows)} {'row' if len(rows) == 1 else 'rows'} will be retried.")


@outbox.command(context_settings={"auto_envvar_prefix": "TORIL"})
@_database
@click.option("--once", is_flag=True, help="Relay what is there now, then exit.")
@click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info")
@store_options
def relay(*, database: str, once: bool, log_level: str, place: StoreOption) -> None:
    """Relay jobs from the outbox at URL to the store at --url until stopped by a signal.

    Workers of an app with an outbox do this by themselves. Any number of relays can run side by side.
    """
    write_logs(log_level)
    if once:
        handed = on_store(place, lambda app: app.relay_once(database), missing="create")
        click.echo(f"Relayed {handed} {'job' if handed == 1 else 'jobs'}.")
    else:
        asyncio.run(place.to_app().relay(database))


def _in(url: str, work: Callable[[Database], T]) -> T:
    """Run `work` with the database open, and return its answer."""
    if redacted(url) != url and _typed():
        say("Warning: other users of this machine can see a password on the command line; set TORIL_OUTBOX instead")
    with closing(Database(url)) as database:
        database.check_driver()
        return work(database)


def _typed() -> bool:
    source = click.get_current_context().get_parameter_source("database")
    return source is click.core.ParameterSource.COMMANDLINE


def _rows(database: Database) -> Iterator[OutboxRow]:
    page = database.rows(0, _PAGE)
    while page:
        yield from page
        page = database.rows(page[-1].id, _PAGE)


def _document(row: OutboxRow) -> dict[str, Any]:
    state = "refused" if row.error is not None else "waiting" if row.lane is None else "taken"
    return {
        "id": row.id, "queue": row.queue, "job_id": row.job_id, "age_ms": row.age, "state": state, "error": row.error,
    }  # fmt: skip


def _row(row: dict[str, Any]) -> list[object]:
    return [row["id"], span(row["age_ms"]), row["queue"], row["job_id"], row["state"], row["error"] or ""]
