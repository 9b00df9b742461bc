"""How jobs of groups come in: into the line if they need not wait, else parked; and how many may wait at all."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from toril.engines.sql.groups import read
from toril.engines.sql.schema import Place
from toril.engines.sql.statements import statement
from toril.engines.sql.step import Step
from toril.engines.sql.transaction import QueueRow, Tx
from toril.errors import QueueFull
from toril.model import NewJob

__all__ = ["Doors", "next_order", "refuse_overfull", "waiting"]

_IN_LINE: Final = statement("groups", "in_line")
_OUT_OF_LINE: Final = statement("groups", "out_of_line")


class Doors:
    """The groups of the jobs of one add, as they stand while these come in."""

    def __init__(self, step: Step, names: Sequence[str]) -> None:
        self._step = step
        if names:
            step.row.grouped = 1
        self._groups = read(step.tx, step.row, dict.fromkeys(names)) if names else {}

    def order(self, job: NewJob) -> int:
        return next_order(self._step.row, job)

    def spot(self, name: str, priority: int, order: int) -> tuple[int, int]:
        """Where a job that is ready goes."""
        group = self._groups[name]
        if group.room and not group.parked and group.seats < group.weight:
            group.let_in()
            return self._step.row.back(priority)
        group.parked = True
        self._step.touch(name)
        return Place.PARKED, order


def next_order(row: QueueRow, job: NewJob) -> int:
    """A place behind all of its group, or before them."""
    row.grouped, row.orders = 1, row.orders + 1
    return -row.orders if job.lifo else row.orders


def waiting(tx: Tx, row: QueueRow, name: str) -> int:
    """How many of a group have not started."""
    return int(tx.one(_IN_LINE, (row.key, name))[0]) + int(tx.one(_OUT_OF_LINE, (row.key, name))[0])


def refuse_overfull(tx: Tx, row: QueueRow, added: "Counter[str]") -> None:
    """All or none: a group that these would overfill takes none of them."""
    for name, group in (read(tx, row, added) if added else {}).items():
        most = group.limits.max_waiting
        if most is not None and (held := waiting(tx, row, name)) > most:
            raise QueueFull(
                f"group {name!r} of queue {row.name!r} may hold {most} waiting jobs and has {held - added[name]}; "
                f"{added[name]} more were refused"
            )
