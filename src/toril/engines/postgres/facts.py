"""What the doctor looks at in a PostgreSQL server."""

from typing import Final

from toril.engines.postgres.url import PostgresAddress
from toril.engines.sql.statements import statements
from toril.engines.sql.transaction import Transaction
from toril.model import DatabaseFacts
from toril.runtime.clock import SYSTEM

__all__ = ["server_facts"]

_SQL: Final = statements("facts", __package__)


def server_facts(tx: Transaction, address: PostgresAddress, *, quick: bool) -> DatabaseFacts:  # noqa: ARG001 - all are quick
    pings, skews = [], []
    for _ in range(5):
        before, began = SYSTEM.now(), SYSTEM.monotonic()
        now = tx.value(_SQL["clock"])
        took = (SYSTEM.monotonic() - began) * 1000
        pings.append(took)
        skews.append((took, now - before - took / 2))
    fastest, skew = min(skews)
    version, standby, fsync, synchronous, snapshot, dead, live = tx.one(_SQL["facts"], (address.schema,))
    return DatabaseFacts(
        place=address.name,
        version=version,
        standby=standby,
        fsync=fsync,
        synchronous_commit=synchronous,
        snapshot=snapshot,
        dead=dead,
        live=live,
        pings=tuple(pings),
        skew=0.0 if abs(skew) <= fastest / 2 else skew,
    )
