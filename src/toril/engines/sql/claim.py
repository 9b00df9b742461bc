"""Take jobs, as many as the queue's gates let through."""

from dataclasses import dataclass
from typing import Any

from toril.engines.sql.changes import JOB_COLUMNS, JobFacts, QueueChanges
from toril.engines.sql.groups import by_turns, count_starts, look_at_due, make_ready, may_start_again, next_till
from toril.engines.sql.options import StoredOptions, load_options, load_rate
from toril.engines.sql.rate_limits import slot
from toril.engines.sql.schema import Place, due_bound, due_of, job_id
from toril.engines.sql.statements import statement
from toril.model import (
    EXPIRED_KIND,
    Cause,
    Claim,
    Claimed,
    EventKind,
    Failure,
    Gate,
    Lease,
    Precedence,
    RateLimit,
    per_ms,
)

__all__ = ["Taken", "claim_jobs"]

_DUE = statement("claim", "due")
_NEXT_DUE = statement("claim", "next_due")
_FIRST = statement("claim", "first")
_LEAVE_UP_TO = statement("claim", "leave_up_to")
_HOLD = statement("claim", "hold")
_TRIM_STARTS = statement("claim", "trim_starts")
_STARTS = statement("claim", "starts")
_START = statement("claim", "start")

_EXPIRES = 1 + JOB_COLUMNS  # what comes after the rank and the columns of `JobFacts`
_PROMOTED_A_CLAIM = 200
_EXPIRED_A_CLAIM = 200
_PASSES = 100  # over what groups let in


@dataclass(frozen=True, slots=True)
class Taken:
    """What a claim brought."""

    jobs: tuple[Claimed, ...] = ()
    wake_at: int | None = None
    blocked_by: Gate | None = None
    suspects: int = 0


@dataclass(frozen=True, slots=True)
class _Room:
    """How many jobs the gates let through, which one is the narrowest, and when it may open."""

    size: int
    gate: Gate | None = None
    opens_at: int | None = None


def claim_jobs(step: QueueChanges, claim: Claim) -> Taken:
    """Up to `claim.want` jobs; when there are fewer, why, and when to come back."""
    if not claim.want:
        return Taken()
    _promote(step)
    if step.row.parked:
        look_at_due(step)
    room = _room(step, claim)
    jobs = _take(step, claim, room.size)
    _count_starts(step, claim, len(jobs))
    short = len(jobs) < claim.want
    shut = short and room.gate is not None and len(jobs) == room.size
    return Taken(
        jobs=tuple(jobs),
        wake_at=_wake_at(step, claim, _when_open(step, claim, room) if shut else None) if short else None,
        blocked_by=room.gate if shut else Gate.GROUPS if short and step.row.parked else None,
        suspects=step.row.suspects,
    )


def _promote(step: QueueChanges) -> None:
    row, tx = step.row, step.tx
    if not row.delayed:
        return
    due = tx.all(_DUE, (row.key, Place.DELAYED, due_bound(tx.now), _PROMOTED_A_CLAIM))
    for key, rank, chosen, priority in due:
        step.leave(key, Place.DELAYED, rank)
        make_ready(step, key, row.back(priority))
        step.event(EventKind.WAITING, job_id(key, chosen), prev="delayed")
    if due:
        step.flush()


def _room(step: QueueChanges, claim: Claim) -> _Room:
    row = step.row
    if row.paused:
        return _Room(0, Gate.PAUSED)
    room = _Room(claim.want)
    if row.concurrency is not None and row.concurrency - row.active < room.size:
        room = _Room(max(0, row.concurrency - row.active), Gate.CONCURRENCY)
    rate = load_rate(row.rate) or claim.limits.rate
    if rate is not None:
        left, opens_at = _left(step, rate)
        if left < room.size:
            room = _Room(left, Gate.RATE, opens_at)
    if row.held_till > step.tx.now:
        room = _Room(0, Gate.RATE, max(row.held_till, room.opens_at or 0))
    return room


def _when_open(step: QueueChanges, claim: Claim, room: _Room) -> _Room:
    """The same gate, with the time at which it opens even where the window began with this very claim."""
    rate = load_rate(step.row.rate) or claim.limits.rate
    if room.gate is not Gate.RATE or room.opens_at is not None or rate is None:
        return room
    return _Room(room.size, room.gate, _left(step, rate)[1])


def _left(step: QueueChanges, rate: RateLimit) -> tuple[int, int | None]:
    row, tx = step.row, step.tx
    if rate.window == "fixed":
        if row.window_till <= tx.now:
            return rate.max, None
        return max(0, rate.max - row.window_starts), row.window_till
    tx.run(_TRIM_STARTS, (row.key, tx.now - per_ms(rate)))
    count, oldest = tx.one(_STARTS, (row.key,))
    return max(0, rate.max - count), None if oldest is None else oldest + per_ms(rate)


def _count_starts(step: QueueChanges, claim: Claim, count: int) -> None:
    row, tx = step.row, step.tx
    rate = load_rate(row.rate) or claim.limits.rate
    if rate is None or not count:
        return
    if rate.window == "sliding":
        tx.run(_START, (row.key, slot(rate, tx.now), count))
    elif row.window_till <= tx.now:
        row.window_till, row.window_starts = tx.now + per_ms(rate), count
    else:
        row.window_starts += count


def _take(step: QueueChanges, claim: Claim, size: int) -> list[Claimed]:
    row = step.row
    if claim.alone and row.suspects and size:
        suspect = _take_from(step, claim, Place.SUSPECT, 1)
        if suspect:
            return suspect
    if claim.only_suspects:
        return []
    places = [Place.WAITING, Place.PRIORITIZED]
    if claim.limits.precedence is Precedence.PRIORITY_FIRST:
        places.reverse()
    jobs: list[Claimed] = []
    for _ in range(_PASSES):
        for place in places:
            jobs += _take_from(step, claim, place, size - len(jobs))
        if not row.parked or len(jobs) == size or not _more(step, size - len(jobs)):
            break
    return jobs


def _more(step: QueueChanges, want: int) -> bool:
    """Nothing more is in the line: let in what those that were ended on the way made room for, else by turns."""
    step.flush()
    return bool(step.row.waiting or step.row.prioritized or by_turns(step, want))


def _take_from(step: QueueChanges, claim: Claim, place: int, size: int) -> list[Claimed]:
    """The first `size` jobs of a place. Expired ones on the way are ended, not handed out, a bounded number."""
    row, tx = step.row, step.tx
    taken: list[Claimed] = []
    ended = 0
    while len(taken) < size and ended < _EXPIRED_A_CLAIM:
        found = tx.all_at_once(_FIRST, (row.key, place, size - len(taken)))
        if not found:
            break
        tx.run(_LEAVE_UP_TO, (row.key, place, found[-1][0]))
        row.count(place, -len(found))
        live = [entry for entry in found if entry[_EXPIRES] is None or entry[_EXPIRES] > tx.now]
        if len(live) < len(found):
            ended += _expire(step, found)
        if place == Place.SUSPECT:
            live = [entry for entry in live if may_start_again(step, entry)]
        taken += _hold(step, claim, place, live)
    return taken


def _hold(step: QueueChanges, claim: Claim, place: int, entries: list[Any]) -> list[Claimed]:
    """Give these jobs into the claimer's hands."""
    queue, name, now = step.row.key, step.row.name, step.tx.now
    deadline, token, worker, stalls_allowed = now + claim.lease, claim.token, claim.worker, claim.max_stalls
    suspect = place == Place.SUSPECT
    fence = step.row.claims
    holds, claimed, groups = [], [], []
    for entry in entries:
        (_, key, chosen, job, priority, attempts, made, stalls, starts, _, added_at, _, _, _, text, _, delay, metadata,
         checkpoint, data, group) = entry  # fmt: skip
        options = load_options(text)
        if options.fault is not None or options.deferred is not None:
            _fail_early(step, JobFacts._make(entry[1:_EXPIRES]), options)
            continue
        fence += 1
        if group is not None:
            groups.append(group)
        holds.append((key, queue, deadline, token, worker, now, fence, suspect, stalls_allowed))
        lease = Lease(name, job_id(key, chosen), token)
        claimed.append(Claimed(
            lease, job, data, starts + 1, fence, attempts, made, stalls, added_at, delay, priority, options.timeout,
            options.backoff, metadata, checkpoint, suspect, options.breaker, options.subject, options.parked or 0,
            options.trace,
        ))  # fmt: skip
    step.row.claims = fence
    step.row.active += len(holds)
    step.tx.run_all(_HOLD, holds)
    if groups:
        count_starts(step, groups)
    step.events(EventKind.ACTIVE, [each.lease.id for each in claimed])
    return claimed


def _fail_early(step: QueueChanges, job: JobFacts, options: StoredOptions) -> None:
    """A job that cannot be read, or whose child has failed, fails instead of running."""
    reason, kind = (options.deferred, "ChildFailed") if options.fault is None else (options.fault, "Undecodable")
    step.never_starts(job, Cause.FAILED, Failure(reason or "", kind), made=job.attempts_made + 1)


def _expire(step: QueueChanges, found: list[Any]) -> int:
    """End those of `found` that were not started in time."""
    expired = [entry for entry in found if entry[_EXPIRES] is not None and entry[_EXPIRES] <= step.tx.now]
    for entry in expired:
        job = JobFacts._make(entry[1:_EXPIRES])
        reason = f"expired: not started {'again ' if job.starts else ''}by {entry[_EXPIRES]}"
        step.never_starts(job, Cause.EXPIRED, Failure(reason, EXPIRED_KIND), made=job.attempts_made)
    return len(expired)


def _wake_at(step: QueueChanges, claim: Claim, shut: _Room | None) -> int | None:
    """When a claim may bring more, as far as the store can tell: at the next due time, or when the gate opens."""
    row, tx = step.row, step.tx
    if shut is not None:
        return shut.opens_at
    if claim.only_suspects:
        return None
    if row.waiting or row.prioritized:
        return tx.now  # a bounded number of expired jobs was ended: there is more behind them
    found = tx.one(_NEXT_DUE, (row.key, Place.DELAYED)) if row.delayed else None
    due = None if found is None else max(due_of(found[0]), tx.now)
    till = next_till(step) if row.parked else None
    return due if till is None else min(till, due or till)
