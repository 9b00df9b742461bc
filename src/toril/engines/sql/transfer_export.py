"""Exports jobs from a SQL store: choose a batch, take it out, keep it until it is confirmed."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from toril.codec.new_jobs import load_new_job
from toril.engines.shared import still_moving
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.inspector import StoredJob, StoredRun, record_of, run_of
from toril.engines.sql.metrics import MINUTE, fold_minute
from toril.engines.sql.options import load_options, load_rate
from toril.engines.sql.replay import StoredDeadLetter, dead_letter_of
from toril.engines.sql.schedules import StoredSchedule, drop_run, view_of
from toril.engines.sql.schema import Place, first_key, run_key
from toril.engines.sql.statements import query, statement, statements
from toril.engines.sql.transaction import QueueRow, Transaction, exists, keys_of
from toril.engines.sql.transfer_steps import export_kept, export_sent, export_steps, steps_of
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
    RunStatus,
    SentId,
    SignalRow,
    TransferBatch,
    TransferDeadLetter,
    TransferItem,
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
    "confirm_export",
    "content_of",
    "departure",
    "export_batch",
    "identity",
    "is_held_up",
]

STANDINGS: Final = (ChildState.OPEN, ChildState.COMPLETED, ChildState.IGNORED, ChildState.FAILED)


class ExportedDeadLetter(NamedTuple):
    """A dead letter, and where its other data is."""

    stored: StoredDeadLetter
    errors: str | None
    log_key: int | None
    children_key: int | None
    steps_key: int | None


class ExportedSchedule(NamedTuple):
    """A schedule and its runs."""

    stored: StoredSchedule
    run: int | None
    last: int | None


class StoredChild(NamedTuple):
    """What a parent knows about a child."""

    standing: int
    queue: str
    id: str
    text: str | None
    number: int | None
    name: str | None


class StoredKey(NamedTuple):
    """A deduplication key that a job owns."""

    id: str
    till: int | None
    next: str | None


class StoredSettings(NamedTuple):
    """The settings of a queue."""

    paused: int
    concurrency: int | None
    rate: str | None
    max_waiting: int | None
    held_till: int
    groups_set: str | None
    groups_declared: str | None


class StoredRecords(NamedTuple):
    """What is remembered of a queue's jobs that have ended."""

    totals: list[int]
    runs: list[list[Any]]  # per status
    minutes: list[Any]
    slices: list[Any]
    results: list[Any]
    keys: list[Any]


class JobInLine(NamedTuple):
    """A job in a place."""

    key: int


_SQL: Final = statements("transfer")
_LINE: Final = query("transfer", "line", JobInLine)
_JOB: Final = query("inspector", "job", StoredJob)
_ERRORS: Final = statement("inspector", "errors")
_CHILDREN: Final = query("transfer", "children", StoredChild)
_KEYS: Final = query("transfer", "keys", StoredKey)
_DEAD_LETTER: Final = query("transfer", "dead_letter", ExportedDeadLetter)
_SCHEDULES: Final = query("transfer", "schedules", ExportedSchedule)


def content_of(text: str) -> TransferItem:
    kind, *content = json.loads(text)
    return _KINDS[kind](*content)


def _job(
    queue: str,
    row: list[Any],
    errors: str | None,
    lines: list[str],
    children: list[Any],
    keys: list[Any],
    steps: list[Any] | None,
) -> TransferJob:
    job = StoredJob._make(row)
    stored = load_options(job.options_text)
    return TransferJob.of(
        record_of(queue, job),
        suspect=job.place in {Place.SUSPECT, Place.PARKED_SUSPECT},
        dedup=stored.dedup,
        trace=stored.trace,
        on_failure=OnFailure.FAIL if stored.parent is None else OnFailure(stored.parent.policy),
        parked=stored.parked,
        deferred=stored.deferred,
        ready=stored.ready,
        logs=tuple(lines),
        errors=load_errors(errors),
        children=_children(children),
        held=_owned_key(StoredKey._make(keys[0])) if keys else None,
        wire=None if stored.fault is None else job.options_text,
        steps=steps_of(steps),
    )


def _owned_key(key: StoredKey) -> OwnedKey:
    return OwnedKey(key.id, key.till, None if key.next is None else load_new_job(key.next))


def _children(rows: Sequence[Any]) -> tuple[Child, ...]:
    return tuple(
        Child(JobRef(child.queue, child.id), STANDINGS[child.standing], child.text, child.name, child.number)
        for child in map(StoredChild._make, rows)
    )


def _dead_letter(row: list[Any], children: list[Any], lines: list[str], steps: list[Any] | None) -> TransferDeadLetter:
    dead = ExportedDeadLetter._make(row)
    stored = StoredDeadLetter._make(dead.stored)
    errors = load_errors(dead.errors)
    return TransferDeadLetter(dead_letter_of(stored), _children(children), tuple(lines), errors, steps_of(steps))


def _schedule_text(queue: str, row: list[Any], waits: bool, started: str | None) -> TransferSchedule:  # noqa: FBT001 - as it was exported
    return TransferSchedule(view_of(queue, StoredSchedule._make(row)), waits, started)


def _settings_text(
    queue: str,
    row: list[Any],
    counted: list[int],
    groups: list[Any],
    starts: list[Any],
    of_groups: list[Any],
    kept: list[Any],
    sent: list[Any],
) -> TransferSettings:
    settings = StoredSettings._make(row)
    by_hand, declared = settings.groups_set, settings.groups_declared
    group_starts: dict[str, list[tuple[int, int]]] = {}
    for name, time, count in of_groups:
        group_starts.setdefault(name, []).append((time, count))
    return TransferSettings(
        queue=queue,
        paused=bool(settings.paused),
        concurrency=settings.concurrency,
        rate=load_rate(settings.rate),
        max_waiting=settings.max_waiting,
        held_till=settings.held_till or None,
        groups_set=None if by_hand is None else GroupLimits.load(by_hand),
        groups_declared=None if declared is None else GroupLimits.load(declared),
        groups={name: (GroupLimits.load(limits), bool(stopped)) for name, limits, stopped in groups},
        numbers=counted[0],
        fences=counted[1],
        starts=tuple((time, count) for time, count in starts),
        group_starts=group_starts,
        signals=tuple(SignalRow(n, name, text, at, known, word, till) for n, name, word, known, at, text, till in kept),
        sent_ids=tuple(SentId(*each) for each in sent),
    )


def _records_text(queue: str, *content: Any) -> TransferRecords:
    records = StoredRecords._make(content)
    completed, failed, cancelled = records.totals
    return TransferRecords(
        queue=queue,
        completed=completed,
        failed=failed,
        cancelled=cancelled,
        minutes=tuple((minute, good, bad) for minute, good, bad in records.minutes),
        runs=tuple(
            run_of(ending, StoredRun._make(run))
            for ending, runs in zip(RunStatus, records.runs, strict=True)
            for run in runs
        ),
        slices={(step, number): json.loads(counted) for step, number, counted in records.slices},
        results=tuple((job, till, cause, text) for job, till, cause, text in records.results),
        keys=tuple((key, owner, till) for key, owner, till in records.keys),
    )


def _facts_text(kept: str | None, circuits: list[Any]) -> TransferStoreFacts:
    return TransferStoreFacts(KEEP_ALL if kept is None else Keep(*json.loads(kept)), dict(circuits))


_KINDS: Final[dict[str, Callable[..., TransferItem]]] = {
    "job": _job,
    "letter": _dead_letter,
    "schedule": _schedule_text,
    "settings": _settings_text,
    "ledger": _records_text,
    "facts": _facts_text,
}


_DELETE_DEAD_LETTER: Final = statement("dead_letters", "delete")
_FORGET_CHILDREN: Final = statement("dead_letters", "forget_children")
_FORGET_LOG: Final = statement("dead_letters", "forget_log")


class ExportedJob(NamedTuple):
    """A job that may be exported, and what it knows of its children."""

    queue: str
    row: StoredJob
    children: list[StoredChild]


def is_held_up(row: QueueRow) -> bool:
    """Whether nothing may leave while something runs: otherwise more could run at once than allowed, or out of
    order."""
    return bool(row.active and (row.grouped or row.concurrency is not None))


class JobExporter:
    """Takes jobs out of the store until there are enough. The result is in `texts`."""

    def __init__(self, tx: Transaction, limit: int) -> None:
        self._tx = tx
        self._left = limit
        self._room = LOAD_BYTES
        self._steps: dict[str, QueueChanges] = {}
        self._settled: set[int] = set()  # taken, or known to remain
        self._runs: dict[str, set[int]] = {}
        self.texts: list[str] = []

    @property
    def is_full(self) -> bool:
        return self._left <= 0 or self._room <= 0

    def member(self, queue: str, key: int) -> ExportedJob | None:
        found = self._tx.row(_JOB, (key,))
        return None if found is None else ExportedJob(queue, found, [])

    def take(self, queue: str, key: int, *, for_schedule: bool = False) -> bool:
        """Take a job with its parent and children. False: one of them is running, so all of them remain."""
        if key in self._settled:
            return False
        members: dict[int, ExportedJob] = {}
        dead: list[str] = []
        stays = not all(self._may_leave(each, for_schedule=for_schedule) for each in self._walk(queue, key, members))
        self._settled |= members.keys()
        if stays:
            return False
        for each in members.values():
            dead += [
                letter_id(child.queue, child.id)
                for child in each.children
                if not child.standing and self._key(child.queue, child.id) is None
            ]
        for each in members.values():
            self._take_out(each)
        for identity in dead:
            self.take_dead_letter(identity)
        return True

    def _walk(self, queue: str, key: int, members: dict[int, ExportedJob]) -> Iterator[ExportedJob]:
        """All jobs of a flow: along the links between parents and children, in both directions."""
        ahead = [(queue, key)]
        while ahead:
            name, at = ahead.pop()
            found = None if at in members else self.member(name, at)
            if found is None:
                continue
            options = load_options(found.row.options_text)
            if options.parked is not None:
                found.children.extend(self._tx.rows(_CHILDREN, (at,)))
            members[at] = found
            yield found
            parent = None if options.parent is None else self._key(options.parent.queue, options.parent.id)
            if (
                options.parent is not None
                and parent is not None
                and not found.row.has_ended
                and self._tx.one(_SQL["is_open"], (parent, name, found.row.id))
            ):
                ahead.append((options.parent.queue, parent))
            for child in found.children:
                open_child = self._key(child.queue, child.id) if not child.standing else None
                if open_child is not None:
                    ahead.append((child.queue, open_child))

    def _may_leave(self, member: ExportedJob, *, for_schedule: bool) -> bool:
        """Not if it is running, is still being added, or has to leave with its schedule."""
        row = self._tx.find(member.queue)
        if (
            member.row.is_running
            or member.row.key in self._settled
            or row is None
            or (not member.row.has_ended and is_held_up(row))
        ):
            return False
        if any(not child.standing and not child.id for child in member.children):
            return False
        return for_schedule or member.row.has_ended or member.row.key not in self._runs_of(row)

    def _runs_of(self, row: QueueRow) -> set[int]:
        if row.name not in self._runs:
            self._runs[row.name] = {key for runs in self._tx.all(_SQL["runs"], (row.key,)) for key in runs}
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
        step, job = self.step(member.queue), member.row
        lines = [line for (line,) in self._tx.all(_SQL["lines"], (job.key,))] if job.logs else []
        held = self._tx.rows(_KEYS, (job.key,))
        errors, *_ = self._tx.one(_ERRORS, (job.key,))
        steps = export_steps(self._tx, job.key, job.rest) if step.row.stepping or job.rest else None
        step.leave(job.key, job.place, job.rank)
        step.delete(job.key, job.chosen, job.logs)
        if held:
            step.write("disown", [(job.key,)])
        if member.children:
            step.write("orphan", [(job.key,)])
        self._put("job", [member.queue, job, errors, lines, member.children, held, steps])
        self._left -= 1

    def take_dead_letter(self, identity: str) -> bool:
        dead = self._tx.row(_DEAD_LETTER, (identity,))
        if dead is None:
            return False
        children = self._tx.rows(_CHILDREN, (dead.children_key,))
        lines = [line for (line,) in self._tx.all(_SQL["lines"], (dead.log_key,))]
        steps = export_steps(self._tx, dead.steps_key)
        self._tx.run(_DELETE_DEAD_LETTER, (identity,))
        self._tx.run(_FORGET_CHILDREN, (dead.children_key,))
        self._tx.run(_FORGET_LOG, (dead.log_key,))
        self._put("letter", [dead, children, lines, steps])
        self._left -= 1
        return True

    def put(self, kind: str, content: list[Any]) -> None:
        """Add something other than a job."""
        self._put(kind, content)
        self._left -= 1

    def _put(self, kind: str, content: list[Any]) -> None:
        text = json.dumps([kind, *content], ensure_ascii=False)
        self.texts.append(text)
        self._room -= len(text)

    def flush(self) -> list[str]:
        for step in self._steps.values():
            step.flush()
        return self.texts


_REMOVE_SCHEDULE: Final = statement("schedules", "remove")
_FORGET: Final = [statement("control", f"forget_{name}") for name in ("minutes", "slices", "results")]
_FORGET_RUNS: Final = statement("control", "forget_runs")
_BATCH: Final = "load"
# In their order, so that they are in the same order in the target.
_PLACES: Final = (
    Place.SUSPECT, Place.WAITING, Place.PRIORITIZED, Place.PARKED_SUSPECT, Place.PARKED, Place.DELAYED,
    Place.WAITING_CHILDREN, Place.COMPLETED, Place.FAILED,
)  # fmt: skip


def identity(tx: Transaction, fresh: str) -> str:
    """The name of this store among others; given once."""
    found = tx.value(_SQL["fact"], ("store",))
    if found is None:
        tx.run(_SQL["set_fact"], ("store", fresh))
        return fresh
    return str(found)


def departure(tx: Transaction, queue: str) -> str | None:
    """The store to which a queue moves, or has moved."""
    row = tx.find(queue)
    target, _ = (None if row is None else tx.one(_SQL["departure"], (row.key,))) or (None, 0)
    return target


def export_batch(
    tx: Transaction, part: TransferPart, queue: str, to: str, mark: str, limit: int
) -> TransferBatch | None:
    """The batch in transit, if there is one; else a new one, if there is something to export."""
    found = tx.value(_SQL["fact"], (_BATCH,))
    number, old_mark, target, under_way = (0, "", "", 0) if found is None else json.loads(found)
    if under_way and target != to:
        raise still_moving()
    if not under_way:
        texts = _EXPORTS[part](tx, queue, to, limit)
        if not texts:
            return None
        number, old_mark = number + 1, mark
        tx.run_all(_SQL["keep"], list(enumerate(texts)))
        tx.run(_SQL["set_fact"], (_BATCH, json.dumps([number, mark, to, 1])))
    texts = [text for (text,) in tx.all(_SQL["kept"])]
    return TransferBatch(number, old_mark, to, tuple(map(content_of, texts)))


def confirm_export(tx: Transaction, batch: TransferBatch) -> bool:
    """The batch has arrived."""
    found = tx.value(_SQL["fact"], (_BATCH,))
    if found is None or json.loads(found) != [batch.number, batch.mark, batch.to, 1]:
        return False
    tx.run(_SQL["empty"])
    tx.run(_SQL["set_fact"], (_BATCH, json.dumps([batch.number, batch.mark, batch.to, 0])))
    return True


def _settings(tx: Transaction, queue: str, to: str, _limit: int) -> list[str]:
    """Start nothing more in the queue, and send its previous settings once."""
    row = tx.find(queue)
    if row is None:
        return []
    target, was_paused = tx.one(_SQL["departure"], (row.key,)) or ("", row.paused)
    paused = was_paused if row.paused else 0  # someone has resumed it since
    if not row.paused:
        row.paused = 1
        step = QueueChanges(tx, row)
        step.event(EventKind.PAUSED, None)
        step.flush()
    if target == to:
        return []
    tx.run(_SQL["depart"], (row.key, to, paused))
    tx.run(_SQL["is_back"], (row.key,))  # what was moved to another store may be back
    counted = [row.last_number, row.claims]
    settings = StoredSettings(
        paused, row.concurrency, row.rate, row.max_waiting, row.held_till, row.groups_set, row.groups_declared
    )
    more = [tx.all(_SQL[name], (row.key,)) for name in ("groups", "starts", "group_starts")]
    more += (export_kept(tx, row), export_sent(tx, row))
    return [json.dumps(["settings", queue, settings, counted, *more], ensure_ascii=False)]


def _jobs(tx: Transaction, queue: str, _to: str, limit: int) -> list[str]:
    row = tx.find(queue)
    if row is None:
        return []
    exporter = JobExporter(tx, limit)
    for place in _PLACES:
        if place <= Place.WAITING_CHILDREN and is_held_up(row):
            continue
        for job in tx.each(_LINE, (row.key, place)):
            if exporter.is_full:
                return exporter.flush()
            exporter.take(queue, job.key)
    return exporter.flush()


def _schedules(tx: Transaction, queue: str, _to: str, limit: int) -> list[str]:
    row = tx.find(queue)
    if row is None or is_held_up(row):
        return []
    exporter = JobExporter(tx, limit)
    for schedule in tx.rows(_SCHEDULES, (row.key,)):
        if exporter.is_full:
            break
        if tx.one(_SQL["has_departed"], (row.key, schedule.stored.id)) is not None:
            drop_run(QueueChanges(tx, row), schedule.stored.id)
            tx.run(_REMOVE_SCHEDULE, (row.key, schedule.stored.id))
        else:
            _schedule(exporter, row, schedule)
    return exporter.flush()


def _schedule(exporter: JobExporter, row: QueueRow, schedule: ExportedSchedule) -> None:
    """A schedule leaves with its next run, unless that is running."""
    tx, run, last = exporter.step(row.name).tx, schedule.run, schedule.last
    members = {key: exporter.member(row.name, key) for key in (run, last) if key is not None}
    found = {key: None if member is None else member.row for key, member in members.items()}
    waiting = None if run is None else found[run]
    waits = waiting is not None and not waiting.is_running and not waiting.has_ended and waiting.starts == 0
    if any(job is not None and job.is_running for job in found.values()):
        return
    started = None
    for key, job in found.items():
        if job is None or job.has_ended or (key == run and waits):
            continue
        if not exporter.take(row.name, key, for_schedule=True):
            return
        started = job.id if key == last else started
    if waits and waiting is not None:
        step = exporter.step(row.name)
        step.leave(waiting.key, waiting.place, waiting.rank)
        step.delete(waiting.key, waiting.chosen, waiting.logs)
    tx.run(_REMOVE_SCHEDULE, (row.key, schedule.stored.id))
    tx.run(_SQL["has_left"], (row.key, schedule.stored.id))
    exporter.put("schedule", [row.name, schedule.stored, waits, started])


def _dead_letters(tx: Transaction, _queue: str, _to: str, limit: int) -> list[str]:
    """Dead letters that no parent waits for; the others leave with their parents."""
    exporter = JobExporter(tx, limit)
    for (identity,) in tx.all(_SQL["dead_letters"]):
        if exporter.is_full:
            break
        dead = tx.row(_DEAD_LETTER, (identity,))
        if dead is not None and not _is_waited_for(tx, dead):
            exporter.take_dead_letter(identity)
    return exporter.flush()


def _is_waited_for(tx: Transaction, dead: ExportedDeadLetter) -> bool:
    parent = load_options(dead.stored.options_text).parent
    row = None if parent is None else tx.find(parent.queue)
    if parent is None or row is None:
        return False
    key = keys_of(tx, row, (parent.id,)).get(parent.id)
    there = key is not None and exists(tx, key, parent.id)
    return there and tx.one(_SQL["is_open"], (key, dead.stored.queue, dead.stored.job)) is not None


def _records(tx: Transaction, queue: str, _to: str, _limit: int) -> list[str]:
    row = tx.find(queue)
    if row is None:
        return []
    if row.figures:
        under_way = json.loads(row.figures)
        fold_minute(tx, row, under_way.pop(MINUTE), under_way)
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
    return [json.dumps(["ledger", queue, *StoredRecords(totals, runs, *found)], ensure_ascii=False)]


def _facts(tx: Transaction, _queue: str, _to: str, _limit: int) -> list[str]:
    kept, circuits = tx.value(_SQL["fact"], ("letters",)), tx.all(_SQL["all_circuits"])
    tx.run(_SQL["forget_circuits"])
    tx.run(_SQL["forget_fact"], ("letters",))
    if kept is None and not circuits:
        return []
    return [json.dumps(["facts", kept, circuits])]


_EXPORTS: Final[dict[TransferPart, Callable[[Transaction, str, str, int], list[str]]]] = {
    TransferPart.SETTINGS: _settings,
    TransferPart.SCHEDULES: _schedules,
    TransferPart.JOBS: _jobs,
    TransferPart.LETTERS: _dead_letters,
    TransferPart.LEDGER: _records,
    TransferPart.FACTS: _facts,
}
