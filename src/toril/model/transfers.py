"""Jobs and what belongs to them in a form that fits any store, to move them from one to another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final, TypeAlias

from toril.model.attempts import AttemptFailure, Failure
from toril.model.dead_letters import DeadLetterRow
from toril.model.flows import Child, JobRef, OnFailure
from toril.model.groups import GroupLimits
from toril.model.jobs import Dedup, JobOptions, Keep, NewJob, RateLimit
from toril.model.records import JobRow, RunRow
from toril.model.schedules import ScheduleRow
from toril.model.states import State
from toril.model.steps import SentId, SignalRow, TransferSteps
from toril.model.values import fast_frozen_kw

LOAD: Final = 500  # jobs per batch; a flow is moved as a whole, however large it is
LOAD_BYTES: Final = 4 * 1024 * 1024  # of payloads, after which a batch takes no more
HEADROOM: Final = 1_000_000  # numbers reserved for jobs that are still added to the source


class TransferPart(StrEnum):
    """What a batch is made of. Each part belongs to one queue, except for dead letters and what belongs to the whole
    store."""

    SETTINGS = "settings"
    SCHEDULES = "schedules"
    JOBS = "jobs"
    LETTERS = "letters"
    LEDGER = "ledger"
    FACTS = "facts"


@dataclass(frozen=True, slots=True)
class OwnedKey:
    """A deduplication key that a job owns until `till`, or until it ends; then `next` is made."""

    key: str
    till: int | None = None
    next: NewJob | None = None


@fast_frozen_kw
class TransferJob:
    """A job that is not running, with everything known of it. A `suspect` has stalled and runs alone next time; `wire`
    is the text of its options as BullMQ writes them, for a store that uses these."""

    queue: str
    id: str
    name: str
    data: str
    state: State
    suspect: bool
    due: int | None
    max_attempts: int
    attempts_made: int
    stalls: int
    starts: int
    fence: int
    priority: int
    delay: int
    added_at: int
    started_at: int | None
    finished_at: int | None
    expires_at: int | None
    worker: str | None
    metadata: str | None
    checkpoint: str | None
    progress: str | None
    failure: Failure | None
    stall_cause: str | None
    result: str | None
    group: str | None
    options: JobOptions
    dedup: Dedup | None
    trace: str | None
    parent: JobRef | None
    on_failure: OnFailure
    parked: int | None
    deferred: str | None
    ready: int | None
    logs: Sequence[str] = ()
    errors: Sequence[AttemptFailure] = ()
    children: Sequence[Child] = ()
    held: OwnedKey | None = None
    wire: str | None = None
    steps: TransferSteps | None = None

    @classmethod
    def of(cls, row: JobRow, **own: Any) -> "TransferJob":
        """A job from what readers see of it, and from what only a transfer carries."""
        return cls(**{name: getattr(row, name) for name in _OF_ROW} | own)

    @property
    def ref(self) -> JobRef:
        return JobRef(self.queue, self.id)


_OF_ROW: Final = tuple({field.name for field in fields(TransferJob)} & {field.name for field in fields(JobRow)})


@dataclass(frozen=True, slots=True)
class TransferSchedule:
    """A schedule as it stands. If it `waits`, its current run has not started and is made anew where it arrives. `last`
    is the job started last, if it has not ended."""

    view: ScheduleRow
    waits: bool
    last: str | None = None


@dataclass(frozen=True, slots=True)
class TransferDeadLetter:
    """A dead letter, what its job knew of its children, its log, the errors of its attempts before the last, and its
    steps."""

    letter: DeadLetterRow
    children: Sequence[Child] = ()
    logs: Sequence[str] = ()
    errors: Sequence[AttemptFailure] = ()
    steps: TransferSteps | None = None


Starts: TypeAlias = Sequence[tuple[int, int]]  # time, and how many


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSettings:
    """A queue's settings, and its counters. `starts` are those within the window of a rate; `groups` has the limits of
    single groups, and whether they are paused; `signals` are those kept by key, for which no job waits yet,
    `sent_ids` says which were sent by key, oldest first."""

    queue: str
    paused: bool
    concurrency: int | None
    rate: RateLimit | None
    max_waiting: int | None
    held_till: int | None
    groups_set: GroupLimits | None
    groups_declared: GroupLimits | None
    groups: Mapping[str, tuple[GroupLimits, bool]]
    numbers: int
    fences: int
    starts: Starts = ()
    group_starts: Mapping[str, Starts] | None = None
    signals: Sequence[SignalRow] = ()
    sent_ids: Sequence[SentId] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRecords:
    """What a queue has counted and recorded: totals, minutes (minute, completed, failed), run records (oldest first),
    slices of metrics by length and number, kept results (job, till, cause, text), and deduplication keys whose owner is
    gone (key, owner, till)."""

    queue: str
    completed: int
    failed: int
    cancelled: int
    minutes: Sequence[tuple[int, int, int]]
    runs: Sequence[RunRow]
    slices: Mapping[tuple[int, int], Mapping[str, int]]
    results: Sequence[tuple[str, int, str, str]]
    keys: Sequence[tuple[str, str, int]]


@dataclass(frozen=True, slots=True)
class TransferStoreFacts:
    """What belongs to the whole store: how long dead letters are kept, and circuits by key, as text."""

    letters: Keep
    circuits: Mapping[str, str]


TransferItem: TypeAlias = (
    TransferJob | TransferSchedule | TransferDeadLetter | TransferSettings | TransferRecords | TransferStoreFacts
)


@dataclass(frozen=True, slots=True)
class TransferBatch:
    """What was exported from a store and may not have been imported into another yet. One batch is in transit at a
    time. Batches are numbered; `mark` distinguishes two with the same number, which a store restored from an older copy
    would produce."""

    number: int
    mark: str
    to: str
    items: tuple[TransferItem, ...]


class ImportOutcome(StrEnum):
    """What happened to a batch: stored, stored before, or refused because a later one was imported."""

    STORED = "stored"
    AGAIN = "again"
    STALE = "stale"
    CLASH = "clash"


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What a store did with a batch. `taken` are jobs whose chosen id existed already, and which were left out, as in
    an add. If an id that a store assigns itself is taken, that is a clash, and nothing was stored."""

    outcome: ImportOutcome
    taken: tuple[JobRef, ...] = ()
