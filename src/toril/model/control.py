"""What operators can ask of jobs, queues and workers, and the answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final, TypeAlias
from urllib.parse import quote, unquote

from toril.errors import InvalidOption, preview
from toril.model.declarations import Declaration
from toril.model.durations import MAX_DELAY
from toril.model.flows import JobRef
from toril.model.groups import NO_LIMITS, DeclareGroups, GroupLimits, SetGroups
from toril.model.jobs import RateLimit, check_int, check_priority, check_text
from toril.model.names import check_worker_name
from toril.model.states import State


@dataclass(frozen=True, slots=True)
class Refused:
    """A job that an action left unchanged: its `state` does not allow it or, if that is None, there is no such job."""

    id: str
    state: State | None


@dataclass(frozen=True, slots=True)
class ControlResult:
    """What an action did: `done` at once, `asked` of a running job, or `refused` with the state that forbids it."""

    done: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True, slots=True)
class Swept:
    """Jobs that one bounded sweep removed; `more` says that there are more to remove."""

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
        check_priority(self.priority)


@dataclass(frozen=True, slots=True)
class SetDelay:
    id: str
    delay: int

    def __post_init__(self) -> None:
        check_int("delay", self.delay, 0, MAX_DELAY)


Update: TypeAlias = SetData | SetPriority | SetDelay


@dataclass(frozen=True, slots=True)
class Pause:
    """Start no jobs; running jobs continue, and jobs can still be added."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Start jobs again."""


@dataclass(frozen=True, slots=True)
class SetConcurrency:
    """How many jobs of the queue run at once in all processes together; `None` for no limit."""

    limit: int | None

    def __post_init__(self) -> None:
        if self.limit is not None:
            check_int("concurrency", self.limit, 1, 1_000_000)


@dataclass(frozen=True, slots=True)
class SetRateLimit:
    """The queue's rate limit for every worker, in place of what they declare; `None` for no limit."""

    limit: RateLimit | None

    def __post_init__(self) -> None:
        if self.limit is not None and not isinstance(self.limit, RateLimit):
            raise InvalidOption(f"a rate limit must be a RateLimit(max, per) or None, not {preview(self.limit)}")


@dataclass(frozen=True, slots=True)
class SetMaxWaiting:
    """How many jobs may wait (waiting, prioritized, delayed) before adds are refused; `None` for no limit."""

    limit: int | None

    def __post_init__(self) -> None:
        if self.limit is not None:
            check_int("max_waiting", self.limit, 1, 2**53)


@dataclass(frozen=True, slots=True)
class Hold:
    """Start no jobs for this many ms, as if the rate were used up; `None` ends that."""

    ms: int | None

    def __post_init__(self) -> None:
        if self.ms is not None:
            check_int("a time to hold", self.ms, 1, MAX_DELAY)


Setting: TypeAlias = Pause | Resume | SetConcurrency | SetRateLimit | SetMaxWaiting | Hold | DeclareGroups | SetGroups


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A queue's settings in the store, which apply to every process."""

    paused: bool = False
    concurrency: int | None = None
    rate: RateLimit | None = None
    max_waiting: int | None = None
    held_till: int | None = None
    groups: GroupLimits = NO_LIMITS


class WorkerCommand(StrEnum):
    """A command for a worker. `DECLARE` comes from a store that has lost what it was told."""

    QUIET = "quiet"
    STOP = "stop"
    DECLARE = "declare"


class StackRequest(str):
    """A request for the stack of a running job. It is left for the worker like a command; the worker answers with its
    next heartbeat."""

    __slots__ = ()
    _KIND = "stack:"

    @classmethod
    def of(cls, job: JobRef) -> "StackRequest":
        return cls(f"{cls._KIND}{quote(job.queue, safe='')}/{quote(job.id, safe='')}")

    @classmethod
    def read(cls, word: str) -> "StackRequest | None":
        """The request in a command's text; None if it is another command."""
        return cls(word) if word.startswith(cls._KIND) else None

    @property
    def job(self) -> JobRef:
        queue, _, identity = self.removeprefix(self._KIND).partition("/")
        return JobRef(unquote(queue), unquote(identity))


WorkerRequest: TypeAlias = WorkerCommand | StackRequest
MAX_STACKS: Final = 64_000  # characters of all stacks in a heartbeat


def order_of(word: str) -> WorkerRequest:
    """The worker command in a text that a store keeps."""
    return StackRequest.read(word) or WorkerCommand(word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A worker's heartbeat. `heard` names the commands that it has received; others are sent again. `lag` is its recent
    event loop lag, in ms. `queue_slots` are the slots of each queue, and how many of them are in use. `stacks` answers
    requests for stacks. `silent` is for how many ms its loop has been blocked: its supervisor then sends the heartbeat
    for it. `obeys` are the commands that it follows from now on. `isolates` says that it claims nothing, because a
    stalled job runs alone in it or is about to. `again`: it has sent one before, so a store that does not know it was
    emptied. `declares` has what its code declares about its queues, in the first heartbeat and after changes; None:
    unchanged."""

    worker: str
    queues: Sequence[str]
    slots: int
    running: int
    host: str = ""
    pid: int = 0
    version: str = ""
    started_at: int = 0
    heard: Sequence[WorkerRequest] = ()
    lag: int = 0
    queue_slots: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    stacks: Mapping[str, str] = field(default_factory=dict)
    silent: int = 0
    obeys: Sequence[WorkerCommand] = ()
    isolates: bool = False
    again: bool = False
    declares: Mapping[str, Declaration] | None = None

    def __post_init__(self) -> None:
        check_worker_name(self.worker)

    def dump(self) -> str:
        """The text that stores keep; declarations are kept beside it."""
        return json.dumps({name: getattr(self, name) for name in _KEPT})


_KEPT: Final = tuple(each.name for each in fields(Heartbeat) if each.name not in {"declares", "heard"})


def control(worker: str) -> str:
    """The name under which `Engine.wait` listens for commands to this worker. No queue can have it."""
    return f":{worker}"
