"""Contacts from a file that a customer has uploaded."""

from pydantic import BaseModel

from helpdesk import database
from helpdesk.database import Connection
from helpdesk.desk import declared
from toril import JobContext, Result

__all__ = ["Import", "import_contacts", "queue"]

_AT_ONCE = 50


class Import(BaseModel):
    first: int
    last: int


async def import_contacts(ctx: JobContext[Import]) -> Result:
    """Import row by row, and no row twice: a checkpoint says how far it got, and a row that exists stays as it is."""
    first, last = ctx.data.first, ctx.data.last
    at = int(ctx.last_checkpoint or first)
    while at <= last:
        ctx.raise_if_cancelled()
        upto = min(at + _AT_ONCE - 1, last)
        await database.run(save, at, upto)
        at = upto + 1
        await ctx.checkpoint(at)
        await ctx.update_progress(round(100 * (at - first) / (last - first + 1)))
    return Result(f"{last - first + 1} contacts imported", counts={"contacts": last - first + 1})


def save(db: Connection, first: int, last: int) -> None:
    db.executemany(
        "INSERT INTO contacts VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(number, f"contact-{number}@example.org") for number in range(first, last + 1)],
    )


queue = declared("data-import", {"import_contacts": import_contacts})
