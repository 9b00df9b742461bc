"""How the states of jobs, and the ways in which they end, look: their word, icon and colour."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toril.model import Ending, JobRecord
from toril.model.states import State

__all__ = ["ENDINGS", "EVERY", "LOOKS", "StateLook", "look_of"]


@dataclass(frozen=True, slots=True)
class StateLook:
    """`key` is how the state is called in addresses, and by the script."""

    key: str
    word: str
    cls: str
    icon: str


LOOKS: Final = {
    State.WAITING: StateLook("waiting", "Waiting", "wait", "wait"),
    State.PRIORITIZED: StateLook("prioritized", "By priority", "wait", "wait"),
    State.ACTIVE: StateLook("active", "Running", "active", "active"),
    State.DELAYED: StateLook("delayed", "Delayed", "delayed", "delayed"),
    State.WAITING_CHILDREN: StateLook("children", "Waiting for children", "children", "children"),
    State.COMPLETED: StateLook("completed", "Completed", "done", "done"),
    State.FAILED: StateLook("failed", "Failed", "failed", "failed"),
}
ENDINGS: Final = {
    Ending.COMPLETED: LOOKS[State.COMPLETED],
    Ending.FAILED: LOOKS[State.FAILED],
    Ending.CANCELLED: StateLook("cancelled", "Cancelled", "cancelled", "cancelled"),
}
EVERY: Final[Mapping[str, StateLook]] = {str(name): look for name, look in (*LOOKS.items(), *ENDINGS.items())}


def look_of(record: JobRecord) -> StateLook:
    """How a job looks: one that was cancelled stands among the failed ones, and does not look like one."""
    return LOOKS[record.state] if record.ending is None else ENDINGS[record.ending]
