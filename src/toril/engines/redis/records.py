"""Turns answers of scripts into model values, and flow nodes into arguments."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toril.engines.redis.layout import FIELDS, LAST_MOMENT, due_of, event_place
from toril.engines.redis.options import dump_options, load_failure, load_options, moment, number, parsed
from toril.model import (
    MAX_DELAY,
    MAX_PRIORITY,
    MAX_RATE,
    MAX_RATE_WINDOW,
    Cancelled,
    Cause,
    Child,
    Claimed,
    Completed,
    Counts,
    Ended,
    EventKind,
    EventRow,
    Failed,
    Failure,
    FlowNode,
    Gone,
    GroupLimits,
    JobRef,
    JobRow,
    Lease,
    OnFailure,
    Pending,
    RateLimit,
    RecordedSteps,
    Rest,
    RunRow,
    RunStatus,
    Settings,
    SignalWait,
    WorkerRow,
)
from toril.model.states import State

__all__ = [
    "FLAGS",
    "claimed_of",
    "counts_of",
    "dump_names",
    "dump_nodes",
    "dump_refs",
    "dump_rests",
    "dump_wait",
    "ended_of",
    "event_of",
    "link_of",
    "load_names",
    "minutes_of",
    "record_of",
    "ref_of",
    "rests",
    "run_of",
    "settings_of",
    "worker_of",
]

# BullMQ's flags. They take effect in the child's `parent`; in its options they are only shown.
FLAGS: Final = {
    OnFailure.FAIL: "fpof", OnFailure.CONTINUE: "cpof", OnFailure.IGNORE: "idof", OnFailure.REMOVE: "rdof",
    OnFailure.WAIT: "",
}  # fmt: skip


def dump_nodes(nodes: Sequence[FlowNode]) -> str:
    return json.dumps([_spelled_out(node) for node in nodes], ensure_ascii=False)


def dump_refs(refs: Sequence[JobRef]) -> str:
    return json.dumps([(ref.queue, ref.id) for ref in refs], ensure_ascii=False)


def dump_rests(rests: Sequence[Rest]) -> str:
    """What a job rests for, as `lib/rests.lua` takes it; what goes into its rows as it is there is text already."""
    rows = [
        (
            each.key, each.kind.value, each.text, "" if each.delay is None else str(each.delay), each.digest or "-",
            [(wait.name, wait.key or "") for wait in each.signals], "1" if each.recorded else "",
            _compact(each.key), f"[{','.join(map(dump_wait, each.signals))}]",
        )
        for each in rests
    ]  # fmt: skip
    return _compact(rows)


def dump_wait(signal: SignalWait) -> str:
    """A signal that a job waits for, in the text of its rows and of its rest."""
    return _compact([signal.name, signal.key])


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def dump_names(children: Sequence[Child]) -> str | None:
    """The names of children in the order of adding, as a field of their parent; None if none is known."""
    named = sorted((child for child in children if child.name is not None), key=lambda child: child.number or 0)
    return ",".join(json.dumps([str(child.ref), child.name], separators=(",", ":")) for child in named) or None


def load_names(text: str | None) -> list[tuple[JobRef, str]]:
    """The same, parsed; entries of another form are left out."""
    found = parsed(f"[{text}]", None) if text else None
    return [(JobRef(*each[0].split(":", 1)), each[1]) for each in found or () if _is_named(each)]


def _is_named(each: object) -> bool:
    return isinstance(each, list) and len(each) == 2 and all(isinstance(part, str) for part in each) and ":" in each[0]


def _spelled_out(node: FlowNode) -> list[Any]:
    job, parent = node.job, node.parent
    return [
        node.queue, job.id, job.name, job.data, dump_options(job), str(job.delay),
        "" if job.due is None else str(job.due), str(job.priority), "1" if job.lifo else "",
        "" if job.expires is None else str(job.expires), job.metadata or "", "1" if node.waits else "",
        *(("", "", "") if parent is None else (parent.queue, parent.id, FLAGS[node.on_failure])),
        job.group or "",
    ]  # fmt: skip


def ref_of(prefix: str, key: str) -> JobRef:
    """The job of a key. If it has another prefix, that is kept as a part of the queue's name."""
    own = f"{prefix}:"
    if key.startswith(own):
        queue, _, identity = key[len(own) :].partition(":")
    else:
        queue, _, identity = key.rpartition(":")
    return JobRef(queue, identity)


def link_of(text: str | None) -> tuple[JobRef | None, OnFailure]:
    """A job's parent, from its field, and what its failure does there."""
    link = parsed(text, None)
    try:
        parent = JobRef(str(link["queueKey"]).rpartition(":")[2], str(link["id"]))
    except (ValueError, TypeError, KeyError):
        return None, OnFailure.WAIT
    return parent, next((policy for policy, flag in FLAGS.items() if flag and link.get(flag)), OnFailure.WAIT)


_NAME, _DATA, _OPTS, _ADDED, _DELAY, _PRIORITY, _STARTS, _MADE, _STALLS, _WAITED, _METADATA, _CHECKPOINT, _OLD = (
    FIELDS[name]
    for name in (
        "name",
        "data",
        "opts",
        "added_at",
        "delay",
        "priority",
        "starts",
        "attempts_made",
        "stalls",
        "waited",
        "metadata",
        "checkpoint",
        "attempts_made_old",
    )
)
_PARKED: Final = FIELDS["parked"]
_STEP, _STEPS, _RERUNS = FIELDS["step"], FIELDS["steps"], FIELDS["reruns"]
_REST: Final = re.compile(r'\{"since":(\d{1,16}),"until":(\d{1,16}|null),', re.ASCII)
_KINDS: Final = {kind.value: kind for kind in EventKind}
# Events for which BullMQ always writes the same previous state.
_ALWAYS: Final = {EventKind.ACTIVE, EventKind.COMPLETED, EventKind.FAILED}


def claimed_of(queue: str, token: str, row: Sequence[Any], now: int) -> Claimed:
    """A claimed job: id, fence, whether it is a suspect, and the hash as it was before."""
    job_id, fence, suspect, flat = row
    pairs = iter(flat)
    found: dict[str, str] = dict(zip(pairs, pairs, strict=True))
    get = found.get
    stored = load_options(get(_OPTS))
    made, stalls, starts, priority = get(_MADE) or get(_OLD), get(_STALLS), get(_STARTS), get(_PRIORITY)
    return Claimed(
        Lease(queue, job_id, token),
        found[_NAME],
        get(_DATA, ""),
        number(starts) + 1 if starts else 1,
        fence,
        stored.attempts,
        number(made) if made else 0,
        number(stalls) if stalls else 0,
        number(get(_ADDED), LAST_MOMENT),
        number(get(_WAITED) or get(_DELAY), MAX_DELAY),
        0 if priority == "0" else number(priority, MAX_PRIORITY),
        get(_METADATA),
        get(_CHECKPOINT),
        stored.options,
        suspect == 1,
        number(found[_PARKED]) if _PARKED in found else 0,
        stored.trace,
        stored.unreadable,
        _recorded(found, now) if _STEPS in found or _RERUNS in found else None,
    )


def _recorded(found: Mapping[str, str], now: int) -> RecordedSteps:
    """What the hash of a job says of its steps."""
    start = len(_STEP)
    rows = {field[start:]: text for field, text in found.items() if field.startswith(_STEP)}
    reruns, _, epoch = found.get(_RERUNS, "").partition(" ")
    return RecordedSteps(rows, number(reruns), number(epoch), now)


def record_of(queue: str, row: Sequence[Any]) -> JobRow:
    """A complete job: its fields, then id, state, score and deadline."""
    (
        name,
        data,
        added,
        opts,
        made,
        stalls,
        starts,
        delay,
        priority,
        waited,
        metadata,
        checkpoint,
        expires,
        held,
        progress,
        result,
        reason,
        kind,
        traces,
        cause,
        cancelling,
        worker,
        started,
        finished,
        made_before,
        parent,
        group,
        rest,
        job_id,
        word,
        score,
        deadline,
    ) = row
    stored, state = load_options(opts), State(word)
    is_delayed = state is State.DELAYED
    return JobRow(
        queue=queue,
        id=job_id,
        name=name,
        data=data or "",
        state=state,
        max_attempts=stored.attempts,
        attempts_made=number(made_before if made is None else made),
        stalls=number(stalls),
        starts=number(starts),
        fence=number(held.partition(" ")[0]) if held else 0,
        priority=number(priority, MAX_PRIORITY),
        delay=number(delay if is_delayed else waited or delay, MAX_DELAY),
        due=due_of(score) if is_delayed else None,
        expires_at=None if expires is None else moment(expires),
        options=stored.options,
        metadata=metadata,
        checkpoint=checkpoint,
        progress=progress,
        result=result,
        failure=load_failure(reason, kind, traces),
        stall_cause=cause,
        cancelling=cancelling,
        worker=worker,
        added_at=moment(added),
        started_at=None if started is None else moment(started),
        finished_at=None if finished is None else moment(finished),
        deadline=None if deadline is None else moment(deadline),
        parent=link_of(parent)[0],
        group=group,
        unreadable=stored.unreadable,
        rest=rest if rest is not None and rests(rest, state, due_of(score) if is_delayed else None) else None,
    )


def rests(rest: str, state: State, due: int | None) -> bool:
    """Whether a job rests where it stands. Other libraries move one on, and do not know that it did."""
    found = _REST.match(rest)
    if found is None or state is not State.DELAYED:
        return found is not None and state is State.WAITING_CHILDREN
    return due == (int(found[1]) + MAX_DELAY if found[2] == "null" else int(found[2]))


def run_of(ending: RunStatus, row: Sequence[Any]) -> RunRow:
    _, job_id, name, cause, added, started, finished, made, stalls, worker, text, whole, subject, parent = row
    return RunRow(
        id=job_id,
        name=name,
        ending=ending,
        cause=Cause(cause),
        added_at=moment(added),
        started_at=None if started is None else moment(started),
        finished_at=moment(finished),
        attempts_made=number(made),
        stalls=number(stalls),
        worker=worker,
        text=text,
        whole=bool(whole),
        subject=subject,
        parent=link_of(parent)[0],
        flow=parent is not None,
    )


def event_of(entry: Sequence[Any]) -> EventRow | None:
    """An entry of the stream; None if Toril does not know its kind."""
    place, flat = entry
    detail = dict(zip(flat[::2], flat[1::2], strict=True))
    kind = _KINDS.get(detail.pop("event", ""))
    if kind is None:
        return None
    job_id = detail.pop("jobId", None)
    if kind in _ALWAYS:
        detail.pop("prev", None)
    if kind is EventKind.FAILED and detail.pop("cause", None) == Cause.CANCELLED:
        kind = EventKind.CANCELLED
    return EventRow(str(event_place(place)), int(place.partition("-")[0]), kind, job_id, detail)


def ended_of(found: Sequence[Any] | None) -> Ended:
    """How a job ended: from the cause, the text, and whether it is complete; for a job that is kept also kind and
    traces."""
    match found:
        case ["pending", *_]:
            return Pending()
        case ["completed", text, whole] if whole:
            return Completed(text)
        case ["cancelled", text, *_] | [_, text, _, "JobCancelled", _]:
            return Cancelled(text)
        case ["failed" | "expired" | "stalled", text, _, *rest]:
            kind, traces = rest or ("", "")
            return Failed(load_failure(text, kind, traces) or Failure(text))
        case _:
            return Gone()


def worker_of(row: Sequence[str]) -> WorkerRow:
    identity, text, orders = row
    seen_at, _, said = text.partition(" ")
    return WorkerRow.load(identity, int(seen_at), orders, said)


def settings_of(row: Sequence[Any]) -> Settings:
    """Settings from paused, concurrency, the rate's max, ms and window, max_waiting, held_until, and the limits of
    groups."""
    paused, concurrency, most, ms, window, max_waiting, held_till, groups = row
    rate = None
    if most is not None and number(most) > 0:
        per = (number(ms, MAX_RATE_WINDOW) or 1000) / 1000
        rate = RateLimit(number(most, MAX_RATE), per, "sliding" if window == "sliding" else "fixed")
    return Settings(
        paused=paused is not None,
        concurrency=None if concurrency is None else number(concurrency),
        rate=rate,
        max_waiting=None if max_waiting is None else number(max_waiting),
        held_till=None if held_till is None else number(held_till),
        groups=GroupLimits.load(groups),
    )


def counts_of(row: Sequence[Any]) -> Counts:
    waiting, prioritized, active, delayed, waiting_children, completed, failed, resting, paused = row
    return Counts(
        waiting=waiting,
        prioritized=prioritized,
        active=active,
        delayed=delayed,
        waiting_children=waiting_children,
        completed=completed,
        failed=failed,
        paused=paused is not None,
        resting=resting,
    )


def minutes_of(row: Sequence[Any], this: int, minutes: int) -> tuple[int, ...]:
    """Counts per minute up to the minute `this`. The count since `prevTS` belongs to its minute, the list to those
    before."""
    count, last, before, data = row
    found = [0] * minutes
    if last is None:
        return tuple(found)
    newest = number(last) // 60_000
    for back, value in enumerate([number(count) - number(before), *map(number, data)]):
        place = minutes - 1 - (this - newest + back)
        if 0 <= place < minutes:
            found[place] = value
    return tuple(found)
