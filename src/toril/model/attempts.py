"""Attempts: leases, claims, settlements, reports and results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from toril.errors import InvalidOption, preview
from toril.model.durations import MAX_DELAY
from toril.model.flows import FlowNode
from toril.model.jobs import (
    BATCH,
    DEFAULT_OPTIONS,
    EXCHANGE,
    MAX_LINE_BYTES,
    MAX_REASON_BYTES,
    JobOptions,
    Limits,
    check_int,
    check_text,
    storable,
)
from toril.model.names import check_stored_key, check_worker_name
from toril.model.states import State
from toril.model.steps import MAX_BRANCHES, TIMED, RecordedSteps, Rest, StepKind, check_digest, check_step_delay
from toril.model.values import fast_frozen, fast_frozen_kw

__all__ = ["Result"]

LASTING: Final = "outbox-"  # senders with this prefix may repeat a call at any time: their last answers are not pruned


class AddOutcome(StrEnum):
    """What an add did: it stored a new job, or found one that was there."""

    ADDED = "added"
    DUPLICATE = "duplicate"
    DEDUPLICATED = "deduplicated"
    REPLACED = "replaced"


@fast_frozen
class Added:
    """What became of one new job: stored, or an equal one existed, with its id and state."""

    id: str
    outcome: AddOutcome
    state: State


@fast_frozen
class Call:
    """Identifies a call, so that a store can recognize a repeated one. A sender has one call under way at a time."""

    sender: str
    seq: int

    def __post_init__(self) -> None:
        check_worker_name(self.sender)
        check_int("seq", self.seq, 0, 2**53)


@fast_frozen
class Lease:
    """The right to run one job until a deadline. Each claim draws a new token."""

    queue: str
    id: str
    token: str


@fast_frozen_kw
class Claim:
    """A request for work.

    `alone` says that the claimer runs nothing else. Only then is a job that has stalled handed out, with nothing beside
    it, so that it is known what caused the next crash. With `only_suspects`, nothing else is claimed.
    """

    want: int
    token: str
    lease: int
    worker: str
    alone: bool = False
    max_stalls: int = 1
    only_suspects: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        check_int("want", self.want, 0, EXCHANGE)
        check_int("lease", self.lease, 1, MAX_DELAY)
        check_int("max_stalls", self.max_stalls, 0, 2**31)
        check_worker_name(self.worker)
        if type(self.token) is not str or self.token in {"", "0"}:
            raise InvalidOption(f"each claim needs a token of its own, not {preview(self.token)}")


@fast_frozen
class Claimed:
    """A claimed job, with everything needed to run it. `starts` counts how often it was claimed, including this time;
    `fence` is larger than in any earlier claim of the queue. A `suspect` has stalled and must run alone."""

    lease: Lease
    name: str
    data: str
    starts: int
    fence: int
    max_attempts: int
    attempts_made: int
    stalls: int
    added_at: int
    delay: int
    priority: int
    metadata: str | None
    checkpoint: str | None
    options: JobOptions = DEFAULT_OPTIONS
    suspect: bool = False
    parked: int = 0
    trace: str | None = None
    unreadable: str | None = None  # why it cannot be run: then it fails
    steps: RecordedSteps | None = None  # of a job that has recorded some, or was run again by hand


class Gate(StrEnum):
    """What kept a claim from getting more jobs."""

    PAUSED = "paused"
    CONCURRENCY = "concurrency"
    RATE = "rate"
    GROUPS = "groups"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed, as text of limited size. Stored errors are never turned back into exceptions."""

    reason: str
    kind: str = ""
    traceback: str = ""

    def __post_init__(self) -> None:
        for name in ("reason", "kind", "traceback"):
            object.__setattr__(self, name, storable(getattr(self, name), MAX_REASON_BYTES))


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """Why one attempt of a job failed, and when. `at` is None if another library's worker ran it."""

    attempt: int
    at: int | None
    failure: Failure


@fast_frozen
class Completed:
    """The handler returned. `summary` is what run records show in place of the result; `skipped` is why the handler was
    not called, if it was not."""

    result: str = "null"
    summary: str | None = None
    skipped: str | None = None

    def __post_init__(self) -> None:
        check_text("a result", self.result)


@dataclass(frozen=True, slots=True)
class Failed:
    """The job failed for good."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Retried:
    """The attempt failed, and the job runs again after `delay`; an attempt is spent."""

    failure: Failure
    delay: int = 0

    def __post_init__(self) -> None:
        check_int("delay", self.delay, 0, MAX_DELAY)


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The job asked to run later; no attempt is spent."""

    delay: int

    def __post_init__(self) -> None:
        check_int("delay", self.delay, 0, MAX_DELAY)


@dataclass(frozen=True, slots=True)
class Released:
    """The job was not finished here and goes back to the front; no attempt is spent."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job was cancelled: failed on the wire, never retried, never a dead letter."""

    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", storable(self.reason, MAX_REASON_BYTES))


@dataclass(frozen=True, slots=True)
class Rested:
    """The job rests until one of `rests` is over, or its children have ended, including those given here. Then its
    handler runs again, from the beginning; no attempt is spent, and the stalls before count no more.

    It waits for children if `rests` is empty or has a CALLED one. If something that it rests for has come already, it
    goes back to the front at once. `children_round` is how often its handler has asked for new children.
    """

    children: tuple[FlowNode, ...] = ()
    children_round: int = 0
    rests: tuple[Rest, ...] = ()

    def __post_init__(self) -> None:
        if len(self.children) > BATCH:
            raise InvalidOption(f"a job can be given at most {BATCH} new children at once, not {len(self.children)}")
        if len(self.rests) > MAX_BRANCHES:
            raise InvalidOption(f"a job can rest for at most {MAX_BRANCHES} steps at once, not {len(self.rests)}")


Outcome: TypeAlias = Completed | Failed | Retried | Snoozed | Released | Cancelled | Rested


@fast_frozen
class Settlement:
    """How one attempt ended. It counts only while its lease holds."""

    lease: Lease
    outcome: Outcome


class Verdict(StrEnum):
    """Whether a write that needs a lease was accepted."""

    OK = "ok"
    LOST = "lost"
    MISSING = "missing"


CANCELLED_KIND: Final = "JobCancelled"  # the failure kind that distinguishes a cancelled job from a failed one
EXPIRED_KIND: Final = "JobExpired"  # the failure kind of a job that was not started in time


@dataclass(frozen=True, slots=True)
class Unstarted:
    """A job that a claim ended instead of handing it out: it had expired, or could not be run."""

    id: str
    name: str
    failure: Failure


@fast_frozen
class Exchange:
    """The answer to an exchange: a verdict for each settlement, the jobs claimed, those ended instead and, if there
    were fewer than wanted, when to come back (`wake_at`) and what prevented more."""

    verdicts: tuple[Verdict, ...]
    jobs: tuple[Claimed, ...]
    now: int
    wake_at: int | None = None
    blocked_by: Gate | None = None
    suspects: int = 0
    unstarted: tuple[Unstarted, ...] = ()


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A running job that was asked to stop."""

    lease: Lease
    reason: str


@dataclass(frozen=True, slots=True)
class Renewed:
    """Which leases were already lost, and which of the others are asked to stop."""

    lost: tuple[Lease, ...] = ()
    cancelled: tuple[Cancellation, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running job has come, as JSON text."""

    lease: Lease
    value: str

    def __post_init__(self) -> None:
        check_text("progress", self.value)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a running job's log; longer ones are cut."""

    lease: Lease
    line: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "line", storable(self.line, MAX_LINE_BYTES))


@dataclass(frozen=True, slots=True)
class DataUpdate:
    """New data for a running job, from its own handler."""

    lease: Lease
    data: str

    def __post_init__(self) -> None:
        check_text("data", self.data)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a retry of this job should continue, as JSON text."""

    lease: Lease
    value: str

    def __post_init__(self) -> None:
        check_text("a checkpoint", self.value)


@fast_frozen
class StepReport:
    """A step of a running job. The store adds the number of the record, its time, and the attempt.

    `delay` is how long a sleep, a pause before a retry or the timeout of a wait takes; `until` says when it is over
    instead, for a wait that goes on because the signal that it got did not fit.
    """

    lease: Lease
    key: str
    kind: StepKind
    text: str = ""
    took: int = 0
    digest: str | None = None
    delay: int | None = None
    until: int | None = None

    def __post_init__(self) -> None:
        check_stored_key(self.key)
        check_text("a step's text", self.text)
        check_int("took", self.took, 0, 2**53)
        check_digest(self.digest)
        check_step_delay(self.kind, self.delay, given=self.until is not None)
        if self.until is not None:
            check_int("until", self.until, 0, 2**53)
        if self.kind is StepKind.RECEIVED or (self.until is not None and self.kind not in TIMED):
            raise InvalidOption(f"a row of kind {str(self.kind)!r} is not recorded by a report like this")


Report: TypeAlias = Progress | LogLine | DataUpdate | Checkpoint


@dataclass(frozen=True, slots=True)
class Recovered:
    """Jobs whose lease had expired: returned to their queue, failed because they stalled too often, or cancelled as
    requested. `next_deadline` is when the next lease expires, by the clock that `now` comes from."""

    returned: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    next_deadline: int | None = None
    more: bool = False
    now: int = 0

    @property
    def taken_back(self) -> tuple[str, ...]:
        """All of them; whoever was running one of these has lost it."""
        return (*self.returned, *self.failed, *self.cancelled)


@dataclass(frozen=True, slots=True)
class Result:
    """A result with a summary for people: `Result("42 emails synced", counts={"synced": 42})`.

    It is stored in full like any other result, and run records show its summary.
    """

    summary: str
    counts: Mapping[str, int | float] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def line(self) -> str:
        """The summary, and how many warnings there are."""
        if not self.warnings:
            return self.summary
        return f"{self.summary} ({len(self.warnings)} warning{'s' if len(self.warnings) > 1 else ''})"
