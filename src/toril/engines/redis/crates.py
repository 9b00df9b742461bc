"""What scripts have packed, as the parcels that another store can read."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from toril.engines.redis.dead_letters import letter_of
from toril.engines.redis.layout import FIELDS, due_of
from toril.engines.redis.nodes import link_of, load_names, ref_of
from toril.engines.redis.options import load_dedup, load_failure, load_options, moment, number, parsed
from toril.engines.redis.records import minutes_of, run_of, settings_of
from toril.engines.redis.schedules import view_of
from toril.errors import InvalidName
from toril.model import (
    KEEP_ALL,
    MAX_DELAY,
    MAX_PRIORITY,
    Child,
    ChildState,
    Ending,
    FactsParcel,
    GroupLimits,
    JobParcel,
    Keep,
    KeyHeld,
    LedgerParcel,
    LetterParcel,
    NewJob,
    OnFailure,
    Parcel,
    ScheduleParcel,
    SettingsParcel,
)
from toril.model.names import check_job_id
from toril.model.states import State
from toril.policy.attempts import load_errors
from toril.policy.retention import MINUTES
from toril.policy.tallies import CANCELLED

__all__ = ["parcel_of"]

_MINUTE: Final = FIELDS["minute"]
_NAMES: Final = FIELDS["names"]


def parcel_of(row: Sequence[Any], *, prefix: str, now: int) -> Parcel:
    kind, *content = row
    kinds: dict[str, Callable[..., Parcel]] = {
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
    prefix: str, queue: str, job_id: str, word: str, score: str | None, suspect: int, flat: Sequence[str],
    logs: Sequence[str], kin: Sequence[Any] | None, held: Sequence[Any] | None,
) -> JobParcel:  # fmt: skip
    found = dict(_paired(flat))

    def text(name: str) -> str | None:
        return found.get(FIELDS[name])

    def time(name: str) -> int | None:
        value = text(name)
        return None if value is None else moment(value)

    state, opts = State(word), text("opts")
    options, (parent, on_failure) = load_options(opts), link_of(text("parent"))
    waits = state in {State.DELAYED, State.WAITING_CHILDREN}
    return JobParcel(
        queue=queue, id=job_id, name=text("name") or "", data=text("data") or "", state=state, suspect=suspect == 1,
        due=due_of(score) if state is State.DELAYED and score else None, max_attempts=options.attempts,
        attempts_made=number(text("attempts_made") or text("attempts_made_old")), stalls=number(text("stalls")),
        starts=number(text("starts")), fence=number((text("held") or "").partition(" ")[0]),
        priority=number(text("priority"), MAX_PRIORITY),
        delay=number(text("delay") if waits else text("waited") or text("delay"), MAX_DELAY),
        added_at=moment(text("added_at")), started_at=time("started_at"), finished_at=_ended(state, score, time),
        expires_at=time("expires"), worker=text("worker"), metadata=text("metadata"), checkpoint=text("checkpoint"),
        progress=text("progress"), failure=load_failure(text("reason"), text("kind"), text("trace")),
        stall_cause=text("stall_cause"), result=text("result"), group=text("group"), backoff=options.backoff,
        timeout=options.timeout, keep_completed=options.keep_completed, keep_failed=options.keep_failed,
        keep_logs=options.keep_logs, result_ttl=options.result_ttl, dedup=load_dedup(opts), breaker=options.breaker,
        subject=options.subject, trace=options.trace, parent=parent,
        on_failure=OnFailure.FAIL if parent is None else on_failure, parked=time("parked"), deferred=text("deferred"),
        ready=time("ready"), logs=tuple(logs), errors=load_errors(text("errors")),
        children=_children(prefix, kin, text("children")), held=None if held is None else _held(*held), wire=opts,
    )  # fmt: skip


def _ended(state: State, score: str | None, time: Callable[[str], int | None]) -> int | None:
    ended = time("finished_at")
    if ended is None and score is not None and state in {State.COMPLETED, State.FAILED}:
        return moment(score)
    return ended


def _children(prefix: str, kin: Sequence[Any] | None, names: str | None) -> tuple[Child, ...]:
    if kin is None:
        return ()
    named = {ref: (name, number) for number, (ref, name) in enumerate(load_names(names), 1)}
    return tuple(
        Child(child.ref, child.state, child.text, *named.get(child.ref, (None, None))) for child in _known(prefix, kin)
    )


def _known(prefix: str, kin: Sequence[Any]) -> tuple[Child, ...]:
    still, returned, ignored, failed = kin
    children = [Child(ref_of(prefix, key), ChildState.OPEN) for key in still]
    children += [Child(ref_of(prefix, key), ChildState.COMPLETED, text) for key, text in _paired(returned)]
    children += [Child(ref_of(prefix, key), ChildState.IGNORED, text) for key, text in _paired(ignored)]
    return (*children, *(Child(ref_of(prefix, key), ChildState.FAILED) for key in failed))


def _held(key: str, till: str | None, following: Sequence[str]) -> KeyHeld:
    found = dict(_paired(following))
    return KeyHeld(key, None if till is None else number(till), _kept(found) if found else None)


def _kept(found: Mapping[str, str]) -> NewJob:
    """The job that is made when the owner of its key ends. A number that it was to have, it gets anew."""
    opts, expires, due = (found.get(FIELDS[name]) for name in ("opts", "expires", "ready"))
    options, given = load_options(opts), parsed(opts, {})
    given = given if isinstance(given, dict) else {}
    try:
        chosen = check_job_id(found.get("jid"))
    except InvalidName:
        chosen = None
    return NewJob(
        name=found[FIELDS["name"]], data=found.get(FIELDS["data"], "{}"), id=chosen,
        delay=0 if due else number(given.get("delay"), MAX_DELAY), due=None if due is None else moment(due),
        priority=number(given.get("priority"), MAX_PRIORITY), lifo=given.get("lifo") is True, attempts=options.attempts,
        backoff=options.backoff, timeout=options.timeout, expires=None if expires is None else number(expires),
        keep_completed=options.keep_completed, keep_failed=options.keep_failed, keep_logs=options.keep_logs,
        result_ttl=options.result_ttl, metadata=found.get(FIELDS["metadata"]), dedup=load_dedup(opts),
        breaker=options.breaker, subject=options.subject, group=found.get(FIELDS["group"]),
        trace=options.trace,
    )  # fmt: skip


def _letter(
    prefix: str, row: Sequence[Any], kin: Sequence[Any] | None, logs: Sequence[str], errors: str | None,
    names: str | None,
) -> LetterParcel:  # fmt: skip
    return LetterParcel(letter_of(row), _children(prefix, kin, names), tuple(logs), load_errors(errors))


def _schedule(queue: str, row: Sequence[Any], waits: int, last: str | None) -> ScheduleParcel:
    return ScheduleParcel(view_of(queue, row), waits == 1, last)


def _settings(
    queue: str, paused: str, settings: Sequence[Any], counted: Sequence[Any], own: Sequence[str], starts: Sequence[str],
    of_groups: Sequence[Any],
) -> SettingsParcel:  # fmt: skip
    *known, by_hand, declared = settings
    read = settings_of([None, *known, None])
    limits = {name: (GroupLimits.load(text.rstrip("p")), text.endswith("p")) for name, text in _paired(own)}
    return SettingsParcel(
        queue=queue, paused=paused == "1", concurrency=read.concurrency, rate=read.rate, max_waiting=read.max_waiting,
        held_till=read.held_till, groups_set=None if by_hand is None else GroupLimits.load(by_hand),
        groups_declared=None if declared is None else GroupLimits.load(declared), groups=limits,
        numbers=number(counted[0]), fences=number(counted[1]), starts=tuple(map(_start, starts)),
        group_starts=_starts(of_groups),
    )  # fmt: skip


def _starts(of_groups: Sequence[Any]) -> dict[str, tuple[tuple[int, int], ...]]:
    """By group; times and counts by turns."""
    names, flats = of_groups[::2], of_groups[1::2]
    return {
        name: tuple(zip(flat[::2], flat[1::2], strict=True)) for name, flat in zip(names, flats, strict=True)
    }  # fmt: skip


def _start(member: str) -> tuple[int, int]:
    """Of a sliding rate: time, a fence, how many."""
    time, _, rest = member.partition(":")
    return number(time), number(rest.rpartition(":")[2])


def _ledger(
    now: int, queue: str, completed: Sequence[Any], failed: Sequence[Any], runs: Sequence[Sequence[Any]],
    past: Sequence[str], all_time: Sequence[str], results: Sequence[Any], keys: Sequence[Any],
) -> LedgerParcel:  # fmt: skip
    this = now // 60_000
    both = zip(minutes_of(completed, this, MINUTES), minutes_of(failed, this, MINUTES), strict=True)
    first, total = this - MINUTES + 1, _total(all_time)
    return LedgerParcel(
        queue=queue, completed=number(completed[0]), failed=number(failed[0]),
        cancelled=total.get((0, 0), {}).get(CANCELLED, 0),
        minutes=tuple((first + n, good, lost) for n, (good, lost) in enumerate(both) if good or lost),
        runs=tuple(
            run_of(ending, row) for ending, rows in zip(Ending, runs, strict=True) for row in reversed(rows)
        ),
        slices=dict(_slices(past, this)) | total,
        results=tuple((job, number(till), cause, text) for job, till, cause, text in results),
        keys=tuple((key, owner, number(till)) for key, owner, till in keys),
    )  # fmt: skip


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


def _facts(kept: str | None, circuits: Sequence[str]) -> FactsParcel:
    count, age = (-1, -1) if kept is None else map(int, kept.split())
    keep = KEEP_ALL if kept is None else Keep(None if count < 0 else count, None if age < 0 else age / 1000)
    return FactsParcel(keep, dict(_paired(circuits)))
