"""The consequences of a queue's changes: admit groups, count metrics, notify parents."""

from toril.engines.sql.add import release_keys
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.driver import SqlConnection, SqlDialect
from toril.engines.sql.flows import children_ended, remove_from_flows
from toril.engines.sql.groups import refill, touched
from toril.engines.sql.metrics import record
from toril.engines.sql.transaction import Transaction

__all__ = ["commit", "transaction"]


def transaction(connection: SqlConnection, dialect: SqlDialect) -> Transaction:
    """A transaction whose steps have their effects."""
    return Transaction(connection, dialect, commit)


def commit(step: QueueChanges) -> None:
    """Make the collected writes, then trim, then count, then write the events; then notify parents of their
    children."""
    left, step.left = step.left, []
    names = step.touched | dict.fromkeys(touched(step.tx, left)) if left else step.touched
    if step.removed_early and step.row.flows:
        remove_from_flows(step)
    step.make_writes()
    step.trim()
    step.count_ended()
    if step.counted:
        record(step.tx, step.row, step.counted)
        step.counted = {}
    step.write_events()
    if step.ended_keys:
        release_keys(step)
    if step.ended_children:
        children_ended(step)
    if names:  # last: a parent that is released may be older than others that wait in its group
        step.touched = {}
        refill(step, names)
        step.make_writes()
