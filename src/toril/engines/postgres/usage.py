"""Estimates how much room a queue takes in a PostgreSQL database."""

from typing import Final

from toril.engines.sql.schema import first_key
from toril.engines.sql.statements import statements
from toril.engines.sql.transaction import Transaction
from toril.model import USAGE_SAMPLE, Usage

__all__ = ["usage"]

_SQL: Final = statements("usage", __package__)


def usage(tx: Transaction, name: str) -> Usage:
    """What a queue takes, before long values are compressed; nothing, if nothing was ever put into it."""
    row = tx.find(name)
    if row is None:
        return Usage(bytes=0, jobs=0, sampled=0)
    jobs = row.jobs
    first, end = first_key(row.key), first_key(row.key + 1)
    found = tx.one(_SQL["bounds"], (first, end)) if jobs else None
    sizes = [size for (size,) in tx.all(_SQL["sizes"], (*found, USAGE_SAMPLE, jobs))] if found else []
    held = sum(sizes) / len(sizes) * jobs if sizes else 0.0
    return Usage(bytes=round(held + tx.value(_SQL["records"], (row.key,))), jobs=jobs, sampled=len(sizes))
