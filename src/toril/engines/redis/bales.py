"""Parcels from another store, as scripts take them."""

import json
from collections.abc import Sequence
from typing import Any, Final

from toril.engines.redis.layout import FIELDS
from toril.engines.redis.nodes import FLAGS, dump_names
from toril.engines.redis.options import dump_letter, dump_options, dump_parcel
from toril.engines.redis.schedules import fields_of, own_of
from toril.model import (
    HEADROOM,
    KEEP_ALL,
    Child,
    ChildState,
    Ending,
    FactsParcel,
    JobParcel,
    JobRef,
    KeyHeld,
    LedgerParcel,
    LetterParcel,
    OnFailure,
    Run,
    ScheduleParcel,
    SettingsParcel,
    age_ms,
    per_ms,
    scheduled_run,
)
from toril.model.states import State
from toril.policy.attempts import dump_errors

__all__ = ["dump_dead_letter", "dump_job", "dump_records", "dump_schedule", "dump_settings", "dump_store_facts"]

_ENDED: Final = {State.COMPLETED, State.FAILED}
_SHOWN: Final = 1024  # characters of a reason in what dashboards show of a letter


def dump_job(parcel: JobParcel, prefix: str) -> str:
    keep = parcel.keep_completed if parcel.state is State.COMPLETED else parcel.keep_failed
    ages = parcel.state in _ENDED and age_ms(keep) is not None
    when = parcel.finished_at if parcel.state in _ENDED else parcel.due
    return _text([
        parcel.queue, parcel.id, parcel.state.value, str(when or 0), int(parcel.suspect), str(parcel.priority),
        parcel.group or "", str(parcel.fence), _job_fields(parcel, prefix), list(parcel.logs),
        _kin(parcel.children, prefix), _held(parcel.held),
        str((parcel.finished_at or 0) + (age_ms(keep) or 0) + 1) if ages else "",
    ])  # fmt: skip


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _flat(given: dict[str, Any]) -> list[str]:
    return [part for name, value in given.items() if value is not None for part in (FIELDS[name], str(value))]


def _job_fields(parcel: JobParcel, prefix: str) -> list[str]:
    waits = parcel.state in {State.DELAYED, State.WAITING_CHILDREN}
    run, failure = scheduled_run(parcel.id), parcel.failure
    ready = parcel.added_at + parcel.delay if parcel.ready is None and parcel.delay and not parcel.starts else None
    return _flat({
        "name": parcel.name, "data": parcel.data, "opts": parcel.wire or dump_parcel(parcel, prefix),
        "added_at": parcel.added_at, "delay": parcel.delay if waits else 0, "priority": parcel.priority,
        "waited": None if waits else parcel.delay or None, "started_at": parcel.started_at, "worker": parcel.worker,
        "starts": parcel.starts or None, "attempts_made": parcel.attempts_made or None, "stalls": parcel.stalls or None,
        "progress": parcel.progress, "result": parcel.result, "finished_at": parcel.finished_at,
        "dedup": None if parcel.dedup is None else parcel.dedup.key, "scheduler": None if run is None else run[0],
        "deferred": parcel.deferred, "held": f"{parcel.fence} 0 1" if parcel.fence else None,
        "expires": parcel.expires_at, "metadata": parcel.metadata, "checkpoint": parcel.checkpoint,
        "parked": parcel.parked, "stall_cause": parcel.stall_cause,
        "ready": ready if parcel.ready is None else parcel.ready,
        "reason": None if failure is None else failure.reason, "kind": None if failure is None else failure.kind,
        "trace": None if failure is None or not failure.traceback else _text([failure.traceback]),
        "errors": dump_errors(parcel.errors), "children": dump_names(parcel.children),
    }) + _link(parcel.parent, parcel.on_failure, prefix)  # fmt: skip


def _link_to(parent: JobRef, prefix: str) -> dict[str, Any]:
    return {"id": parent.id, "queueKey": f"{prefix}:{parent.queue}"}


def _link(parent: JobRef | None, on_failure: OnFailure, prefix: str) -> list[str]:
    if parent is None:
        return []
    flag = FLAGS[on_failure]
    link = _link_to(parent, prefix) | ({flag: True} if flag else {})
    return _flat({"parent": _text(link), "parent_key": f"{prefix}:{parent.queue}:{parent.id}"})


def _kin(children: Sequence[Child], prefix: str) -> list[list[str]] | None:
    """Open, returned, failed and passed over, failed."""
    if not children:
        return None
    kin: dict[ChildState, list[str]] = {state: [] for state in ChildState}
    for child in children:
        told = child.state in {ChildState.COMPLETED, ChildState.IGNORED}
        kin[child.state] += [f"{prefix}:{child.ref}", *([child.text or "null"] if told else [])]
    return [kin[ChildState.OPEN], kin[ChildState.COMPLETED], kin[ChildState.IGNORED], kin[ChildState.FAILED]]


def _held(held: KeyHeld | None) -> list[Any] | None:
    if held is None:
        return None
    following, kept = held.next, []
    if following is not None:
        fields = {"name": following.name, "data": following.data, "opts": dump_options(following)}
        more = {"expires": following.expires, "metadata": following.metadata, "group": following.group}
        more["ready"] = following.due
        kept = [*_flat(fields | more), "jid", following.id or f"{held.key}-next"]
    return [held.key, "" if held.till is None else str(held.till), kept]


def dump_dead_letter(parcel: LetterParcel, prefix: str) -> str:
    it = parcel.letter
    fields = _flat({
        "name": it.name, "data": it.data, "opts": dump_letter(it), "added_at": it.added_at, "delay": 0,
        "priority": it.priority, "started_at": it.started_at, "worker": it.worker, "metadata": it.metadata,
        "checkpoint": it.checkpoint, "progress": it.progress, "errors": dump_errors(parcel.errors),
        "stall_cause": it.stall_cause, "reason": it.failure.reason,
        "kind": it.failure.kind, "trace": _text([it.failure.traceback]) if it.failure.traceback else None,
        "parked": 0 if parcel.children else None, "children": dump_names(parcel.children), "group": it.group,
        "order": 0 if it.group else None,
    })  # fmt: skip
    return _text([
        it.id, it.queue, it.job_id, it.cause.value, str(it.failed_at), str(it.attempts_made), str(it.stalls),
        it.worker or "", it.failure.reason[:_SHOWN], fields + _link(it.parent, it.on_failure, prefix),
        _kin(parcel.children, prefix), list(parcel.logs),
    ])  # fmt: skip


def dump_schedule(parcel: ScheduleParcel) -> str:
    view = parcel.view
    return _text([
        view.queue, view.schedule.id, str(view.slot), view.count, json.dumps(own_of(view.schedule)),
        [str(part) for part in fields_of(view.schedule, view.slot)], int(parcel.waits), int(view.paused),
        int(view.over), parcel.last or "",
    ])  # fmt: skip


def dump_settings(parcel: SettingsParcel) -> str:
    rate = parcel.rate
    meta = {
        "concurrency": parcel.concurrency, "rate_max": rate and rate.max, "rate_ms": rate and per_ms(rate),
    }  # fmt: skip
    own = {
        "window": "sliding" if rate is not None and rate.window == "sliding" else None,
        "max_waiting": parcel.max_waiting, "held_till": parcel.held_till,
        "groups_set": parcel.groups_set and parcel.groups_set.dump(),
    }  # fmt: skip
    if parcel.groups_declared is not None:
        own["groups_declared"] = parcel.groups_declared.dump()
    limits = [part for name, (own_limits, stopped) in parcel.groups.items()
              for part in (name, own_limits.dump() + ("p" if stopped else ""))]  # fmt: skip
    return _text([
        parcel.queue, "1" if parcel.paused else "", _set(meta), _set(own), str(parcel.numbers + HEADROOM),
        str(parcel.fences), limits, [[str(time), count] for time, count in parcel.starts],
        [part for name, starts in (parcel.group_starts or {}).items()
         for part in (name, [each for start in starts for each in start])],
    ])  # fmt: skip


def _set(given: dict[str, Any]) -> list[str]:
    """Fields and values; an empty one says that there is to be none."""
    return [part for name, value in given.items() for part in (FIELDS[name], "" if value is None else str(value))]


def dump_records(parcel: LedgerParcel, prefix: str) -> str:
    def of(ending: Ending) -> list[Any]:
        minutes = [(row[0], row[1 if ending is Ending.COMPLETED else 2]) for row in parcel.minutes]
        total = parcel.completed if ending is Ending.COMPLETED else parcel.failed
        return [total, [[minute, count] for minute, count in minutes if count], runs(ending)]

    def runs(ending: Ending) -> list[Any]:
        return [_run(run, prefix) for run in reversed(parcel.runs) if run.ending is ending]

    return _text([
        of(Ending.COMPLETED), of(Ending.FAILED), runs(Ending.CANCELLED),
        [[step, number, dict(counted)] for (step, number), counted in parcel.slices.items()],
        [[job_id, str(till), cause, text] for job_id, till, cause, text in parcel.results],
        [[key, owner, str(till)] for key, owner, till in parcel.keys],
    ])  # fmt: skip


def _run(run: Run, prefix: str) -> list[Any]:
    return [
        0, run.id, run.name, run.cause.value, run.added_at, run.started_at, run.finished_at, run.attempts_made,
        run.stalls, run.worker, run.text, run.whole, run.subject,
        _text(_link_to(run.parent, prefix)) if run.parent is not None else "" if run.flow else None,
    ]  # fmt: skip


def dump_store_facts(parcel: FactsParcel) -> list[str]:
    keep = parcel.letters
    count, age = (-1 if each is None else each for each in (keep.count, age_ms(keep)))
    return ["" if keep == KEEP_ALL else f"{count} {age}", *(part for pair in parcel.circuits.items() for part in pair)]
