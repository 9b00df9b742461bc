"""What reads of a store return: rows, pages, counts, events, workers and audit entries."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, TypeAlias, TypeVar

from toril.errors import InvalidOption, preview
from toril.model.attempts import CANCELLED_KIND, Cancelled, Completed, Failed, Failure
from toril.model.control import Settings, StackRequest
from toril.model.flows import ChildCounts, JobRef
from toril.model.groups import GroupBlockers
from toril.model.jobs import JobOptions
from toril.model.states import State

AUDIT_LENGTH: Final = 10_000  # entries kept


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change that was requested over HTTP, and its outcome: `done` counts the jobs that were changed, `refused`
    those that could not be. `at` is the store's time, and set by it."""

    who: str
    address: str
    action: str
    target: str
    detail: str
    ended: str
    at: int = 0
    done: int | None = None
    refused: int | None = None


T = TypeVar("T")
K = TypeVar("K", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """Everything about one job."""

    queue: str
    id: str
    name: str
    data: str
    state: State
    max_attempts: int
    attempts_made: int
    stalls: int
    starts: int
    fence: int
    priority: int
    delay: int
    due: int | None
    expires_at: int | None
    options: JobOptions
    metadata: str | None
    checkpoint: str | None
    progress: str | None
    result: str | None
    failure: Failure | None
    stall_cause: str | None
    cancelling: str | None
    worker: str | None
    added_at: int
    started_at: int | None
    finished_at: int | None
    deadline: int | None
    parent: JobRef | None = None
    group: str | None = None
    unreadable: str | None = None  # why its options cannot be read: it fails instead of running
    dead_letter: str | None = None  # its dead letter's id: it failed for good, and is no longer in its queue
    rest: str | None = None  # why it rests, if it does: see `codec.steps.load_rest`

    @property
    def ending(self) -> "RunStatus | None":
        """How the job ended, if it has. Cancelled jobs are among the failed ones, where BullMQ looks for them."""
        match self.state:
            case State.COMPLETED:
                return RunStatus.COMPLETED
            case State.FAILED if self.failure is not None and self.failure.kind == CANCELLED_KIND:
                return RunStatus.CANCELLED
            case State.FAILED:
                return RunStatus.FAILED
            case _:
                return None

    @property
    def never_started(self) -> bool:
        """Whether the job failed before its first attempt, as a parent does if a child has failed. On the wire that
        counts as an attempt."""
        return self.state is State.FAILED and self.started_at is None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list. Pass `cursor` to read the next one; it is None after the last."""

    items: tuple[T, ...]
    cursor: str | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> T:
        return self.items[index]


@dataclass(frozen=True, slots=True)
class SearchPage(Page[T]):
    """One page of a search, out of the `looked` items looked through. It may be short or even empty and still have a
    cursor: then there is more to look through."""

    looked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(Mapping[str, int]):
    """How many jobs are in each state: `counts.waiting` or `counts["waiting"]`.

    `paused` and `resting` can be read both ways too, but are not among the states that `keys()`, `items()` and
    `values()` give: jobs that rest are delayed or wait for their children.
    """

    waiting: int = 0
    prioritized: int = 0
    active: int = 0
    delayed: int = 0
    waiting_children: int = 0
    completed: int = 0
    failed: int = 0
    paused: bool = False
    resting: int = 0

    def of(self, state: State) -> int:
        return self[state.value]

    def __getitem__(self, state: str) -> int:
        if state not in _STATES and state not in {"paused", "resting"}:
            raise KeyError(state)
        return int(getattr(self, state))

    def __iter__(self) -> Iterator[str]:
        return iter(_STATES)

    def __len__(self) -> int:
        return len(_STATES)


_STATES: Final = tuple(state.value for state in State)


class RunStatus(StrEnum):
    """How a run ended. Jobs that expired or stalled too often have failed; a cancelled job has not."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Cause(StrEnum):
    """Why a job ended as it did."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """What is remembered of a job that has ended, even when the job itself is gone. `text` is the start of the result
    or the reason of the failure; `whole` says that nothing was cut off. `parent` is the job that waited for it, and
    `flow` says that it was part of a flow."""

    id: str
    name: str
    ending: RunStatus
    cause: Cause
    added_at: int
    started_at: int | None
    finished_at: int
    attempts_made: int
    stalls: int
    worker: str | None
    text: str
    whole: bool
    subject: str | None = None
    parent: JobRef | None = None
    flow: bool = False


class EventKind(StrEnum):
    """What happened, in the words of BullMQ's event stream."""

    ADDED = "added"
    DUPLICATED = "duplicated"
    DEDUPLICATED = "deduplicated"
    WAITING = "waiting"
    DELAYED = "delayed"
    WAITING_CHILDREN = "waiting-children"
    ACTIVE = "active"
    PROGRESS = "progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RETRIES_EXHAUSTED = "retries-exhausted"
    STALLED = "stalled"
    REMOVED = "removed"
    DRAINED = "drained"
    PAUSED = "paused"
    RESUMED = "resumed"
    CLEANED = "cleaned"


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event, with its position in the queue's history."""

    at: str
    time: int
    kind: EventKind
    job_id: str | None
    detail: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EventPage:
    """A part of a queue's history. `gap` says that events before it were trimmed unseen; continue at `last`."""

    items: tuple[EventRow, ...]
    last: str
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Pending:
    """The job has not ended yet."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The job has ended or never existed, and its result was not kept."""


Ended: TypeAlias = Completed | Failed | Cancelled | Pending | Gone


@dataclass(frozen=True, slots=True)
class Finished:
    """How one awaited job ended."""

    id: str
    ended: Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A worker, as of its last heartbeat.

    `queue_slots` has, by queue, the number of slots and how many of them are in use; `orders` are the commands that it
    was sent; `stacks` are the stacks that were asked for, by request; `silent` is how many ms its event loop has not
    moved, as its supervisor reports; `isolates` says that it claims nothing, because a job that has stalled runs alone
    in it or is about to.
    """

    id: str
    queues: tuple[str, ...]
    slots: int
    running: int
    host: str
    pid: int
    version: str
    started_at: int
    seen_at: int
    orders: tuple[str, ...] = ()
    lag: int = 0
    queue_slots: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    stacks: Mapping[str, str] = field(default_factory=dict)
    silent: int = 0
    isolates: bool = False

    @classmethod
    def load(cls, identity: str, seen_at: int, orders: str, text: str) -> "WorkerRow":
        """From what stores keep: the commands that it has not acknowledged, and its last heartbeat."""
        said = json.loads(text)
        unheard = [word for word in orders.split() if StackRequest.read(word) is None]
        return cls(
            id=identity,
            queues=tuple(said["queues"]),
            slots=said["slots"],
            running=said["running"],
            host=said["host"],
            pid=said["pid"],
            version=said["version"],
            started_at=said["started_at"],
            seen_at=seen_at,
            orders=tuple(dict.fromkeys([*said.get("obeys", ()), *unheard])),
            lag=said.get("lag", 0),
            queue_slots={queue: (slots, used) for queue, (slots, used) in said.get("queue_slots", {}).items()},
            stacks=said.get("stacks", {}),
            silent=said.get("silent", 0),
            isolates=said.get("isolates", False),
        )

    def slots_for(self, queue: str) -> tuple[int, int]:
        """How many slots the worker has for a queue, and how many of them are in use."""
        return self.queue_slots.get(queue, (self.slots, self.running) if queue in self.queues else (0, 0))


@dataclass(frozen=True, slots=True)
class MinuteCounts:
    """Finished jobs per minute, oldest first; the last entry is the current minute."""

    first: int
    completed: tuple[int, ...]
    failed: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBlockers:
    """What keeps a job from starting: how many go first, which run now (the first ten), until when the rate is used up,
    and which children are open. A job that has to run `alone` has stalled: its worker died."""

    now: int
    ahead: int = 0
    running: tuple[str, ...] = ()
    rate_till: int | None = None
    family: ChildCounts = field(default_factory=ChildCounts)
    group: GroupBlockers | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary:
    """A queue's settings, counts and totals in one read."""

    name: str
    counts: Counts
    settings: Settings
    completed_total: int
    failed_total: int
    cancelled_total: int

    @property
    def ended_total(self) -> int:
        return self.completed_total + self.failed_total + self.cancelled_total


USAGE_SAMPLE: Final = 100  # jobs of a queue whose size is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """About how many bytes a queue takes in its store: jobs with logs and results, run records, events and metrics.

    Only `sampled` of its `jobs` were measured; the others are assumed to be like them. Dead letters belong to no queue
    and are not included.
    """

    bytes: int
    jobs: int
    sampled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the store answers, and what is wrong if it does not."""

    ok: bool
    detail: str = ""
    now: int = 0


def known(kind: type[K], value: K) -> K:
    """A state or an ending, from its text or from itself."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidOption(f"{preview(value)} must be one of {', '.join(kind)}") from None
