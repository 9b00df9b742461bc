"""Jobs and what belongs to them in a form that fits any store, to move them from one to another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from toril.model.attempts import AttemptFailure, Failure
from toril.model.dead_letters import DeadLetterRow
from toril.model.flows import Child, JobRef, OnFailure
from toril.model.groups import GroupLimits
from toril.model.jobs import Dedup, JobOptions, Keep, NewJob, RateLimit
from toril.model.records import RunRow
from toril.model.schedules import ScheduleRow
from toril.model.states import State
from toril.model.values import fast_frozen_kw

LOAD: Final = 500  # jobs carried at once; a family goes as a whole, however large it is
LOAD_BYTES: Final = 4 * 1024 * 1024  # of payloads, from which on a load takes no more
HEADROOM: Final = 1_000_000  # numbers that the target leaves to jobs which are still added to the source


class TransferPart(StrEnum):
    """What a load is made of. Each is of one queue, but for letters and what belongs to the whole store."""

    SETTINGS = "settings"
    SCHEDULES = "schedules"
    JOBS = "jobs"
    LETTERS = "letters"
    LEDGER = "ledger"
    FACTS = "facts"


@dataclass(frozen=True, slots=True)
class OwnedKey:
    """A deduplication key that a job owns: until `till`, or until it ends. `next` is made then."""

    key: str
    till: int | None = None
    next: NewJob | None = None


@fast_frozen_kw
class TransferJob:
    """A job that does not run, with all that is known of it. `suspect`: it has stalled, and runs alone next time;
    `wire` is the text of its options where it was written by BullMQ's rules, for a store that goes by these."""

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

    @property
    def ref(self) -> JobRef:
        return JobRef(self.queue, self.id)


@dataclass(frozen=True, slots=True)
class TransferSchedule:
    """A schedule as it stands. Its current run is made anew where it arrives, if `waits`: it has not started. `last`
    is the job started last, where that has not ended."""

    view: ScheduleRow
    waits: bool
    last: str | None = None


@dataclass(frozen=True, slots=True)
class TransferDeadLetter:
    """A dead letter, what its job knew of its children, its log, and the errors of its attempts before the last."""

    letter: DeadLetterRow
    children: Sequence[Child] = ()
    logs: Sequence[str] = ()
    errors: Sequence[AttemptFailure] = ()


Starts: TypeAlias = Sequence[tuple[int, int]]  # time, and how many


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSettings:
    """A queue's settings, and how far it has counted. `starts` are those within a rate's window; `groups` has what
    holds for single ones: limits, whether paused."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRecords:
    """What a queue has counted and recorded: totals, minutes (minute, completed, failed), run records (the oldest
    first), slices of figures by length and number, results that are kept (job, till, cause, text), and deduplication
    keys whose owner is gone (key, owner, till)."""

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
    """What belongs to the whole store: how long letters are kept, and circuits by their keys, as text."""

    letters: Keep
    circuits: Mapping[str, str]


TransferItem: TypeAlias = (
    TransferJob | TransferSchedule | TransferDeadLetter | TransferSettings | TransferRecords | TransferStoreFacts
)


@dataclass(frozen=True, slots=True)
class TransferBatch:
    """What was taken out of a store and is in no other yet, or may be. One is on its way at a time; they are numbered,
    and `mark` tells one from another that has its number because the store has gone back in time."""

    number: int
    mark: str
    to: str
    items: tuple[TransferItem, ...]


class ImportOutcome(StrEnum):
    """What became of a load: stored; was stored before; or there was one with a later number."""

    STORED = "stored"
    AGAIN = "again"
    STALE = "stale"
    CLASH = "clash"


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What a store did with a load. `taken` are jobs whose chosen id it had already, left out as an add would; where
    an id that the store itself gave is taken it is a clash, and nothing was stored."""

    outcome: ImportOutcome
    taken: tuple[JobRef, ...] = ()
