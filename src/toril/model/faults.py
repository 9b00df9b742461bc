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

    GHOST = "ghost"  # an id in a list, without a job
    ORPHAN = "orphan"  # a job that is in no list
    DOUBLE = "two_places"  # a job that is in more than one list
    LOST = "lost_job"  # a running job whose lease has expired, and that nobody has recovered
    LOCK = "stray_lock"  # a lock of a job that is not running
    MARKER = "missing_marker"  # jobs are ready, but idle workers are not woken
    PARENT = "stuck_parent"  # a parent that waits for children that are gone
    SCHEDULE = "schedule_without_run"
    DEDUP = "stale_dedup"  # a deduplication key of a job that is gone or has ended
    SUSPECT = "stale_suspect"  # listed as waiting to run alone, but not waiting
    ID = "stale_id"  # a chosen id taken by a job that does not exist
    REST = "stale_rest"  # noted as resting, but neither delayed nor waiting for children
    WAIT = "orphan_wait"  # signals by a key go to a job that is gone or has ended
    COUNT = "wrong_count"  # the stored number of jobs in a state is wrong
    WORKER = "dead_worker"  # a worker whose heartbeat expired long ago
    UNREADABLE = "unreadable_job"  # an unfinished job whose options cannot be read
    FOREIGN = "foreign_key"  # a key of the layout that another program uses


# What only a person can repair.
BEYOND_REPAIR = frozenset({FaultKind.FOREIGN, FaultKind.UNREADABLE})
# Repaired without asking: nothing is lost, and no job runs that would not have run.
AUTO_REPAIRED = frozenset({
    FaultKind.GHOST, FaultKind.LOCK, FaultKind.MARKER, FaultKind.PARENT, FaultKind.SCHEDULE, FaultKind.DEDUP,
    FaultKind.SUSPECT, FaultKind.ID, FaultKind.REST, FaultKind.WAIT, FaultKind.COUNT, FaultKind.WORKER,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, with the job, key, schedule or worker that it concerns. `place` is the key or table in which it
    shows."""

    kind: FaultKind
    queue: str  # empty for faults of the fleet
    subject: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong, how severe it is, where, and the command that repairs it. `fault` is what `App.repair` repairs."""

    code: str
    severity: Severity
    summary: str
    where: str
    fix: str
    fault: Fault | None = None


class RepairOutcome(StrEnum):
    """What a repair did."""

    REPAIRED = "repaired"
    GONE = "gone"  # the fault no longer existed
    FAILED = "failed"  # nothing was changed, and it still exists


@dataclass(frozen=True, slots=True)
class Repaired:
    """A finding and what its repair did."""

    finding: Finding
    outcome: RepairOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """Facts of a Redis server; None where it does not tell. Times are ms."""

    place: str
    version: str
    policy: str | None
    maxmemory: int
    used: int
    total: int  # bytes of the machine's memory; 0 if unknown
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
    skew: float  # by how much the server's clock is ahead of ours, as precisely as the pings allow
    refused: tuple[str, ...]  # scripts that do not load, with the reason
    scripts: int  # kept by the server, from all programs


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """Facts of a store's file. A store in memory has none of these problems."""

    place: str
    version: str
    damage: tuple[str, ...] | None  # None: the file was not checked
    journal: str
    synchronous: str
    log: int  # bytes of the write-ahead log
    free: int | None  # bytes of the disk
    mode: int | None  # its permissions
    filesystem: str
    network: bool
    pings: tuple[float, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """A store in a PostgreSQL database. Times are ms."""

    place: str
    version: str
    standby: bool  # a server that only repeats what another writes
    fsync: bool
    synchronous_commit: str
    snapshot: int  # how long the oldest transaction has been running that keeps old rows from being removed
    dead: int  # rows that could be removed, as far as the statistics tell
    live: int
    pings: tuple[float, ...]
    skew: float  # the server's clock before ours, as far as the pings' length lets one tell


Checkup = ServerFacts | FileFacts | DatabaseFacts
