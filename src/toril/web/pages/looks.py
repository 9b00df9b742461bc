"""How the states of jobs look: their word, icon and colour."""

from dataclasses import dataclass
from typing import Final

from toril.states import State

__all__ = ["LOOKS", "StateLook"]


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
