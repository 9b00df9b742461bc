"""What follows from the changes of a queue: groups let in more, figures are counted, parents hear of their children."""

from toril.engines.sql.add import let_go
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.driver import SqlConnection
from toril.engines.sql.flows import part, tell
from toril.engines.sql.groups import refill, touched
from toril.engines.sql.recording import record
from toril.engines.sql.transaction import Transaction

__all__ = ["commit", "transaction"]


def transaction(connection: SqlConnection) -> Transaction:
    """A transaction whose steps have their effects."""
    return Transaction(connection, commit)


def commit(step: QueueChanges) -> None:
    """Make the gathered writes, then trim, then the figures and the events; then tell parents of their children."""
    left, step.left = step.left, []
    names = step.touched | dict.fromkeys(touched(step.tx, left)) if left else step.touched
    if step.parted and step.row.flows:
        part(step)
    step.make()
    if step.counted:
        record(step.tx, step.row, step.counted)
        step.counted = {}
    step.tell_events()
    if step.ended_keys:
        let_go(step)
    if step.told:
        tell(step)
    if names:  # last: a parent that goes on may be older than who else waits in its group
        step.touched = {}
        refill(step, names)
        step.make_writes()
