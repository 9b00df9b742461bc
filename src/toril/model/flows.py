"""Flows: which jobs wait for which, and what a child's failure does to its parent."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from toril.errors import InvalidOption, preview
from toril.model.jobs import NewJob
from toril.model.names import check_queue_name

MAX_DEPTH: Final = 100  # of a flow
BUILDING: Final = 600_000  # ms after which an incomplete flow is rolled back


class OnFailure(StrEnum):
    """What happens to the parent when a child has failed for good.

    `FAIL`: it fails too, at once. `CONTINUE`: it runs at once, and can ask which children failed. `IGNORE`: it runs
    when the other children have ended, and can ask which failed. `REMOVE`: the same, but the failure is forgotten.
    `WAIT`: it waits until the child has been run again or removed, which is BullMQ's default.
    """

    FAIL = "fail"
    CONTINUE = "continue"
    IGNORE = "ignore"
    REMOVE = "remove"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, order=True)
class JobRef:
    """The queue and id of a job."""

    queue: str
    id: str

    def __str__(self) -> str:
        return f"{self.queue}:{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowNode:
    """A job of a flow, with a chosen id. `waits` says that it has children, and runs when they have ended. Of jobs that
    are added together, the parent comes first."""

    queue: str
    job: NewJob
    parent: JobRef | None = None
    on_failure: OnFailure = OnFailure.FAIL
    waits: bool = False

    def __post_init__(self) -> None:
        check_queue_name(self.queue)
        if self.job.id is None:
            raise InvalidOption(f"each job of a flow needs an id; {preview(self.job.name)} has none")
        if self.job.dedup is not None:
            raise InvalidOption(f"a job of a flow cannot have dedup or once; remove it from {preview(self.job.name)}")

    @property
    def ref(self) -> JobRef:
        return JobRef(self.queue, str(self.job.id))


class ChildState(StrEnum):
    """What a parent knows about a child: it has not ended (`OPEN`), it has completed, it has failed and the parent
    continues (`IGNORED`), or it has failed and the parent fails too."""

    OPEN = "open"
    COMPLETED = "completed"
    IGNORED = "ignored"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Child:
    """What a parent knows about one child, even if that is gone. `text` is what it returned, or why it failed. `name`
    and `number`, its place in the order of adding, are only read if requested."""

    ref: JobRef
    state: ChildState
    text: str | None = None
    name: str | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCounts:
    """How many children of each kind a job has, and the first few that have not ended."""

    open: int = 0
    completed: int = 0
    ignored: int = 0
    failed: int = 0
    first_open: tuple[JobRef, ...] = ()

    @property
    def total(self) -> int:
        """How many children there are."""
        return self.open + self.completed + self.ignored + self.failed
