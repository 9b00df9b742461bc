"""Records: what you read from a store, with times as UTC datetimes and durations in seconds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast, get_args, get_type_hints

from toril.model import (
    NO_LIMITS,
    CatchUp,
    Cause,
    CircuitRow,
    CircuitState,
    Declarations,
    EventKind,
    Failure,
    GroupLimits,
    JobOptions,
    JobRef,
    Keep,
    OnFailure,
    Overlap,
    RateLimit,
    RunStatus,
    ScheduleRow,
    moment,
)
from toril.model.states import State

__all__ = [
    "AttemptError",
    "CancelCounts",
    "CircuitRecord",
    "DeadLetter",
    "EventRecord",
    "GroupRecord",
    "JobRecord",
    "JobStack",
    "QueueDeclaration",
    "QueueSettings",
    "RetryDelay",
    "RunRecord",
    "ScheduleRecord",
    "Seconds",
    "StepRecord",
    "WorkerRecord",
    "as_record",
    "circuit_record",
    "declaration_record",
    "schedule_record",
]

R = TypeVar("R")

_OPTIONS = frozenset(field.name for field in fields(JobOptions))
Seconds: TypeAlias = Annotated[float, "seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDelay:
    """How long a job waits before a retry. `strategy` names a strategy that the app declares. `on` and `give_up_on` are
    the full names of the errors that decide whether the job is retried at all."""

    kind: Literal["fixed", "exponential"]
    delay: Seconds
    cap: Seconds | None = None
    jitter: float = 0.0
    strategy: str | None = None
    on: tuple[str, ...] = ()
    give_up_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """Everything about one job.

    `data` and `result` have the types that the handler declares, or are the stored text if they do not fit.
    `max_attempts` is how many attempts the job gets, `attempts_made` how many have ended; `due` is when it can start,
    `deadline` when its lease runs out unless it is renewed.
    """

    queue: str
    id: str
    name: str
    data: Any
    state: State
    max_attempts: int
    attempts_made: int
    stalls: int
    starts: int
    fence: int
    priority: int
    delay: Seconds
    due: datetime | None
    backoff: RetryDelay | None
    timeout: Seconds | None
    expires_at: datetime | None
    keep_completed: Keep
    keep_failed: Keep
    keep_logs: int
    result_ttl: Seconds | None
    breaker: str | None
    subject: str | None
    metadata: Mapping[str, Any]
    checkpoint: Any
    progress: Any
    result: Any
    failure: Failure | None
    stall_cause: str | None
    cancelling: str | None
    worker: str | None
    added_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline: datetime | None
    parent: JobRef | None
    group: str | None
    unreadable: str | None  # why its options cannot be read: it fails instead of running
    dead_letter: str | None  # its dead letter's id: it failed for good, and is no longer in its queue


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptError:
    """Why one attempt of a job failed, and when. `at` is None if another library's worker ran it."""

    attempt: int
    at: datetime | None
    error: str
    kind: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A job as it was when it failed for good, with all that is needed to run it again.

    `id` is made of its queue and its own id. `attempts_made` and `stalls` tell what was tried. `data` has the type that
    the handler declares, or is the stored text if it does not fit; `checkpoint` is what the job saved, and `progress`
    how far it came.
    """

    id: str
    queue: str
    job_id: str
    name: str
    data: Any
    cause: Cause
    failure: Failure
    failed_at: datetime
    max_attempts: int
    attempts_made: int
    stalls: int
    stall_cause: str | None
    worker: str | None
    added_at: datetime
    started_at: datetime | None
    priority: int
    backoff: RetryDelay | None
    timeout: Seconds | None
    keep_completed: Keep
    keep_logs: int
    result_ttl: Seconds | None
    breaker: str | None
    subject: str | None
    metadata: Mapping[str, Any]
    checkpoint: Any
    progress: Any
    parent: JobRef | None
    on_failure: OnFailure
    group: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What is remembered of a job that has ended, even when the job itself is gone.

    `text` is the start of the result or the reason of the failure; `whole` says that nothing was cut off. `parent` is
    the job that waited for it in a flow.
    """

    id: str
    name: str
    ending: RunStatus
    cause: Cause
    added_at: datetime
    started_at: datetime | None
    finished_at: datetime
    attempts_made: int
    stalls: int
    worker: str | None
    text: str
    whole: bool
    subject: str | None
    parent: JobRef | None


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One event of a queue. `at` is its position, to continue from; `detail` is as BullMQ writes it."""

    at: str
    time: datetime
    kind: EventKind
    job_id: str | None
    detail: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """A worker, as of its last heartbeat.

    `lag` is how late its event loop recently was. `silent` is how long its event loop has not moved, as its supervisor
    reports. `queue_slots` has, by queue, the number of slots and how many of them are in use. `orders` are the commands
    that it has been sent.
    """

    id: str
    queues: tuple[str, ...]
    slots: int
    running: int
    host: str
    pid: int
    version: str
    started_at: datetime
    seen_at: datetime
    orders: tuple[str, ...]
    lag: Seconds
    silent: Seconds
    queue_slots: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecord:
    """A schedule in the store, with the name, payload and options of its jobs.

    `slot` is the time of its current run, `next` that of the next one, as far as it is fixed, and `count` how many
    there have been. `busy` says that the last run has not ended, `over` that there will be no more runs.
    """

    queue: str
    id: str
    name: str
    data: Any
    max_attempts: int
    priority: int
    timeout: Seconds | None
    every: Seconds | None
    cron: str | None
    tz: str
    start: datetime | None
    end: datetime | None
    limit: int | None
    offset: Seconds | None
    jitter: Seconds
    min_interval: Seconds
    overlap: Overlap
    catch_up: CatchUp
    window: Seconds
    owner: str | None
    slot: datetime
    next: datetime | None
    count: int
    paused: bool
    busy: bool
    over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitRecord:
    """The state of one key of a circuit breaker.

    `till` is when the pause of an open circuit ends or, if it is half-open, when a probe was last heard of. `runs` and
    `failures` are counted over `window`; `probes` is how many jobs are testing it now, `passed` how many have passed.
    """

    key: str
    state: CircuitState
    since: datetime | None
    till: datetime | None
    runs: int
    failures: int
    probes: int
    passed: int
    window: Seconds
    pause: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A group: how many of its jobs wait (ready or not yet due) and run, its limits, which of them are its `own`, and
    `till` when its rate is used up."""

    name: str
    waiting: int = 0
    running: int = 0
    limits: GroupLimits = NO_LIMITS
    own: GroupLimits = NO_LIMITS
    paused: bool = False
    till: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """A queue's settings in the store, which hold for every process. Until `held_till` nothing starts, because a job
    asked for that."""

    paused: bool
    concurrency: int | None
    rate: RateLimit | None
    max_waiting: int | None
    held_till: datetime | None
    groups: GroupLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStack:
    """Where a running job is.

    `text` has its frames like a traceback, the innermost last. If the event loop of its worker has been blocked for
    `silent` seconds, it has the stacks of all threads instead, the innermost frame first.
    """

    queue: str
    id: str
    worker: str
    text: str
    silent: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDeclaration:
    """How the workers of a queue declare it in their code.

    If they differ, this is what the newest declare, and `differs` names the fields. `workers` counts the living ones,
    `slots` is how many jobs they can run at once together, and `concurrency` is that of one worker. `handlers` are the
    job names with a handler, None if there are too many to list; `any_name` says that jobs of other names have one too.
    """

    workers: int
    slots: int
    differs: tuple[str, ...]
    declared_at: datetime
    concurrency: int
    lease: Seconds
    max_stalls: int
    max_attempts: int
    backoff: RetryDelay
    timeout: Seconds | None
    rate: RateLimit | None
    max_waiting: int | None
    groups: GroupLimits | None
    priority_first: bool
    keep_completed: Keep
    keep_failed: Keep
    target_wait: Seconds
    handlers: tuple[str, ...] | None
    any_name: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One durable step of a job, as it is recorded.

    `key` names it for `Job.rewind`, `number` gives the order, and `took` is how long its function ran. `value` is what
    the step returned, the payload of the signal that was received (None if the time was over), the jobs that were
    called, or the version. `error` says how a step has failed, `tries` how often it was tried before its next one, and
    `until` when a sleep, a wait or such a pause ends.
    """

    key: str
    kind: Literal["step", "failed", "retry", "sleep", "wait", "signal", "call", "version"]
    number: int
    at: datetime
    took: Seconds
    attempt: int
    value: Any = None
    error: str | None = None
    tries: int | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelCounts:
    """How many jobs were cancelled before they started, and how many running jobs were asked to stop."""

    cancelled: int
    requested: int


def as_record(kind: type[R], row: object, options: JobOptions | None = None, **made: Any) -> R:
    """A record for programs, from a row of the store. Fields of `kind` that are datetimes or durations are milliseconds
    in the row; `made` has the fields that the row does not have in that form. The `options` of a job are converted as
    well."""
    read = {
        name: reader(getattr(row if options is None or name not in _OPTIONS else options, name))
        for name, reader in _readers(cast("Any", kind))
        if name not in made
    }
    return kind(**read, **made)


def schedule_record(view: ScheduleRow, data: Any) -> ScheduleRecord:
    """A schedule as a record; `data` is the payload of its jobs."""
    job = view.schedule.job
    return as_record(
        ScheduleRecord,
        view.schedule,
        queue=view.queue,
        name=job.name,
        data=data,
        max_attempts=job.attempts,
        priority=job.priority,
        timeout=_seconds(job.options.timeout),
        slot=moment(view.slot),
        next=moment(view.next),
        count=view.count,
        paused=view.paused,
        busy=view.busy,
        over=view.over,
    )


def declaration_record(found: Declarations) -> QueueDeclaration | None:
    """What workers declare, as a record."""
    if not found.items:
        return None
    said, at = found.items[0].declaration, found.items[0].at
    return as_record(
        QueueDeclaration,
        said,
        workers=found.workers,
        slots=found.slots,
        differs=found.differing,
        declared_at=moment(at),
        handlers=None if said.handlers is None else tuple(sorted(said.handlers)),
        any_name=said.any_name is not None,
    )


def circuit_record(circuit: CircuitRow) -> CircuitRecord:
    """A circuit as a record."""
    return as_record(
        CircuitRecord,
        circuit,
        since=moment(circuit.since or None),
        till=moment(circuit.till or None),
        probes=len(circuit.probes),
        window=circuit.terms.window / 1000,
        pause=circuit.terms.pause / 1000,
    )


@cache
def _readers(kind: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((field.name, _reader(hints[field.name])) for field in fields(kind))


def _reader(hint: Any) -> Callable[[Any], Any]:
    """How to convert a field of this type."""
    kinds = {hint, *get_args(hint)}
    if datetime in kinds:
        return moment
    if Seconds in kinds:
        return _seconds
    return _retry_delay if RetryDelay in kinds else _same


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _retry_delay(row: object) -> RetryDelay | None:
    return None if row is None else as_record(RetryDelay, row)


def _same(value: Any) -> Any:
    return value
