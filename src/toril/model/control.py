"""What operators and other processes can ask of jobs, queues and workers, and what they are answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from toril.errors import InvalidOption, shown
from toril.model.groups import NO_LIMITS, DeclareGroups, GroupLimits, SetGroups
from toril.model.options import MAX_DELAY, MAX_PRIORITY, RateLimit, check_text, whole
from toril.names import check_worker_name
from toril.states import State


@dataclass(frozen=True, slots=True)
class Refused:
    """A job that a control did not change: its state does not allow it, or (`None`) there is no such job."""

    id: str
    state: State | None


@dataclass(frozen=True, slots=True)
class Changed:
    """What a control did: `done` at once, `asked` of a running job, `refused` with the state that forbids it."""

    done: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True, slots=True)
class Swept:
    """Jobs that one bounded sweep removed; `more` says that another sweep will find some."""

    ids: tuple[str, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    id: str
    data: str

    def __post_init__(self) -> None:
        check_text("data", self.data)


@dataclass(frozen=True, slots=True)
class SetPriority:
    id: str
    priority: int
    lifo: bool = False

    def __post_init__(self) -> None:
        whole("priority", self.priority, 0, MAX_PRIORITY)


@dataclass(frozen=True, slots=True)
class SetDelay:
    id: str
    delay: int

    def __post_init__(self) -> None:
        whole("delay", self.delay, 0, MAX_DELAY)


Update: TypeAlias = SetData | SetPriority | SetDelay


@dataclass(frozen=True, slots=True)
class Pause:
    """No new starts; running jobs go on, adds succeed."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Starts are allowed again."""


@dataclass(frozen=True, slots=True)
class SetConcurrency:
    """How many jobs of the queue may run at once over the whole fleet; `None` for no bound."""

    limit: int | None

    def __post_init__(self) -> None:
        if self.limit is not None:
            whole("concurrency", self.limit, 1, 1_000_000)


@dataclass(frozen=True, slots=True)
class SetRateLimit:
    """The queue's rate, for every worker, over what they were declared with; `None` for no bound."""

    limit: RateLimit | None

    def __post_init__(self) -> None:
        if self.limit is not None and not isinstance(self.limit, RateLimit):
            raise InvalidOption(f"a rate must be RateLimit(max, per) or None, not {shown(self.limit)}")


@dataclass(frozen=True, slots=True)
class SetMaxWaiting:
    """How many jobs may wait (waiting, prioritized, delayed) before adds are refused; `None` for no bound."""

    limit: int | None

    def __post_init__(self) -> None:
        if self.limit is not None:
            whole("max_waiting", self.limit, 1, 2**53)


@dataclass(frozen=True, slots=True)
class Hold:
    """No new starts for so many ms, as if the rate were used up; `None` ends that."""

    ms: int | None

    def __post_init__(self) -> None:
        if self.ms is not None:
            whole("a time to hold", self.ms, 1, MAX_DELAY)


Setting: TypeAlias = Pause | Resume | SetConcurrency | SetRateLimit | SetMaxWaiting | Hold | DeclareGroups | SetGroups


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A queue's settings in the store, the same for every process."""

    paused: bool = False
    concurrency: int | None = None
    rate: RateLimit | None = None
    max_waiting: int | None = None
    held_till: int | None = None
    groups: GroupLimits = NO_LIMITS


class Order(StrEnum):
    """What one can tell a worker from afar. `DECLARE` is the store's own: it has forgotten all that it was told."""

    QUIET = "quiet"
    STOP = "stop"
    DECLARE = "declare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A worker's sign of life. `heard` names the orders that it has received; others come again. `lag` is by how many
    ms its loop was late of late. `again`: it has given one before, so a store that does not know it was emptied."""

    worker: str
    queues: Sequence[str]
    slots: int
    running: int
    host: str = ""
    pid: int = 0
    version: str = ""
    started_at: int = 0
    heard: Sequence[Order] = ()
    lag: int = 0
    again: bool = False

    def __post_init__(self) -> None:
        check_worker_name(self.worker)


def control(worker: str) -> str:
    """The name under which `Engine.wait` listens for what is meant for this worker. No queue can be called so."""
    return f":{worker}"
