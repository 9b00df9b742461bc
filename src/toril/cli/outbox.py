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
    """The jobs that applications have written into their own database at URL, and that wait to be handed over.

    URL is postgresql://… or sqlite:///app.db; with a password in it, better set as TORIL_OUTBOX than typed here.
    """


@outbox.command()
@_database
def create(*, database: str) -> None:
    """Make the tables of an outbox, unless they are there."""
    _in(database, Database.create)
    click.echo(f"There is an outbox in {redacted(database)}.")


@outbox.command("list")
@_database
@click.option("--refused", is_flag=True, help="Only those that cannot be handed over.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many rows at most.")
@json_option
def listed(*, database: str, refused: bool, limit: int, as_json: bool) -> None:
    """What is in an outbox, the oldest first."""

    def look(opened: Database) -> list[OutboxRow]:
        found = (row for row in _rows(opened) if row.error is not None or not refused)
        return [row for row, _ in zip(found, range(limit), strict=False)]

    rows = _in(database, look)
    show(Lines(map(_document, rows), _COLUMNS, _row, "Nothing is in the outbox."), as_json=as_json)


@outbox.command()
@_database
@click.argument("rows", metavar="ID...", type=int, nargs=-1, required=True)
def retry(*, database: str, rows: tuple[int, ...]) -> None:
    """Let rows that were refused be tried again."""

    def again(opened: Database) -> None:
        for row in rows:
            opened.again(row)

    _in(database, again)
    click.echo(f"{len(rows)} will be tried again.")


@outbox.command(context_settings={"auto_envvar_prefix": "TORIL"})
@_database
@click.option("--once", is_flag=True, help="Hand over what is there now, and end.")
@click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info")
@store_options
def relay(*, database: str, once: bool, log_level: str, place: StoreOption) -> None:
    """Hand over to the store at --url what is in the outbox at URL, until a signal says stop.

    Workers of an app with an outbox do that by themselves. Any number of relays can work beside each other.
    """
    write_logs(log_level)
    if once:
        handed = on_store(place, lambda app: app.relay_once(database), missing="create")
        click.echo(f"{handed} handed over.")
    else:
        asyncio.run(place.to_app().relay(database))


def _in(url: str, work: Callable[[Database], T]) -> T:
    """What `work` answers, with the database open."""
    if redacted(url) != url and _typed():
        say("Warning: a password on the command line is seen by others on this machine; set TORIL_OUTBOX instead")
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
