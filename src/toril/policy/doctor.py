"""Turns facts and faults into findings, and orders the doctor's scan."""

import base64
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from toril.errors import unknown_cursor
from toril.model import (
    BEYOND_REPAIR,
    Checkup,
    DatabaseFacts,
    Fault,
    FaultKind,
    FileFacts,
    Finding,
    ServerFacts,
    Severity,
)

__all__ = ["ScanOrder", "ScanPosition", "cursor_of", "finding_of", "judged"]

_OLDEST: Final = (6, 2)
_FULL: Final = 0.9  # share of the memory
_SLOW: Final = 10.0  # ms of the fastest of several pings
_SKEWED: Final = 1_000.0  # ms
_SCRIPTS: Final = 10_000
_LOG: Final = 256 * 1024 * 1024
_ROOM: Final = 64 * 1024 * 1024
_OLD_SNAPSHOT: Final = 600_000  # ms
_DEAD: Final = 100_000  # rows, and as a share of the others
_DEAD_SHARE: Final = 2

_REPAIR: Final = "toril doctor --repair"
# For each kind, its severity and its sentence.
_FAULTS: Final[dict[FaultKind, tuple[Severity, str]]] = {
    FaultKind.GHOST: (Severity.WARNING, "{subject} is listed in {place}, but there is no such job"),
    FaultKind.ORPHAN: (Severity.ERROR, "job {subject} is in no list, so it will never run or be removed"),
    FaultKind.DOUBLE: (Severity.ERROR, "job {subject} is in more than one list, so it may run twice"),
    FaultKind.LOST: (Severity.ERROR, "job {subject} is active, but its lease has run out and nobody has recovered it"),
    FaultKind.LOCK: (Severity.WARNING, "there is a lock for job {subject}, but it is not running"),
    FaultKind.MARKER: (Severity.WARNING, "jobs are ready, {subject} first, but the marker for workers is missing"),
    FaultKind.PARENT: (Severity.ERROR, "job {subject} waits for children, but none of them is left to release it"),
    FaultKind.SCHEDULE: (Severity.ERROR, "schedule {subject} has no next run"),
    FaultKind.DEDUP: (Severity.WARNING, "the deduplication key {subject} still blocks jobs, but its owner has ended"),
    FaultKind.SUSPECT: (Severity.WARNING, "job {subject} is listed to run in isolation, but it is not waiting"),
    FaultKind.ID: (Severity.WARNING, "the id {subject} is taken, but there is no such job"),
    FaultKind.REST: (Severity.WARNING, "job {subject} is noted as resting, but it does not rest"),
    FaultKind.WAIT: (Severity.WARNING, "signals by the key {subject} go to a job that is gone or has ended"),
    FaultKind.COUNT: (Severity.WARNING, "the counter of {subject} jobs is wrong"),
    FaultKind.WORKER: (Severity.NOTICE, "worker {subject} is listed, but has not sent a heartbeat for a long time"),
    FaultKind.UNREADABLE: (Severity.WARNING, "the options of job {subject} cannot be read, so it will fail unstarted"),
    FaultKind.FOREIGN: (Severity.ERROR, "{subject}"),
}  # fmt: skip


_FIXES: Final = {
    FaultKind.UNREADABLE: "toril job show QUEUE ID, then toril job remove QUEUE ID and add it again",
    FaultKind.FOREIGN: "rename that key, or give the App a prefix of its own",
}


def finding_of(fault: Fault) -> Finding:
    """The finding for a fault of the layout."""
    severity, sentence = _FAULTS[fault.kind]
    repairable = fault.kind not in BEYOND_REPAIR
    subject = fault.subject if fault.kind is FaultKind.FOREIGN else repr(fault.subject)
    text = sentence.format(subject=subject, place=fault.place)
    where = f"queue {fault.queue!r}: " if fault.queue else ""
    return Finding(
        code=fault.kind.value,
        severity=severity,
        summary=where + text,
        where=fault.place,
        fix=_FIXES.get(fault.kind, _REPAIR),
        fault=fault if repairable else None,
    )


def judged(facts: Checkup, *, counted: bool = True) -> list[Finding]:
    """The findings for the facts of a server or a file, whose jobs were `counted` or not. There are none for a healthy
    one that was checked completely."""
    match facts:
        case ServerFacts():
            return [*_memory(facts), *_persistence(facts), *_replication(facts), *_manners(facts)]
        case FileFacts():
            return list(_file(facts, counted=counted))
        case DatabaseFacts():
            return list(_database(facts))


def _memory(facts: ServerFacts) -> Iterator[Finding]:
    policy = facts.policy
    if policy is not None and policy != "noeviction":
        yield _error(
            "eviction",
            facts.place,
            f"the server evicts keys when it is full (maxmemory-policy {policy}), which loses jobs",
            "redis-cli CONFIG SET maxmemory-policy noeviction",
        )
    if facts.evicted:
        yield _error(
            "evicted",
            facts.place,
            f"the server has evicted {facts.evicted} keys since it started",
            "redis-cli CONFIG SET maxmemory-policy noeviction",
        )
    most = facts.maxmemory or facts.total
    if most and facts.used > _FULL * most:
        yield _error(
            "memory",
            facts.place,
            f"{facts.used} of {most} bytes of memory are used; once it is full, adds are refused",
            "redis-cli CONFIG SET maxmemory BYTES, or remove jobs: toril clean QUEUE",
        )


def _persistence(facts: ServerFacts) -> Iterator[Finding]:
    fix = "redis-cli CONFIG SET appendonly yes, and the same in its configuration"
    if facts.log is None:
        yield _notice("persistence", facts.place, "the server does not say whether it keeps its data", "see INFO")
    elif not facts.log and facts.snapshots is None:
        yield _notice(
            "persistence",
            facts.place,
            "the server has no append-only file, and does not say whether it takes snapshots",
            "redis-cli CONFIG GET save, as a user with that permission",
        )
    elif not facts.log and not facts.snapshots:
        yield _error("persistence", facts.place, "the server writes nothing to disk, so a restart loses all jobs", fix)
    elif not facts.log:
        yield _warning(
            "persistence",
            facts.place,
            f"the server only takes snapshots; a crash now would lose {facts.unsaved} changes",
            fix,
        )
    if not facts.log_ok:
        yield _error(
            "log", facts.place, "the last write to the append-only file failed", "check the server's disk and log"
        )
    if not facts.snapshot_ok:
        yield _error("snapshot", facts.place, "the last snapshot failed", "check the server's disk, memory and log")


def _replication(facts: ServerFacts) -> Iterator[Finding]:
    if facts.role != "master":
        yield _error(
            "replica",
            facts.place,
            f"this server is a {facts.role}, which accepts no writes",
            "use the URL of the primary",
        )
        if not facts.link_ok:
            yield _error("link", facts.place, "its link to the primary is down", "redis-cli INFO replication")
    if facts.replicas_behind:
        yield _warning(
            "behind",
            facts.place,
            f"{facts.replicas_behind} of {facts.replicas} replicas are behind",
            "redis-cli INFO replication",
        )


def _manners(facts: ServerFacts) -> Iterator[Finding]:
    version = tuple(int(part) for part in facts.version.split(".")[:2] if part.isdecimal())
    if version < _OLDEST:
        yield _error(
            "version", facts.place, f"the server runs Redis {facts.version}; Toril needs 6.2 or newer", "upgrade it"
        )
    if facts.pings and min(facts.pings) > _SLOW:
        yield _warning(
            "latency",
            facts.place,
            f"the fastest of {len(facts.pings)} pings took {min(facts.pings):.1f} ms",
            "redis-cli --latency, redis-cli SLOWLOG GET",
        )
    if abs(facts.skew) > _SKEWED:
        yield _clock(facts)
    for reason in facts.refused:
        yield _error("scripts", facts.place, f"the server refuses Toril's scripts: {reason}", "allow EVAL and EVALSHA")
    if facts.scripts > _SCRIPTS:
        yield _warning(
            "script_cache",
            facts.place,
            f"the server caches {facts.scripts} scripts; some program keeps creating new ones",
            "redis-cli SCRIPT FLUSH ASYNC, which is safe while workers run",
        )


def _file(facts: FileFacts, *, counted: bool) -> Iterator[Finding]:
    place = facts.place
    if facts.damage is None:
        uncounted = "" if counted else ", and its jobs were not counted"
        yield _notice(
            "unread",
            place,
            f"the file was not checked for damage{uncounted}, because that takes long for a large file",
            "toril doctor; for a store in memory, app.doctor()",
        )
    for each in facts.damage or ():
        yield _error("damage", place, f"the file is damaged: {each}", f"sqlite3 {place} .recover, into a new file")
    if facts.journal not in {"wal", "memory"}:
        yield _error(
            "journal",
            place,
            f"the file's journal mode is {facts.journal}",
            f"sqlite3 {place} 'PRAGMA journal_mode=WAL'",
        )
    if facts.synchronous != "full" and facts.journal != "memory":
        yield _notice(
            "synchronous",
            place,
            f"synchronous={facts.synchronous}: a power failure may lose the latest changes",
            "leave ?synchronous= out of the URL",
        )
    if facts.log > _LOG:
        yield _warning(
            "log",
            place,
            f"the write-ahead log has grown to {facts.log} bytes, because a program has been reading for a long time",
            "end that program; the log is written back once nothing reads the file",
        )
    if facts.free is not None and facts.free < _ROOM:
        yield _error("disk", place, f"only {facts.free} bytes are left on the disk", "free space on the disk")
    if facts.mode is not None and facts.mode & 0o002:
        yield _warning(
            "permissions",
            place,
            f"every user of the machine may write the file (mode {facts.mode:04o})",
            f"chmod o-rwx {place}*",
        )
    elif facts.mode is not None and facts.mode & 0o004:
        yield _notice(
            "permissions",
            place,
            f"every user of the machine may read the file, including payloads (mode {facts.mode:04o})",
            f"chmod o-rwx {place}*",
        )
    if facts.network:
        yield _error(
            "network",
            place,
            f"the file is on {facts.filesystem}, where SQLite's locks are not safe",
            "move it to a local disk, or use Redis",
        )


def _database(facts: DatabaseFacts) -> Iterator[Finding]:
    place = facts.place
    if facts.standby:
        yield _error(
            "replica", place, "this server is a standby, which accepts no writes", "use the URL of the primary"
        )
    if not facts.fsync:
        yield _error(
            "fsync",
            place,
            "fsync is off: a crash of the machine may destroy the database",
            "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()",
        )
    if facts.synchronous_commit == "off":
        yield _warning(
            "synchronous",
            place,
            "synchronous_commit is off by default here; Toril turns it on for its own transactions, but other programs "
            "may lose their latest changes",
            "ALTER ROLE … RESET synchronous_commit, or the same for the database",
        )
    if facts.snapshot > _OLD_SNAPSHOT:
        yield _warning(
            "snapshot",
            place,
            f"a transaction has been running for {facts.snapshot // 1000} s; until it ends, no old row is removed",
            "SELECT pid, state, query FROM pg_stat_activity ORDER BY xact_start LIMIT 3",
        )
    if facts.dead > max(_DEAD, facts.live * _DEAD_SHARE):
        yield _warning(
            "vacuum",
            place,
            f"the tables hold {facts.dead} dead rows, and {facts.live} others",
            "see why autovacuum does not come: SELECT relname, last_autovacuum FROM pg_stat_user_tables",
        )
    if facts.pings and min(facts.pings) > _SLOW:
        yield _warning(
            "latency",
            place,
            f"the fastest of {len(facts.pings)} pings took {min(facts.pings):.1f} ms",
            "run the workers nearer to the server",
        )
    if abs(facts.skew) > _SKEWED:
        yield _clock(facts)


def _clock(facts: ServerFacts | DatabaseFacts) -> Finding:
    way = "ahead of" if facts.skew > 0 else "behind"
    return _warning(
        "clock",
        facts.place,
        f"the server's clock is {abs(facts.skew) / 1000:.1f} s {way} this machine's",
        "synchronize both clocks, for example with chrony",
    )


def _error(code: str, where: str, summary: str, fix: str) -> Finding:
    return Finding(code=code, severity=Severity.ERROR, summary=summary, where=where, fix=fix)


def _warning(code: str, where: str, summary: str, fix: str) -> Finding:
    return Finding(code=code, severity=Severity.WARNING, summary=summary, where=where, fix=fix)


def _notice(code: str, where: str, summary: str, fix: str) -> Finding:
    return Finding(code=code, severity=Severity.NOTICE, summary=summary, where=where, fix=fix)


class ScanPosition(NamedTuple):
    """The position of a scan."""

    queue: str  # empty for steps of the whole store
    step: str
    at: Any = None  # the position in the step; None at its beginning


class ScanOrder:
    """The order of a scan: some steps for each queue by name, then some for the store."""

    def __init__(self, queues: Iterable[str], steps: Sequence[str], last: Sequence[str]) -> None:
        self._queues = sorted({*queues})
        self._steps = steps
        self._last = last

    def first(self, cursor: str | None) -> ScanPosition:
        """Where a scan begins or continues. A queue that has disappeared since is skipped."""
        if cursor is None:
            return self._queue(0)
        spot = _read(cursor)
        if spot is None or spot.step not in self._steps_of(spot):
            raise unknown_cursor(cursor)
        if spot.queue and spot.queue not in self._queues:
            return self._queue(bisect_right(self._queues, spot.queue))
        return spot

    def after(self, spot: ScanPosition, at: Any) -> ScanPosition | None:
        """The next position, if a look says that its step continues `at` a place or, with None, is finished; None at
        the end."""
        if at is not None:
            return spot._replace(at=at)
        steps = self._steps_of(spot)
        following = steps.index(spot.step) + 1
        if following < len(steps):
            return ScanPosition(spot.queue, steps[following])
        return self._queue(bisect_left(self._queues, spot.queue) + 1) if spot.queue else None

    def _steps_of(self, spot: ScanPosition) -> Sequence[str]:
        return self._steps if spot.queue else self._last

    def _queue(self, number: int) -> ScanPosition:
        return (
            ScanPosition(self._queues[number], self._steps[0])
            if number < len(self._queues)
            else ScanPosition("", self._last[0])
        )


def cursor_of(spot: ScanPosition | None) -> str | None:
    """A position as a cursor."""
    if spot is None:
        return None
    return base64.urlsafe_b64encode(json.dumps(spot, ensure_ascii=False).encode()).decode().rstrip("=")


def _read(cursor: str) -> ScanPosition | None:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        match json.loads(text):
            case [str() as queue, str() as step, at]:
                return ScanPosition(queue, step, at)
            case _:
                return None
    except (ValueError, RecursionError):
        return None
