"""Claims jobs, as many as the queue's limits allow."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.groups import admit_by_turns, admit_due, can_start, count_starts, make_ready, next_time
from toril.engines.sql.options import NOTHING_STORED, StoredOptions, load_options, load_rate
from toril.engines.sql.rate_limits import slot
from toril.engines.sql.recorded import RecordedJobs
from toril.engines.sql.schema import HeldJob, JobFacts, Place, ReadyJob, due_bound, due_of, job_id
from toril.engines.sql.statements import query, statements
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
    RecordedSteps,
    per_ms,
)

__all__ = ["ClaimResult", "claim_jobs", "claimed_jobs"]

# A job that gets a lease: its facts, the rest of its row, its options, fence, whether it is a suspect, and its steps.
Granted: TypeAlias = tuple[JobFacts, ReadyJob | HeldJob, StoredOptions, int, bool, RecordedSteps | None]

_SQL: Final = statements("claim")
_FIRST: Final = query("claim", "first", ReadyJob)
_PROMOTED_A_CLAIM = 200
_EXPIRED_A_CLAIM = 200
_PASSES = 100  # over what groups admit


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The answer to a claim."""

    jobs: tuple[Claimed, ...] = ()
    wake_at: int | None = None
    blocked_by: Gate | None = None
    suspects: int = 0


@dataclass(frozen=True, slots=True)
class _Room:
    """How many jobs the gates let through, which gate is the narrowest, and when it may open."""

    size: int
    gate: Gate | None = None
    opens_at: int | None = None


def claim_jobs(step: QueueChanges, claim: Claim) -> ClaimResult:
    """Claim up to `claim.want` jobs; if there are fewer, say why, and when to come back."""
    if not claim.want:
        return ClaimResult()
    _promote(step)
    if step.row.parked:
        admit_due(step)
    room = _room(step, claim)
    jobs = _claim_from_line(step, claim, room.size)
    _count_starts(step, claim, len(jobs))
    short = len(jobs) < claim.want
    shut = short and room.gate is not None and len(jobs) == room.size
    return ClaimResult(
        jobs=tuple(jobs),
        wake_at=_wake_at(step, claim, _when_open(step, claim, room) if shut else None) if short else None,
        blocked_by=room.gate if shut else Gate.GROUPS if short and step.row.parked else None,
        suspects=step.row.suspects,
    )


def _promote(step: QueueChanges) -> None:
    row, tx = step.row, step.tx
    if not row.delayed:
        return
    due = tx.all(_SQL["due"], (row.key, Place.DELAYED, due_bound(tx.now), _PROMOTED_A_CLAIM))
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
    """The same gate, with the time at which it opens even if its window began with this claim."""
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
    tx.run(_SQL["trim_starts"], (row.key, tx.now - per_ms(rate)))
    count, oldest = tx.one(_SQL["starts"], (row.key,))
    return max(0, rate.max - count), None if oldest is None else oldest + per_ms(rate)


def _count_starts(step: QueueChanges, claim: Claim, count: int) -> None:
    row, tx = step.row, step.tx
    rate = load_rate(row.rate) or claim.limits.rate
    if rate is None or not count:
        return
    if rate.window == "sliding":
        tx.run(_SQL["start"], (row.key, slot(rate, tx.now), count))
    elif row.window_till <= tx.now:
        row.window_till, row.window_starts = tx.now + per_ms(rate), count
    else:
        row.window_starts += count


def _claim_from_line(step: QueueChanges, claim: Claim, size: int) -> list[Claimed]:
    """Claim a suspect alone, else from the line, by precedence, and from groups when the line is empty."""
    row = step.row
    recorded = RecordedJobs(step.tx, row)
    if claim.alone and row.suspects and size:
        suspect = _claim_from_place(step, claim, Place.SUSPECT, 1, recorded)
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
            jobs += _claim_from_place(step, claim, place, size - len(jobs), recorded)
        if not row.parked or len(jobs) == size or recorded.full or not _admit_more(step, size - len(jobs)):
            break
    return jobs


def _admit_more(step: QueueChanges, want: int) -> bool:
    """The line is empty: admit jobs of the groups whose jobs ended in this step, else by turns."""
    step.flush()
    return bool(step.row.waiting or step.row.prioritized or admit_by_turns(step, want))


def _claim_from_place(step: QueueChanges, claim: Claim, place: int, size: int, recorded: RecordedJobs) -> list[Claimed]:
    """Claim the first `size` jobs of a place. Expired ones in between are ended instead, a bounded number."""
    row, tx = step.row, step.tx
    taken: list[Claimed] = []
    ended, last = 0, -(2**63)
    while len(taken) < size and ended < _EXPIRED_A_CLAIM and not recorded.full:
        found = tx.gather(_FIRST, (row.key, place, last, size - len(taken)))
        if not found:
            break
        if row.stepping:
            found = found[: recorded.read([each.job.key for each in found])]
        last = found[-1].rank
        tx.run(_SQL["leave_up_to"], (row.key, place, last))
        row.count(place, -len(found))
        live = [job for job in found if job.expires_at is None or job.expires_at > tx.now]
        if len(live) < len(found):
            ended += _expire(step, found)
        if place == Place.SUSPECT:
            live = [job for job in live if can_start(step, job)]
        taken += _grant(step, claim, place, live, recorded)
    return taken


def _grant(
    step: QueueChanges, claim: Claim, place: int, ready: Sequence[ReadyJob], recorded: RecordedJobs
) -> list[Claimed]:
    """Give the worker a lease on each of these jobs."""
    queue, name, now = step.row.key, step.row.name, step.tx.now
    deadline, token, worker, stalls_allowed = now + claim.lease, claim.token, claim.worker, claim.max_stalls
    suspect = place == Place.SUSPECT
    fence = step.row.claims
    steps_of = recorded.of if step.row.stepping else None
    leases, groups = [], []
    granted: list[Granted] = []
    for row in ready:
        job, group = row.job, row.group_name
        text = job.options_text
        stored = NOTHING_STORED if text is None else load_options(text)
        if text is not None and (stored.fault is not None or stored.deferred is not None):
            _fail_early(step, job, stored)
            continue
        fence += 1
        if group is not None:
            groups.append(group)
        key = job.key
        leases.append((key, queue, deadline, token, worker, now, fence, suspect, stalls_allowed))
        granted.append((job, row, stored, fence, suspect, steps_of(key) if steps_of else None))
    step.row.claims = fence
    step.row.active += len(leases)
    step.tx.run_all(_SQL["hold"], leases)
    if groups:
        count_starts(step, groups)
    claimed = claimed_jobs(name, token, granted)
    step.events(EventKind.ACTIVE, [each.lease.id for each in claimed])
    return claimed


def claimed_jobs(queue: str, token: str, granted: Iterable[Granted]) -> list[Claimed]:
    """Jobs as their worker gets them."""
    return [
        Claimed(
            Lease(queue, job_id(job.key, job.chosen), token),
            job.name,
            row.data,
            job.starts + 1,
            fence,
            job.max_attempts,
            job.attempts_made,
            job.stalls,
            job.added_at,
            row.delay,
            job.priority,
            row.metadata,
            row.checkpoint,
            stored.options,
            suspect,
            stored.parked or 0,
            stored.trace,
            None,
            steps,
        )
        for job, row, stored, fence, suspect, steps in granted
    ]


def _fail_early(step: QueueChanges, job: JobFacts, stored: StoredOptions) -> None:
    """Fail a job that cannot be read, or whose child has failed, instead of running it."""
    reason, kind = (stored.deferred, "ChildFailed") if stored.fault is None else (stored.fault, "Undecodable")
    step.end_early(job, Cause.FAILED, Failure(reason or "", kind), made=job.attempts_made + 1)


def _expire(step: QueueChanges, found: Sequence[ReadyJob]) -> int:
    """End those of `found` that were not started in time."""
    expired = [row for row in found if row.expires_at is not None and row.expires_at <= step.tx.now]
    for row in expired:
        job = row.job
        reason = f"expired: not started {'again ' if job.starts else ''}by {row.expires_at}"
        step.end_early(job, Cause.EXPIRED, Failure(reason, EXPIRED_KIND), made=job.attempts_made)
    return len(expired)


def _wake_at(step: QueueChanges, claim: Claim, shut: _Room | None) -> int | None:
    """When a claim may find more, as far as the store knows: at the next due time, or when the gate opens."""
    row, tx = step.row, step.tx
    if shut is not None:
        return shut.opens_at
    if claim.only_suspects:
        return None
    if row.waiting or row.prioritized:
        return tx.now  # the number of expired jobs ended per claim is bounded: there may be more
    rank = tx.value(_SQL["next_due"], (row.key, Place.DELAYED)) if row.delayed else None
    due = None if rank is None else max(due_of(rank), tx.now)
    until = next_time(step) if row.parked else None
    return due if until is None else min(until, due or until)
