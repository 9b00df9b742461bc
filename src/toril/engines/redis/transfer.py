"""Moves jobs between a Redis store and another store, in both directions."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from toril.engines.redis.dead_letters import letter_of
from toril.engines.redis.layout import FIELDS, FLEET, KEYS, RECORD_FIELDS, due_of
from toril.engines.redis.options import (
    dump_letter,
    dump_options,
    dump_transfer_job,
    load_dedup,
    load_options,
    moment,
    number,
    parsed,
)
from toril.engines.redis.records import (
    FLAGS,
    dump_names,
    link_of,
    load_names,
    minutes_of,
    record_of,
    ref_of,
    rests,
    run_of,
    settings_of,
)
from toril.engines.redis.runner import ScriptRunner
from toril.engines.redis.schedules import fields_of, own_of, view_of
from toril.errors import InvalidName, InvalidOption
from toril.model import (
    HEADROOM,
    KEEP_ALL,
    LOAD,
    MAX_DELAY,
    MAX_PRIORITY,
    Child,
    ChildState,
    GroupLimits,
    ImportOutcome,
    ImportResult,
    JobRef,
    Keep,
    NewJob,
    OnFailure,
    OwnedKey,
    RunRow,
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
    TransferSteps,
    TransferStoreFacts,
    age_ms,
    per_ms,
    scheduled_run,
)
from toril.model.names import check_job_id, check_queue_name
from toril.model.states import State
from toril.policy.attempts import dump_errors, load_errors
from toril.policy.metrics import CANCELLED
from toril.policy.retention import MINUTES
from toril.runtime.clock import SYSTEM
from toril.store.capabilities import TransferStore
from toril.store.checked import implements

__all__ = [
    "RedisTransfers",
    "dump_dead_letter",
    "dump_job",
    "dump_records",
    "dump_schedule",
    "dump_settings",
    "dump_store_facts",
    "item_of",
]

_ENDED: Final = {State.COMPLETED, State.FAILED}
_SHOWN: Final = 1024  # characters of a reason that dashboards show of a dead letter


def dump_job(item: TransferJob, prefix: str) -> str:
    keep = item.options.keep_completed if item.state is State.COMPLETED else item.options.keep_failed
    ages = item.state in _ENDED and age_ms(keep) is not None
    when = item.finished_at if item.state in _ENDED else item.due
    return _text([
        item.queue, item.id, item.state.value, str(when or 0), int(item.suspect), str(item.priority),
        item.group or "", str(item.fence), _job_fields(item, prefix), list(item.logs),
        _child_lists(item.children, prefix), _owned_keys(item.held),
        str((item.finished_at or 0) + (age_ms(keep) or 0) + 1) if ages else "", _signals_of(item),
    ])  # fmt: skip


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _flat(given: dict[str, Any]) -> list[str]:
    return [part for name, value in given.items() if value is not None for part in (FIELDS[name], str(value))]


def _job_fields(item: TransferJob, prefix: str) -> list[str]:
    waits = item.state in {State.DELAYED, State.WAITING_CHILDREN}
    run, failure = scheduled_run(item.id), item.failure
    ready = item.added_at + item.delay if item.ready is None and item.delay and not item.starts else None
    return (
        _flat(
            {
                "name": item.name,
                "data": item.data,
                "opts": item.wire or dump_transfer_job(item, prefix),
                "added_at": item.added_at,
                "delay": item.delay if waits else 0,
                "priority": item.priority,
                "waited": None if waits else item.delay or None,
                "started_at": item.started_at,
                "worker": item.worker,
                "starts": item.starts or None,
                "attempts_made": item.attempts_made or None,
                "stalls": item.stalls or None,
                "progress": item.progress,
                "result": item.result,
                "finished_at": item.finished_at,
                "dedup": None if item.dedup is None else item.dedup.key,
                "scheduler": None if run is None else run[0],
                "deferred": item.deferred,
                "held": f"{item.fence} 0 1" if item.fence else None,
                "expires": item.expires_at,
                "metadata": item.metadata,
                "checkpoint": item.checkpoint,
                "parked": item.parked,
                "stall_cause": item.stall_cause,
                "ready": ready if item.ready is None else item.ready,
                "reason": None if failure is None else failure.reason,
                "kind": None if failure is None else failure.kind,
                "trace": None if failure is None or not failure.traceback else _text([failure.traceback]),
                "errors": dump_errors(item.errors),
                "children": dump_names(item.children),
            }
        )
        + _step_fields(item.steps, at_rest=_rests(item))
        + _link(item.parent, item.on_failure, prefix)
    )


def _rests(item: TransferJob) -> bool:
    """Whether a job goes on resting where it arrives."""
    rest = None if item.steps is None else item.steps.rest
    return rest is not None and rests(rest, item.state, item.due)


def _step_fields(steps: TransferSteps | None, *, at_rest: bool = False) -> list[str]:
    """The fields of a job's or a dead letter's hash that say what was recorded."""
    if steps is None:
        return []
    size = sum(len(key.encode()) + len(text.encode()) for key, text in steps.rows.items())
    again = steps.reruns or steps.epoch
    fields = _flat({
        "steps": f"{steps.seq} {len(steps.rows)} {size}" if steps.rows else None,
        "reruns": f"{steps.reruns} {steps.epoch}" if again else None,
        "rest": steps.rest if at_rest else None,
    })  # fmt: skip
    return fields + [part for key, text in steps.rows.items() for part in (FIELDS["step"] + key, text)]


def _signals_of(item: TransferJob | TransferDeadLetter) -> list[Any]:
    """Signals that were not read, ids of those that were; of a job that it rests, and which it waits for."""
    steps = item.steps or TransferSteps()
    found: list[Any] = [list(map(_signal, steps.inbox)), list(steps.signal_ids)]
    if isinstance(item, TransferJob):
        ended = item.state in _ENDED
        found += [int(_rests(item)), [] if ended else [pair for text in steps.rows.values() for pair in _awaited(text)]]
    return found


def _signal(signal: SignalRow) -> list[Any]:
    until = [] if signal.until is None else [signal.until]
    return [signal.number, signal.name, signal.key or "", signal.id or "", signal.at, signal.payload, *until]


def _awaited(row: str) -> list[list[str]]:
    """Signals and keys of a row that says for which a job waits."""
    kind, *_, text = row.split(" ", 7)
    found = parsed(text, None) if kind == "p" else None
    return [pair for pair in found if _is_awaited(pair)] if isinstance(found, list) else []


def _is_awaited(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) and part for part in pair)


def _link_to(parent: JobRef, prefix: str) -> dict[str, Any]:
    return {"id": parent.id, "queueKey": f"{prefix}:{parent.queue}"}


def _link(parent: JobRef | None, on_failure: OnFailure, prefix: str) -> list[str]:
    if parent is None:
        return []
    flag = FLAGS[on_failure]
    link = _link_to(parent, prefix) | ({flag: True} if flag else {})
    return _flat({"parent": _text(link), "parent_key": f"{prefix}:{parent.queue}:{parent.id}"})


def _child_lists(children: Sequence[Child], prefix: str) -> list[list[str]] | None:
    """Open, returned, failed and ignored, failed."""
    if not children:
        return None
    lists: dict[ChildState, list[str]] = {state: [] for state in ChildState}
    for child in children:
        with_text = child.state in {ChildState.COMPLETED, ChildState.IGNORED}
        lists[child.state] += [f"{prefix}:{child.ref}", *([child.text or "null"] if with_text else [])]
    return [lists[ChildState.OPEN], lists[ChildState.COMPLETED], lists[ChildState.IGNORED], lists[ChildState.FAILED]]


def _owned_keys(held: OwnedKey | None) -> list[Any] | None:
    if held is None:
        return None
    following, kept = held.next, []
    if following is not None:
        fields = {"name": following.name, "data": following.data, "opts": dump_options(following)}
        more = {"expires": following.expires, "metadata": following.metadata, "group": following.group}
        more["ready"] = following.due
        kept = [*_flat(fields | more), "jid", following.id or f"{held.key}-next"]
    return [held.key, "" if held.till is None else str(held.till), kept]


def dump_dead_letter(item: TransferDeadLetter, prefix: str) -> str:
    it = item.letter
    fields = _flat({
        "name": it.name, "data": it.data, "opts": dump_letter(it), "added_at": it.added_at, "delay": 0,
        "priority": it.priority, "started_at": it.started_at, "worker": it.worker, "metadata": it.metadata,
        "checkpoint": it.checkpoint, "progress": it.progress, "errors": dump_errors(item.errors),
        "stall_cause": it.stall_cause, "reason": it.failure.reason,
        "kind": it.failure.kind, "trace": _text([it.failure.traceback]) if it.failure.traceback else None,
        "parked": 0 if item.children else None, "children": dump_names(item.children), "group": it.group,
        "order": 0 if it.group else None,
    })  # fmt: skip
    fields += _step_fields(item.steps)
    return _text([
        it.id, it.queue, it.job_id, it.cause.value, str(it.failed_at), str(it.attempts_made), str(it.stalls),
        it.worker or "", it.failure.reason[:_SHOWN], fields + _link(it.parent, it.on_failure, prefix),
        _child_lists(item.children, prefix), list(item.logs), _signals_of(item),
    ])  # fmt: skip


def dump_schedule(item: TransferSchedule) -> str:
    view = item.view
    return _text([
        view.queue, view.schedule.id, str(view.slot), view.count, json.dumps(own_of(view.schedule)),
        [str(part) for part in fields_of(view.schedule, view.slot)], int(item.waits), int(view.paused),
        int(view.over), item.last or "",
    ])  # fmt: skip


def dump_settings(item: TransferSettings) -> str:
    rate = item.rate
    meta = {
        "concurrency": item.concurrency,
        "rate_max": rate and rate.max,
        "rate_ms": rate and per_ms(rate),
    }
    own = {
        "window": "sliding" if rate is not None and rate.window == "sliding" else None,
        "max_waiting": item.max_waiting, "held_till": item.held_till,
        "groups_set": item.groups_set and item.groups_set.dump(),
    }  # fmt: skip
    if item.groups_declared is not None:
        own["groups_declared"] = item.groups_declared.dump()
    limits = [
        part
        for name, (own_limits, stopped) in item.groups.items()
        for part in (name, own_limits.dump() + ("p" if stopped else ""))
    ]
    return _text([
        item.queue, "1" if item.paused else "", _set(meta), _set(own), str(item.numbers + HEADROOM),
        str(item.fences), limits, [[str(time), count] for time, count in item.starts],
        [part for name, starts in (item.group_starts or {}).items()
         for part in (name, [each for start in starts for each in start])],
        list(map(_signal, item.signals)), [[each.name, each.key, each.id, each.until] for each in item.sent_ids],
    ])  # fmt: skip


def _set(given: dict[str, Any]) -> list[str]:
    """Fields and values; an empty value removes the field."""
    return [part for name, value in given.items() for part in (FIELDS[name], "" if value is None else str(value))]


def dump_records(item: TransferRecords, prefix: str) -> str:
    def of(ending: RunStatus) -> list[Any]:
        minutes = [(row[0], row[1 if ending is RunStatus.COMPLETED else 2]) for row in item.minutes]
        total = item.completed if ending is RunStatus.COMPLETED else item.failed
        return [total, [[minute, count] for minute, count in minutes if count], runs(ending)]

    def runs(ending: RunStatus) -> list[Any]:
        return [_run(run, prefix) for run in reversed(item.runs) if run.ending is ending]

    return _text([
        of(RunStatus.COMPLETED), of(RunStatus.FAILED), runs(RunStatus.CANCELLED),
        [[step, number, dict(counted)] for (step, number), counted in item.slices.items()],
        [[job_id, str(till), cause, text] for job_id, till, cause, text in item.results],
        [[key, owner, str(till)] for key, owner, till in item.keys],
    ])  # fmt: skip


def _run(run: RunRow, prefix: str) -> list[Any]:
    return [
        0, run.id, run.name, run.cause.value, run.added_at, run.started_at, run.finished_at, run.attempts_made,
        run.stalls, run.worker, run.text, run.whole, run.subject,
        _text(_link_to(run.parent, prefix)) if run.parent is not None else "" if run.flow else None,
    ]  # fmt: skip


def dump_store_facts(item: TransferStoreFacts) -> list[str]:
    keep = item.letters
    count, age = (-1 if each is None else each for each in (keep.count, age_ms(keep)))
    return ["" if keep == KEEP_ALL else f"{count} {age}", *(part for pair in item.circuits.items() for part in pair)]


_MINUTE: Final = FIELDS["minute"]
_NAMES: Final = FIELDS["names"]


def item_of(row: Sequence[Any], *, prefix: str, now: int) -> TransferItem:
    kind, *content = row
    kinds: dict[str, Callable[..., TransferItem]] = {
        "job": partial(_job, prefix),
        "letter": partial(_letter, prefix),
        "schedule": _schedule,
        "settings": _settings,
        "ledger": partial(_ledger, now),
        "facts": _facts,
    }
    return kinds[kind](*content)


def _paired(flat: Sequence[str]) -> Iterator[tuple[str, str]]:
    each = iter(flat)
    return zip(each, each, strict=True)


def _job(
    prefix: str,
    queue: str,
    job_id: str,
    word: str,
    score: str | None,
    suspect: int,
    flat: Sequence[str],
    logs: Sequence[str],
    lists: Sequence[Any] | None,
    held: Sequence[Any] | None,
    inbox: Sequence[Any],
    signal_ids: Sequence[str],
) -> TransferJob:
    found = dict(_paired(flat))

    def text(name: str) -> str | None:
        return found.get(FIELDS[name])

    def time(name: str) -> int | None:
        value = text(name)
        return None if value is None else moment(value)

    state, opts = State(word), text("opts")
    row = record_of(queue, [*(text(name) for name in RECORD_FIELDS), job_id, word, score or "0", None])
    return TransferJob.of(
        row,
        name=row.name or "",
        due=row.due if score else None,
        suspect=suspect == 1,
        delay=number(text("delay"), MAX_DELAY) if state is State.WAITING_CHILDREN else row.delay,
        finished_at=_ended(state, score, time),
        dedup=load_dedup(opts),
        trace=load_options(opts).trace,
        on_failure=OnFailure.FAIL if row.parent is None else link_of(text("parent"))[1],
        parked=time("parked"),
        deferred=text("deferred"),
        ready=time("ready"),
        logs=tuple(logs),
        errors=load_errors(text("errors")),
        children=_children(prefix, lists, text("children")),
        held=None if held is None else _held(*held),
        wire=opts,
        steps=_steps(_rows(found), text("steps"), text("reruns"), inbox, signal_ids, _rest(text("rest"), state, score)),
    )


def _rest(text: str | None, state: State, score: str | None) -> str | None:
    """Why a job rests, if it does."""
    due = due_of(score) if state is State.DELAYED and score else None
    return text if text is not None and rests(text, state, due) else None


def _rows(found: Mapping[str, str]) -> dict[str, str]:
    """The rows of a job's hash by their keys, in the order of their numbers."""
    start = len(FIELDS["step"])
    rows = [(name[start:], text) for name, text in found.items() if name.startswith(FIELDS["step"])]
    return dict(sorted(rows, key=lambda row: number(row[1].partition(" ")[2].partition(" ")[0])))


def _steps(
    rows: Mapping[str, str],
    counted: str | None,
    reruns: str | None,
    inbox: Sequence[Any],
    signal_ids: Sequence[str],
    rest: str | None = None,
) -> TransferSteps | None:
    if not (counted or reruns or inbox or signal_ids or rest):
        return None
    again, _, epoch = (reruns or "").partition(" ")
    return TransferSteps(
        rows=rows,
        seq=number((counted or "").partition(" ")[0]),
        reruns=number(again),
        epoch=number(epoch),
        rest=rest,
        inbox=tuple(map(_signal_row, inbox)),
        signal_ids=tuple(signal_ids),
    )


def _signal_row(row: Sequence[Any]) -> SignalRow:
    number, name, key, identity, at, payload, *until = row
    return SignalRow(number, name, payload, at, identity or None, key or None, *until)


def _ended(state: State, score: str | None, time: Callable[[str], int | None]) -> int | None:
    ended = time("finished_at")
    if ended is None and score is not None and state in {State.COMPLETED, State.FAILED}:
        return moment(score)
    return ended


def _children(prefix: str, lists: Sequence[Any] | None, names: str | None) -> tuple[Child, ...]:
    if lists is None:
        return ()
    named = {ref: (name, number) for number, (ref, name) in enumerate(load_names(names), 1)}
    return tuple(
        Child(child.ref, child.state, child.text, *named.get(child.ref, (None, None)))
        for child in _known(prefix, lists)
    )


def _known(prefix: str, lists: Sequence[Any]) -> tuple[Child, ...]:
    still, returned, ignored, failed = lists
    children = [Child(ref_of(prefix, key), ChildState.OPEN) for key in still]
    children += [Child(ref_of(prefix, key), ChildState.COMPLETED, text) for key, text in _paired(returned)]
    children += [Child(ref_of(prefix, key), ChildState.IGNORED, text) for key, text in _paired(ignored)]
    return (*children, *(Child(ref_of(prefix, key), ChildState.FAILED) for key in failed))


def _held(key: str, till: str | None, following: Sequence[str]) -> OwnedKey:
    found = dict(_paired(following))
    return OwnedKey(key, None if till is None else number(till), _kept(found) if found else None)


def _kept(found: Mapping[str, str]) -> NewJob:
    """The job that is created when the owner of its key ends. If it was to have a number, it gets a new one."""
    opts, expires, due = (found.get(FIELDS[name]) for name in ("opts", "expires", "ready"))
    stored, given = load_options(opts), parsed(opts, {})
    given = given if isinstance(given, dict) else {}
    try:
        chosen = check_job_id(found.get("jid"))
    except InvalidName:
        chosen = None
    return NewJob(
        name=found[FIELDS["name"]],
        data=found.get(FIELDS["data"], "{}"),
        id=chosen,
        delay=0 if due else number(given.get("delay"), MAX_DELAY),
        due=None if due is None else moment(due),
        priority=number(given.get("priority"), MAX_PRIORITY),
        lifo=given.get("lifo") is True,
        attempts=stored.attempts,
        expires=None if expires is None else number(expires),
        metadata=found.get(FIELDS["metadata"]),
        dedup=load_dedup(opts),
        group=found.get(FIELDS["group"]),
        trace=stored.trace,
        options=stored.options,
    )


def _letter(
    prefix: str,
    row: Sequence[Any],
    lists: Sequence[Any] | None,
    logs: Sequence[str],
    errors: str | None,
    names: str | None,
    counted: str | None,
    reruns: str | None,
    rows: Sequence[Any],
    inbox: Sequence[Any],
    signal_ids: Sequence[str],
) -> TransferDeadLetter:
    steps = _steps({key: text for _, key, text in rows}, counted, reruns, inbox, signal_ids)
    return TransferDeadLetter(letter_of(row), _children(prefix, lists, names), tuple(logs), load_errors(errors), steps)


def _schedule(queue: str, row: Sequence[Any], waits: int, last: str | None) -> TransferSchedule:
    return TransferSchedule(view_of(queue, row), waits == 1, last)


def _settings(
    queue: str,
    paused: str,
    settings: Sequence[Any],
    counted: Sequence[Any],
    own: Sequence[str],
    starts: Sequence[str],
    of_groups: Sequence[Any],
    kept: Sequence[Any],
    sent: Sequence[Any],
) -> TransferSettings:
    *known, by_hand, declared = settings
    read = settings_of([None, *known, None])
    limits = {name: (GroupLimits.load(text.rstrip("p")), text.endswith("p")) for name, text in _paired(own)}
    return TransferSettings(
        queue=queue,
        paused=paused == "1",
        concurrency=read.concurrency,
        rate=read.rate,
        max_waiting=read.max_waiting,
        held_till=read.held_till,
        groups_set=None if by_hand is None else GroupLimits.load(by_hand),
        groups_declared=None if declared is None else GroupLimits.load(declared),
        groups=limits,
        numbers=number(counted[0]),
        fences=number(counted[1]),
        starts=tuple(map(_start, starts)),
        group_starts=_starts(of_groups),
        signals=tuple(map(_signal_row, kept)),
        sent_ids=tuple(SentId(*each) for each in sent),
    )


def _starts(of_groups: Sequence[Any]) -> dict[str, tuple[tuple[int, int], ...]]:
    """By group: times and counts, alternating."""
    names, flats = of_groups[::2], of_groups[1::2]
    return {name: tuple(zip(flat[::2], flat[1::2], strict=True)) for name, flat in zip(names, flats, strict=True)}


def _start(member: str) -> tuple[int, int]:
    """A start within a sliding rate: time, fence, count."""
    time, _, rest = member.partition(":")
    return number(time), number(rest.rpartition(":")[2])


def _ledger(
    now: int,
    queue: str,
    completed: Sequence[Any],
    failed: Sequence[Any],
    runs: Sequence[Sequence[Any]],
    past: Sequence[str],
    all_time: Sequence[str],
    results: Sequence[Any],
    keys: Sequence[Any],
) -> TransferRecords:
    this = now // 60_000
    both = zip(minutes_of(completed, this, MINUTES), minutes_of(failed, this, MINUTES), strict=True)
    first, total = this - MINUTES + 1, _total(all_time)
    return TransferRecords(
        queue=queue,
        completed=number(completed[0]),
        failed=number(failed[0]),
        cancelled=total.get((0, 0), {}).get(CANCELLED, 0),
        minutes=tuple((first + n, good, lost) for n, (good, lost) in enumerate(both) if good or lost),
        runs=tuple(run_of(ending, row) for ending, rows in zip(RunStatus, runs, strict=True) for row in reversed(rows)),
        slices=dict(_slices(past, this)) | total,
        results=tuple((job, number(till), cause, text) for job, till, cause, text in results),
        keys=tuple((key, owner, number(till)) for key, owner, till in keys),
    )


def _slices(past: Sequence[str], this: int) -> Iterator[tuple[tuple[int, int], dict[str, int]]]:
    for place, text in _paired(past):
        counted = json.loads(text)
        counted.pop(_NAMES, None)
        step = number(place.partition(":")[0])
        slice_ = number(counted.pop(_MINUTE, 0))
        if slice_ * step <= this + step:
            yield (step, slice_), {field: number(count) for field, count in counted.items()}


def _total(flat: Sequence[str]) -> dict[tuple[int, int], dict[str, int]]:
    counted = {field: number(count) for field, count in _paired(flat) if field != _NAMES}
    return {(0, 0): counted} if counted else {}


def _facts(kept: str | None, circuits: Sequence[str]) -> TransferStoreFacts:
    count, age = (-1, -1) if kept is None else map(int, kept.split())
    keep = KEEP_ALL if kept is None else Keep(None if count < 0 else count, None if age < 0 else age / 1000)
    return TransferStoreFacts(keep, dict(_paired(circuits)))


_STORE: Final = "store"  # in the hash `moving`: the name of this store
_EXPORTS: Final = {
    TransferPart.SETTINGS: "export_settings",
    TransferPart.SCHEDULES: "export_schedules",
    TransferPart.JOBS: "export_jobs",
    TransferPart.LETTERS: "export_dead_letters",
    TransferPart.LEDGER: "export_records",
    TransferPart.FACTS: "export_store",
}
_OF_THE_STORE: Final = {TransferPart.LETTERS, TransferPart.FACTS}


@implements(TransferStore)
class RedisTransfers:
    """Transfers of the seam. Each step can be sent twice."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner

    async def store_id(self) -> str:
        self._runner.check_open()
        await self._runner.client.ask("HSETNX", self._moving, _STORE, SYSTEM.unique())
        return str(await self._runner.client.ask("HGET", self._moving, _STORE))

    async def destination(self, queue: str) -> str | None:
        self._runner.check_open()
        found = await self._runner.client.ask("HGET", self._moving, f"queue:{queue}")
        return None if found is None else str(found).partition(" ")[0]

    async def export_batch(
        self, part: TransferPart, queue: str, *, to: str, mark: str, limit: int = LOAD, now: int | None = None
    ) -> TransferBatch | None:
        queue = self._runner.dead_letter_queue if part in _OF_THE_STORE else check_queue_name(queue)
        more = await self._keys(queue) if part is TransferPart.LEDGER else [limit]
        found = await self._confirmed(_EXPORTS[part], queue, [queue, to, mark, *more], now)
        if found is None:
            return None
        number, old_mark, rows, moment = found
        items = (item_of(row, prefix=self._runner.address.prefix, now=moment) for row in rows)
        return TransferBatch(number, old_mark, to, tuple(items))

    async def import_batch(self, load: TransferBatch, *, sender: str, now: int | None = None) -> ImportResult:
        name, queue, arguments = self._arguments(load.items)
        outcome, refs = await self._confirmed(name, queue, [sender, load.number, load.mark, *arguments], now)
        return ImportResult(ImportOutcome(outcome), tuple(JobRef(*ref) for ref in refs))

    async def confirm_export(self, load: TransferBatch, *, now: int | None = None) -> bool:
        return bool(
            await self._runner.read(
                "confirm_export", self._runner.dead_letter_queue, [load.number, load.mark, load.to], now
            )
        )

    async def _confirmed(self, name: str, queue: str, arguments: Sequence[Any], now: int | None) -> Any:
        """A step that may be sent again, and that replicas confirm as they confirm adds, because the other store acts
        on it."""
        return await self._runner.run(name, queue, (self._runner.time_for(now), *arguments), again=True, sure=True)

    @property
    def _moving(self) -> str:
        return self._runner.fleet + FLEET["moving"]

    async def _keys(self, queue: str) -> list[str]:
        """The queue's deduplication keys, which are in no list."""
        first = f"{self._runner.base(queue)}{KEYS['dedup']}"
        cursor, found = "0", []
        while True:
            cursor, keys = await self._runner.client.ask(
                "SCAN", cursor, "MATCH", _literally(first) + "*", "COUNT", 1000
            )
            found += [key[len(first) :] for key in keys]
            if cursor == "0":
                return found

    def _arguments(self, items: Sequence[TransferItem]) -> tuple[str, str, list[Any]]:
        """The script that imports these, the queue, and the arguments."""
        match items:
            case (TransferSettings() as settings,):
                return "import_settings", settings.queue, [dump_settings(settings)]
            case (TransferRecords() as ledger,):
                return "import_records", ledger.queue, [dump_records(ledger, self._runner.address.prefix), ledger.queue]
            case (TransferStoreFacts() as facts,):
                return "import_store", self._runner.dead_letter_queue, dump_store_facts(facts)
            case _:
                return self._many(items)

    def _many(self, items: Sequence[TransferItem]) -> tuple[str, str, list[Any]]:
        prefix, queue, arguments = self._runner.address.prefix, "", []
        for item in items:
            match item:
                case TransferJob():
                    arguments += ["job", dump_job(item, prefix)]
                case TransferDeadLetter():
                    arguments += ["letter", dump_dead_letter(item, prefix)]
                case TransferSchedule():
                    queue = item.view.queue
                    arguments += ["schedule", dump_schedule(item)]
                case TransferSettings() | TransferRecords() | TransferStoreFacts():
                    raise InvalidOption("a batch must not mix jobs with settings, metrics or facts")
        return (
            ("import_schedules", queue, arguments)
            if queue
            else ("import_jobs", self._runner.dead_letter_queue, arguments)
        )


def _literally(text: str) -> str:
    return "".join(f"\\{sign}" if sign in "*?[]\\" else sign for sign in text)
