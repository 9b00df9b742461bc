"""Faults of a store, findings about it, and repairs."""

from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is. A store with nothing but notices is healthy."""

    ERROR = "error"  # jobs are stuck, or can be lost
    WARNING = "warning"  # something should be repaired
    NOTICE = "notice"


class FaultKind(StrEnum):
    """What is wrong with a queue or the fleet."""

    GHOST = "ghost"  # an id in a line, without a job
    ORPHAN = "orphan"  # a job that stands in no line
    DOUBLE = "two_places"  # a job that stands in more than one
    LOST = "lost_job"  # a running job that nobody holds, and nobody has taken back
    LOCK = "stray_lock"  # a lock of a job that does not run
    MARKER = "missing_marker"  # jobs are ready, and those who sleep are not told
    PARENT = "stuck_parent"  # a parent that waits for children which are not there
    SCHEDULE = "schedule_without_run"
    DEDUP = "stale_dedup"  # a deduplication key of a job that is gone or has ended
    SUSPECT = "stale_suspect"  # listed as waiting to run alone, and not waiting
    ID = "stale_id"  # a chosen id that is taken by a job which is not there
    COUNT = "wrong_count"  # the number of jobs in a state is not the number of jobs in it
    WORKER = "dead_worker"  # a worker's sign of life that is long over
    UNREADABLE = "unreadable_job"  # one that has not ended, and whose options cannot be read
    FOREIGN = "foreign_key"  # a key of the layout that another program has put something else into


# What nobody but a person can mend.
BEYOND_REPAIR = frozenset({FaultKind.FOREIGN, FaultKind.UNREADABLE})
# What can be repaired without asking: nobody loses anything by it, and no job runs that would not have run.
AUTO_REPAIRED = frozenset({
    FaultKind.GHOST, FaultKind.LOCK, FaultKind.MARKER, FaultKind.PARENT, FaultKind.SCHEDULE, FaultKind.DEDUP,
    FaultKind.SUSPECT, FaultKind.ID, FaultKind.COUNT, FaultKind.WORKER,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, with the job, key, schedule or worker that it concerns. `place` is the key or table where it shows."""

    kind: FaultKind
    queue: str  # empty for the fleet's
    subject: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong, how bad it is, where, and the command that repairs it. `fault` is what `App.repair` works on."""

    code: str
    severity: Severity
    summary: str
    where: str
    fix: str
    fault: Fault | None = None


class RepairOutcome(StrEnum):
    """What a repair did."""

    REPAIRED = "repaired"
    GONE = "gone"  # the fault was there no more
    FAILED = "failed"  # nothing was changed, and it is still there


@dataclass(frozen=True, slots=True)
class Repaired:
    """A finding and what its repair did."""

    finding: Finding
    outcome: RepairOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """A Redis server. None: it would not say. Times are ms."""

    place: str
    version: str
    policy: str | None
    maxmemory: int
    used: int
    total: int  # bytes of the machine's memory; 0 if not known
    evicted: int
    log: bool | None  # whether there is an append-only file
    log_ok: bool
    snapshots: bool | None  # whether snapshots are taken
    snapshot_ok: bool
    unsaved: int  # changes since the last snapshot
    role: str
    link_ok: bool  # a replica's link to its primary
    replicas: int
    replicas_behind: int
    pings: tuple[float, ...]
    skew: float  # the server's clock before ours, as far as the pings' length lets one tell
    refused: tuple[str, ...]  # scripts that do not load, with the reason
    scripts: int  # that the server keeps, of all programs


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A store's file. A store in memory has no place, and no worries."""

    place: str
    version: str
    damage: tuple[str, ...] | None  # None: the file was not read through
    journal: str
    synchronous: str
    log: int  # bytes of the write-ahead log
    free: int | None  # bytes of the disk
    mode: int | None  # who may read and write it
    filesystem: str
    network: bool
    pings: tuple[float, ...] = field(default=())


Checkup = ServerFacts | FileFacts
