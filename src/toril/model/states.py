"""The states of a job and every transition between them. Tests hold the engines to this table."""

from enum import StrEnum
from typing import Final

__all__ = ["FINISHED", "NOT_STARTED", "TRANSITIONS", "State", "Verb"]


class State(StrEnum):
    """The state of a job. A job is in exactly one of these, or not in the store."""

    WAITING = "waiting"
    PRIORITIZED = "prioritized"
    ACTIVE = "active"
    DELAYED = "delayed"
    WAITING_CHILDREN = "waiting_children"
    COMPLETED = "completed"
    FAILED = "failed"


class Verb(StrEnum):
    """What can happen to a job."""

    ADD = "add"
    CLAIM = "claim"
    COMPLETE = "complete"
    FAIL = "fail"
    RETRY = "retry"
    SNOOZE = "snooze"
    RELEASE = "release"
    PARK = "park"
    FREE = "free"
    REST = "rest"
    WAKE = "wake"
    REWIND = "rewind"
    CANCEL = "cancel"
    EXPIRE = "expire"
    STALL = "stall"
    PROMOTE = "promote"
    RETRY_BY_HAND = "retry_by_hand"
    CHANGE_PRIORITY = "change_priority"
    CHANGE_DELAY = "change_delay"
    REMOVE = "remove"
    TRIM = "trim"


FINISHED: Final = frozenset({State.COMPLETED, State.FAILED})
NOT_STARTED: Final = frozenset({State.WAITING, State.PRIORITIZED, State.DELAYED})

_READY = frozenset({State.WAITING, State.PRIORITIZED})
_GONE: frozenset[State | None] = frozenset({None})

# None means "not in the store": before the add, and after a removal. A finished job that its `Keep` does
# not keep goes there in the step that finishes it.
TRANSITIONS: Final[dict[tuple[State | None, Verb], frozenset[State | None]]] = {
    (None, Verb.ADD): frozenset({State.WAITING, State.PRIORITIZED, State.DELAYED, State.WAITING_CHILDREN}),
    (State.ACTIVE, Verb.COMPLETE): frozenset({State.COMPLETED, None}),
    (State.ACTIVE, Verb.FAIL): frozenset({State.FAILED, None}),
    (State.ACTIVE, Verb.RETRY): _READY | {State.DELAYED},
    (State.ACTIVE, Verb.SNOOZE): frozenset({State.DELAYED}),
    (State.ACTIVE, Verb.RELEASE): frozenset(_READY),
    (State.ACTIVE, Verb.PARK): _READY | {State.WAITING_CHILDREN},
    (State.WAITING_CHILDREN, Verb.FREE): _READY | {State.DELAYED},
    (State.WAITING_CHILDREN, Verb.CANCEL): frozenset({State.FAILED, None}),
    (State.WAITING_CHILDREN, Verb.REMOVE): _GONE,
    (State.ACTIVE, Verb.CANCEL): frozenset({State.ACTIVE, State.FAILED, None}),
    (State.ACTIVE, Verb.STALL): frozenset({State.WAITING, State.FAILED, None}),
    (State.ACTIVE, Verb.REST): _READY | {State.DELAYED, State.WAITING_CHILDREN},
    (State.DELAYED, Verb.WAKE): frozenset(_READY),
    (State.WAITING_CHILDREN, Verb.WAKE): frozenset(_READY),
    **{(state, Verb.REWIND): _READY | {State.WAITING_CHILDREN} for state in State if state is not State.ACTIVE},
    (State.DELAYED, Verb.PROMOTE): frozenset(_READY),
    (State.DELAYED, Verb.CHANGE_DELAY): frozenset({State.DELAYED}),
    **{(state, Verb.CLAIM): frozenset({State.ACTIVE}) for state in _READY},
    **{(state, Verb.EXPIRE): frozenset({State.FAILED, None}) for state in _READY},
    **{(state, Verb.CANCEL): frozenset({State.FAILED, None}) for state in NOT_STARTED},
    **{(state, Verb.CHANGE_PRIORITY): frozenset(_READY) for state in _READY},
    (State.DELAYED, Verb.CHANGE_PRIORITY): frozenset({State.DELAYED}),
    **{(state, Verb.RETRY_BY_HAND): frozenset(_READY) for state in FINISHED},
    **{(state, Verb.REMOVE): _GONE for state in NOT_STARTED | FINISHED},
    **{(state, Verb.TRIM): _GONE for state in FINISHED},
}
