"""Choose what leaves, take it out, keep it until confirmed."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.dedup import kept_job
from toril.engines.sql.inspector import run_of
from toril.engines.sql.options import load_failure, load_options, load_rate
from toril.engines.sql.recording import MINUTE, put_by
from toril.engines.sql.replay import letter_of
from toril.engines.sql.schedules import drop_run, view_of
from toril.engines.sql.schema import STATE_OF, Place, due_of, first_key, job_id, run_key
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import QueueRow, Transaction, exists, keys_of
from toril.errors import WrongState
from toril.model import (
    KEEP_ALL,
    LOAD_BYTES,
    Child,
    ChildState,
    EventKind,
    GroupLimits,
    JobRef,
    Keep,
    OnFailure,
    OwnedKey,
    Parcel,
    RunStatus,
    TransferBatch,
    TransferDeadLetter,
    TransferJob,
    TransferPart,
    TransferRecords,
    TransferSchedule,
    TransferSettings,
    TransferStoreFacts,
    letter_id,
)
from toril.policy.attempts import load_errors

__all__ = [
    "STANDINGS",
    "ExportedJob",
    "JobExporter",
    "departure",
    "forget",
    "identity",
    "is_held_up",
    "pack",
    "parcel_of",
]

STANDINGS: Final = (ChildState.OPEN, ChildState.COMPLETED, ChildState.IGNORED, ChildState.FAILED)


def parcel_of(text: str) -> Parcel:
    kind, *content = json.loads(text)
    return _KINDS[kind](*content)


def _job(queue: str, row: Sequence[Any], lines: list[str], children: list[Any], keys: list[Any]) -> TransferJob:
    (key, chosen, name, data, place, rank, attempts, made, stalls, starts, fence, priority, delay, expires_at, text,
     metadata, checkpoint, progress, result, failure, stall_cause, worker, added_at, started_at, finished_at, group,
     errors, _, _) = row  # fmt: skip
    options = load_options(text)
    parent = options.parent
    return TransferJob(
        queue=queue, id=job_id(key, chosen), name=name, data=data, state=STATE_OF[place],
        suspect=place in {Place.SUSPECT, Place.PARKED_SUSPECT}, due=due_of(rank) if place == Place.DELAYED else None,
        max_attempts=attempts, attempts_made=made, stalls=stalls, starts=starts, fence=fence, priority=priority,
        delay=delay, added_at=added_at, started_at=started_at, finished_at=finished_at, expires_at=expires_at,
        worker=worker, metadata=metadata, checkpoint=checkpoint, progress=progress, failure=load_failure(failure),
        stall_cause=stall_cause, result=result, group=group, backoff=options.backoff, timeout=options.timeout,
        keep_completed=options.keep_completed, keep_failed=options.keep_failed, keep_logs=options.keep_logs,
        result_ttl=options.result_ttl, dedup=options.dedup, breaker=options.breaker, subject=options.subject,
        trace=options.trace, parent=None if parent is None else JobRef(parent.queue, parent.id),
        on_failure=OnFailure.FAIL if parent is None else OnFailure(parent.policy), parked=options.parked,
        deferred=options.deferred, ready=options.ready, logs=tuple(lines), errors=load_errors(errors),
        children=_children(children),
        held=OwnedKey(keys[0][0], keys[0][1], None if keys[0][2] is None else kept_job(keys[0][2])) if keys else None,
        wire=None if options.fault is None else text,
    )  # fmt: skip


def _children(rows: Sequence[Any]) -> tuple[Child, ...]:
    return tuple(
        Child(JobRef(queue, child), STANDINGS[standing], text, name, number)
        for standing, queue, child, text, number, name in rows
    )


def _letter(row: list[Any], children: list[Any], lines: list[str]) -> TransferDeadLetter:
    *told, errors, _, _ = row
    return TransferDeadLetter(letter_of(tuple(told)), _children(children), tuple(lines), load_errors(errors))


def _schedule_text(queue: str, told: list[Any], waits: bool, started: str | None) -> TransferSchedule:  # noqa: FBT001 - as it was packed
    return TransferSchedule(view_of(queue, told), waits, started)


def _settings_text(
    queue: str, settings: list[Any], counted: list[int], groups: list[Any], starts: list[Any], of_groups: list[Any]
) -> TransferSettings:
    paused, concurrency, rate, max_waiting, held_till, by_hand, declared = settings
    group_starts: dict[str, list[tuple[int, int]]] = {}
    for name, time, count in of_groups:
        group_starts.setdefault(name, []).append((time, count))
    return TransferSettings(
        queue=queue, paused=bool(paused), concurrency=concurrency, rate=load_rate(rate), max_waiting=max_waiting,
        held_till=held_till or None, groups_set=None if by_hand is None else GroupLimits.load(by_hand),
        groups_declared=None if declared is None else GroupLimits.load(declared),
        groups={name: (GroupLimits.load(limits), bool(stopped)) for name, limits, stopped in groups},
        numbers=counted[0], fences=counted[1], starts=tuple((time, count) for time, count in starts),
        group_starts=group_starts,
    )  # fmt: skip


def _ledger_text(
    queue: str, totals: list[int], runs: list[Any], minutes: list[Any], slices: list[Any], results: list[Any],
    keys: list[Any],
) -> TransferRecords:  # fmt: skip
    return TransferRecords(
        queue=queue, completed=totals[0], failed=totals[1], cancelled=totals[2],
        minutes=tuple((m, done, bad) for m, done, bad in minutes),
        runs=tuple(run_of(ending, tuple(row)) for ending, rows in zip(RunStatus, runs, strict=True) for row in rows),
        slices={(step, number): json.loads(counted) for step, number, counted in slices},
        results=tuple((job, till, cause, text) for job, till, cause, text in results),
        keys=tuple((key, owner, till) for key, owner, till in keys),
    )  # fmt: skip


def _facts_text(kept: str | None, circuits: list[Any]) -> TransferStoreFacts:
    return TransferStoreFacts(KEEP_ALL if kept is None else Keep(*json.loads(kept)), dict(circuits))


_KINDS: Final[dict[str, Callable[..., Parcel]]] = {
    "job": _job,
    "letter": _letter,
    "schedule": _schedule_text,
    "settings": _settings_text,
    "ledger": _ledger_text,
    "facts": _facts_text,
}


_LOAD_SQL: Final = {name: statement("moving", name) for name in (
    "job", "children", "is_open", "lines", "keys", "runs", "letter",
)}  # fmt: skip
_DELETE_LETTER: Final = statement("letters", "delete")
_FORGET_KIN: Final = statement("letters", "forget_kin")
_FORGET_LOG: Final = statement("letters", "forget_log")
_RUNNING: Final = -1  # the last of a job's columns
_LOGS: Final = -2


class ExportedJob(NamedTuple):
    """A job that may leave, as its row is, and what it knows of children."""

    queue: str
    row: tuple[Any, ...]
    children: list[Any]

    @property
    def key(self) -> int:
        return int(self.row[0])

    @property
    def chosen(self) -> str | None:
        return None if self.row[1] is None else str(self.row[1])

    @property
    def id(self) -> str:
        return job_id(self.key, self.chosen)

    @property
    def place(self) -> int:
        return int(self.row[4])

    @property
    def starts(self) -> int:
        return int(self.row[9])

    @property
    def is_running(self) -> bool:
        return bool(self.row[_RUNNING])

    @property
    def has_ended(self) -> bool:
        return not self.is_running and self.place in {Place.COMPLETED, Place.FAILED}


def is_held_up(row: QueueRow) -> bool:
    """Whether nothing may leave while something runs: else more would run at once than may, or out of turn."""
    return bool(row.active and (row.grouped or row.concurrency is not None))


class JobExporter:
    """Takes jobs out of the store, until there are enough. What it has taken is `parcels`."""

    def __init__(self, tx: Transaction, limit: int) -> None:
        self._tx = tx
        self._left = limit
        self._room = LOAD_BYTES
        self._steps: dict[str, QueueChanges] = {}
        self._settled: set[int] = set()  # taken, or known to stay
        self._runs: dict[str, set[int]] = {}
        self.parcels: list[str] = []

    @property
    def is_full(self) -> bool:
        return self._left <= 0 or self._room <= 0

    def member(self, queue: str, key: int) -> ExportedJob | None:
        found = self._tx.one(_LOAD_SQL["job"], (key,))
        return None if found is None else ExportedJob(queue, found, [])

    def take(self, queue: str, key: int, *, for_schedule: bool = False) -> bool:
        """Take a job, and whom it waits for or who waits for it. False: one of them runs, so all of them stay."""
        if key in self._settled:
            return False
        members: dict[int, ExportedJob] = {}
        letters: list[str] = []
        stays = not all(self._may_leave(each, for_schedule=for_schedule) for each in self._walk(queue, key, members))
        self._settled |= members.keys()
        if stays:
            return False
        for each in members.values():
            letters += [
                letter_id(q, i) for standing, q, i, *_ in each.children if not standing and self._key(q, i) is None
            ]
        for each in members.values():
            self._take_out(each)
        for letter in letters:
            self.take_letter(letter)
        return True

    def _walk(self, queue: str, key: int, members: dict[int, ExportedJob]) -> Iterator[ExportedJob]:
        """All of a family: along what parents wait for, both ways."""
        ahead = [(queue, key)]
        while ahead:
            name, at = ahead.pop()
            found = None if at in members else self.member(name, at)
            if found is None:
                continue
            options = load_options(found.row[14])
            if options.parked is not None:
                found.children.extend(self._tx.all(_LOAD_SQL["children"], (at,)))
            members[at] = found
            yield found
            parent = None if options.parent is None else self._key(options.parent.queue, options.parent.id)
            if options.parent is not None and parent is not None and not found.has_ended and self._tx.one(
                _LOAD_SQL["is_open"], (parent, name, found.id)
            ):  # fmt: skip
                ahead.append((options.parent.queue, parent))
            for standing, child_queue, child, *_ in found.children:
                open_child = self._key(child_queue, child) if not standing else None
                if open_child is not None:
                    ahead.append((child_queue, open_child))

    def _may_leave(self, member: ExportedJob, *, for_schedule: bool) -> bool:
        """Not what runs, or is still being added, or has to leave with its schedule."""
        row = self._tx.find(member.queue)
        if (
            member.is_running
            or member.key in self._settled
            or row is None
            or (not member.has_ended and is_held_up(row))
        ):
            return False
        if any(not standing and not child for standing, _, child, *_ in member.children):
            return False
        return for_schedule or member.has_ended or member.key not in self._runs_of(row)

    def _runs_of(self, row: QueueRow) -> set[int]:
        if row.name not in self._runs:
            self._runs[row.name] = {key for runs in self._tx.all(_LOAD_SQL["runs"], (row.key,)) for key in runs}
        return self._runs[row.name]

    def _key(self, queue: str, identity: str) -> int | None:
        row = self._tx.find(queue)
        key = None if row is None or not identity else keys_of(self._tx, row, (identity,)).get(identity)
        return key if key is not None and exists(self._tx, key, identity) else None

    def step(self, queue: str) -> QueueChanges:
        if queue not in self._steps:
            self._steps[queue] = QueueChanges(self._tx, self._tx.queue(queue))
        return self._steps[queue]

    def _take_out(self, member: ExportedJob) -> None:
        step, row, key = self.step(member.queue), member.row, member.key
        lines = [line for (line,) in self._tx.all(_LOAD_SQL["lines"], (key,))] if row[_LOGS] else []
        held = self._tx.all(_LOAD_SQL["keys"], (key,))
        step.leave(key, row[4], row[5])
        step.delete(key, row[1], row[_LOGS])
        if held:
            step.write("disown", [(key,)])
        if member.children:
            step.write("orphan", [(key,)])
        self._put("job", [member.queue, row, lines, member.children, held])
        self._left -= 1

    def take_letter(self, identity: str) -> bool:
        found = self._tx.one(_LOAD_SQL["letter"], (identity,))
        if found is None:
            return False
        *_, log, kin = found
        children = self._tx.all(_LOAD_SQL["children"], (kin,))
        lines = [line for (line,) in self._tx.all(_LOAD_SQL["lines"], (log,))]
        self._tx.run(_DELETE_LETTER, (identity,))
        self._tx.run(_FORGET_KIN, (kin,))
        self._tx.run(_FORGET_LOG, (log,))
        self._put("letter", [found, children, lines])
        self._left -= 1
        return True

    def put(self, kind: str, content: list[Any]) -> None:
        """Add what is no job."""
        self._put(kind, content)
        self._left -= 1

    def _put(self, kind: str, content: list[Any]) -> None:
        text = json.dumps([kind, *content], ensure_ascii=False)
        self.parcels.append(text)
        self._room -= len(text)

    def flush(self) -> list[str]:
        for step in self._steps.values():
            step.flush()
        return self.parcels


_SQL: Final = {name: statement("moving", name) for name in (
    "fact", "set_fact", "load", "loaded", "empty", "departure", "depart", "has_departed", "has_left", "is_back", "line",
    "schedules", "letter", "letters", "is_open", "groups", "starts", "group_starts", "minutes", "run_records", "slices",
    "results", "ownerless", "forget_ownerless", "all_circuits", "forget_circuits", "forget_fact",
)}  # fmt: skip
_REMOVE_SCHEDULE: Final = statement("schedules", "remove")
_FORGET: Final = [statement("control", f"forget_{name}") for name in ("minutes", "slices", "results")]
_FORGET_RUNS: Final = statement("control", "forget_runs")
_LOAD: Final = "load"
# Those who come next come first, so that they are the first there too.
_PLACES: Final = (
    Place.SUSPECT, Place.WAITING, Place.PRIORITIZED, Place.PARKED_SUSPECT, Place.PARKED, Place.DELAYED,
    Place.WAITING_CHILDREN, Place.COMPLETED, Place.FAILED,
)  # fmt: skip


def identity(tx: Transaction, fresh: str) -> str:
    """The name of this store among others: given once."""
    found = tx.one(_SQL["fact"], ("store",))
    if found is None:
        tx.run(_SQL["set_fact"], ("store", fresh))
        return fresh
    return str(found[0])


def departure(tx: Transaction, queue: str) -> str | None:
    """The store for which a queue leaves, or has left."""
    row = tx.find(queue)
    found = None if row is None else tx.one(_SQL["departure"], (row.key,))
    return None if found is None else str(found[0])


def pack(tx: Transaction, part: TransferPart, queue: str, to: str, mark: str, limit: int) -> TransferBatch | None:
    """The load that is on its way, if there is one; else a new one, if there is something to load."""
    found = tx.one(_SQL["fact"], (_LOAD,))
    number, old_mark, target, under_way = (0, "", "", 0) if found is None else json.loads(found[0])
    if under_way and target != to:
        raise WrongState("a move to another store has not come to its end: finish that one first")
    if not under_way:
        parcels = _PACK[part](tx, queue, to, limit)
        if not parcels:
            return None
        number, old_mark = number + 1, mark
        tx.run_all(_SQL["load"], list(enumerate(parcels)))
        tx.run(_SQL["set_fact"], (_LOAD, json.dumps([number, mark, to, 1])))
    texts = [text for (text,) in tx.all(_SQL["loaded"])]
    return TransferBatch(number, old_mark, to, tuple(map(parcel_of, texts)))


def forget(tx: Transaction, load: TransferBatch) -> bool:
    """The load has arrived."""
    found = tx.one(_SQL["fact"], (_LOAD,))
    if found is None or json.loads(found[0]) != [load.number, load.mark, load.to, 1]:
        return False
    tx.run(_SQL["empty"])
    tx.run(_SQL["set_fact"], (_LOAD, json.dumps([load.number, load.mark, load.to, 0])))
    return True


def _settings(tx: Transaction, queue: str, to: str, _limit: int) -> list[str]:
    """Nothing more starts in the queue; how it was set before that is sent once."""
    row = tx.find(queue)
    if row is None:
        return []
    target, was_paused = tx.one(_SQL["departure"], (row.key,)) or ("", row.paused)
    paused = was_paused if row.paused else 0  # someone has let it go on since
    if not row.paused:
        row.paused = 1
        step = QueueChanges(tx, row)
        step.event(EventKind.PAUSED, None)
        step.flush()
    if target == to:
        return []
    tx.run(_SQL["depart"], (row.key, to, paused))
    tx.run(_SQL["is_back"], (row.key,))  # what has left for another store may be here again
    counted = [row.last_number, row.claims]
    settings = [paused, row.concurrency, row.rate, row.max_waiting, row.held_till, row.groups_set, row.groups_declared]
    more = [tx.all(_SQL[name], (row.key,)) for name in ("groups", "starts", "group_starts")]
    return [json.dumps(["settings", queue, settings, counted, *more], ensure_ascii=False)]


def _jobs(tx: Transaction, queue: str, _to: str, limit: int) -> list[str]:
    row = tx.find(queue)
    if row is None:
        return []
    loader = JobExporter(tx, limit)
    for place in _PLACES:
        if place <= Place.WAITING_CHILDREN and is_held_up(row):
            continue
        for (key,) in tx.each(_SQL["line"], (row.key, place)):
            if loader.is_full:
                return loader.flush()
            loader.take(queue, key)
    return loader.flush()


def _schedules(tx: Transaction, queue: str, _to: str, limit: int) -> list[str]:
    row = tx.find(queue)
    if row is None or is_held_up(row):
        return []
    loader = JobExporter(tx, limit)
    for entry in tx.all(_SQL["schedules"], (row.key,)):
        if loader.is_full:
            break
        if tx.one(_SQL["has_departed"], (row.key, entry[0])) is not None:
            drop_run(QueueChanges(tx, row), entry[0])
            tx.run(_REMOVE_SCHEDULE, (row.key, entry[0]))
        else:
            _schedule(loader, row, entry)
    return loader.flush()


def _schedule(loader: JobExporter, row: QueueRow, entry: tuple[Any, ...]) -> None:
    """A schedule leaves with the run that it still has to do with, unless that runs."""
    *told, run, last = entry
    tx, schedule = loader.step(row.name).tx, entry[0]
    waiting = None if run is None else loader.member(row.name, run)
    waits = waiting is not None and not waiting.is_running and not waiting.has_ended and waiting.starts == 0
    members = {key: loader.member(row.name, key) for key in (run, last) if key is not None}
    if any(found is not None and found.is_running for found in members.values()):
        return
    started = None
    for key, found in members.items():
        if found is None or found.has_ended or (key == run and waits):
            continue
        if not loader.take(row.name, key, for_schedule=True):
            return
        started = found.id if key == last else started
    if waits and waiting is not None:
        step = loader.step(row.name)
        step.leave(waiting.key, waiting.place, waiting.row[5])
        step.delete(waiting.key, waiting.chosen, waiting.row[-2])
    tx.run(_REMOVE_SCHEDULE, (row.key, schedule))
    tx.run(_SQL["has_left"], (row.key, schedule))
    loader.put("schedule", [row.name, told, waits, started])


def _letters(tx: Transaction, _queue: str, _to: str, limit: int) -> list[str]:
    """Those that nobody waits for; the others leave with whom they are waited for by."""
    loader = JobExporter(tx, limit)
    for (letter,) in tx.all(_SQL["letters"]):
        if loader.is_full:
            break
        if not _is_waited_for(tx, tx.one(_SQL["letter"], (letter,))):
            loader.take_letter(letter)
    return loader.flush()


def _is_waited_for(tx: Transaction, found: tuple[Any, ...]) -> bool:
    letter, parent = letter_of(found[:-3]), load_options(found[16]).parent
    row = None if parent is None else tx.find(parent.queue)
    if parent is None or row is None:
        return False
    key = keys_of(tx, row, (parent.id,)).get(parent.id)
    there = key is not None and exists(tx, key, parent.id)
    return there and tx.one(_SQL["is_open"], (key, letter.queue, letter.job_id)) is not None


def _ledger(tx: Transaction, queue: str, _to: str, _limit: int) -> list[str]:
    row = tx.find(queue)
    if row is None:
        return []
    if row.figures:
        under_way = json.loads(row.figures)
        put_by(tx, row, under_way.pop(MINUTE), under_way)
        row.figures = None
    runs = []
    for ending in RunStatus:
        bounds = (run_key(row.key, ending, 0), run_key(row.key, ending, first_key(1) - 1))
        runs.append(tx.all(_SQL["run_records"], bounds))
        tx.run(_FORGET_RUNS, bounds)
    found = [tx.all(_SQL[name], (row.key,)) for name in ("minutes", "slices", "results", "ownerless")]
    for sql in _FORGET:
        tx.run(sql, (row.key,))
    tx.run(_SQL["forget_ownerless"], (row.key,))
    totals = [row.total(ending) for ending in RunStatus]
    row.completed_total = row.failed_total = row.cancelled_total = 0
    if not any([*totals, *runs, *found]):
        return []
    return [json.dumps(["ledger", queue, totals, runs, *found], ensure_ascii=False)]


def _facts(tx: Transaction, _queue: str, _to: str, _limit: int) -> list[str]:
    kept, circuits = tx.one(_SQL["fact"], ("letters",)), tx.all(_SQL["all_circuits"])
    tx.run(_SQL["forget_circuits"])
    tx.run(_SQL["forget_fact"], ("letters",))
    if kept is None and not circuits:
        return []
    return [json.dumps(["facts", None if kept is None else kept[0], circuits])]


_PACK: Final[dict[TransferPart, Callable[[Transaction, str, str, int], list[str]]]] = {
    TransferPart.SETTINGS: _settings,
    TransferPart.SCHEDULES: _schedules,
    TransferPart.JOBS: _jobs,
    TransferPart.LETTERS: _letters,
    TransferPart.LEDGER: _ledger,
    TransferPart.FACTS: _facts,
}
