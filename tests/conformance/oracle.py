"""What a store should answer, as plain lists and dicts: slow, obvious, and never wrong about order."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from toril.model import (
    MAX_DELAY,
    Cancelled,
    Claim,
    Completed,
    Counts,
    Failed,
    Gate,
    Lease,
    NewJob,
    Outcome,
    Precedence,
    Released,
    Rest,
    Rested,
    Retried,
    RunStatus,
    SignalOutcome,
    Snoozed,
    StepKind,
    Verdict,
)
from toril.model.states import FINISHED, State


@dataclass(frozen=True)
class OracleRow:
    """What is recorded of a step."""

    kind: StepKind
    seq: int
    reruns: int
    attempt: int
    until: int | None
    text: str


_GIVES_WAY = (StepKind.FAILED, StepKind.RETRY)


@dataclass
class OracleJob:
    id: str
    new: NewJob
    state: State
    priority: int
    data: str
    due: int = 0
    expires_at: int | None = None
    attempts_made: int = 0
    stalls: int = 0
    starts: int = 0
    fence: int = 0
    suspect: bool = False
    token: str = ""
    deadline: int = 0
    ran_alone: bool = False
    max_stalls: int = 1
    cancelling: str | None = None
    rows: dict[str, OracleRow] = field(default_factory=dict)
    numbers: int = 0  # of rows
    reruns: int = 0
    epoch: int = 0
    inbox: list[str] = field(default_factory=list)
    rests: tuple[Rest, ...] = ()  # for which it rests

    def write(self, kind: StepKind, key: str, until: int | None, text: str) -> OracleRow:
        self.numbers += 1
        row = self.rows[key] = OracleRow(kind, self.numbers, self.reruns, self.attempts_made, until, text)
        return row

    def run_again(self, *, since: int | None) -> None:
        """By hand; with `since`, without what was recorded from that number on."""
        self.reruns += 1
        self.attempts_made = self.stalls = 0
        self.expires_at = None
        if since is not None:
            self.epoch += 1
            self.rows = {key: row for key, row in self.rows.items() if row.seq < since}

    def rests_for(self, signal: str) -> bool:
        return any(wait.name == signal for rest in self.rests for wait in rest.signals)


@dataclass
class Oracle:
    """One queue."""

    now: int
    paused: bool = False
    concurrency: int | None = None
    max_waiting: int | None = None
    jobs: dict[str, OracleJob] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    suspects: list[str] = field(default_factory=list)
    prioritized: dict[int, list[str]] = field(default_factory=dict)
    delayed: list[str] = field(default_factory=list)  # in the order of being delayed; due time decides first
    completed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    numbers: int = 0
    claims: int = 0
    ended: dict[RunStatus, list[str]] = field(default_factory=lambda: {ending: [] for ending in RunStatus})

    # the places

    def back(self, job: OracleJob) -> None:
        if job.priority:
            self.prioritized.setdefault(job.priority, []).append(job.id)
            job.state = State.PRIORITIZED
        else:
            self.waiting.append(job.id)
            job.state = State.WAITING

    def front(self, job: OracleJob) -> None:
        if job.priority:
            self.prioritized.setdefault(job.priority, []).insert(0, job.id)
            job.state = State.PRIORITIZED
        else:
            self.waiting.insert(0, job.id)
            job.state = State.WAITING

    def delay(self, job: OracleJob, due: int) -> None:
        job.due, job.state = due, State.DELAYED
        self.delayed.append(job.id)

    def take_out(self, job: OracleJob) -> None:
        for places in (
            self.waiting,
            self.suspects,
            self.delayed,
            self.completed,
            self.failed,
            *self.prioritized.values(),
        ):
            if job.id in places:
                places.remove(job.id)
        job.suspect = False
        job.rests = ()

    def order(self, state: State) -> list[str]:
        match state:
            case State.WAITING:
                return self.suspects + self.waiting
            case State.PRIORITIZED:
                return [job for priority in sorted(self.prioritized) for job in self.prioritized[priority]]
            case State.DELAYED:
                return sorted(self.delayed, key=lambda job: self.jobs[job].due)
            case State.ACTIVE:
                return [job.id for job in self.jobs.values() if job.state is State.ACTIVE]
            case State.COMPLETED:
                return self.completed[::-1]
            case State.FAILED:
                return self.failed[::-1]
            case State.WAITING_CHILDREN:
                return []

    def counts(self) -> Counts:
        states = {state.value: len(self.order(state)) for state in State}
        return Counts(paused=self.paused, resting=len(self.resting()), **states)

    def resting(self) -> set[str]:
        return {job.id for job in self.jobs.values() if job.rests}

    # the steps

    def fits(self, jobs: list[NewJob]) -> bool:
        new = {job.id for job in jobs if job.id is not None and job.id not in self.jobs}
        fresh = len(new) + sum(job.id is None for job in jobs)
        held = len(self.waiting) + len(self.suspects) + len(self.delayed) + len(self.order(State.PRIORITIZED))
        held -= len(self.resting())
        return self.max_waiting is None or not fresh or held + fresh <= self.max_waiting

    def add(self, new: NewJob) -> str:
        self.numbers += 1
        identity = new.id or str(self.numbers)
        if identity in self.jobs:
            return identity
        job = OracleJob(identity, new, State.WAITING, new.priority, new.data)
        job.expires_at = None if new.expires is None else self.now + new.expires
        self.jobs[identity] = job
        if new.delay:
            self.delay(job, self.now + new.delay)
        elif new.lifo and not new.priority:
            self.front(job)
        else:
            self.back(job)
        return identity

    def promote_due(self) -> None:
        for identity in [i for i in self.order(State.DELAYED) if self.jobs[i].due <= self.now]:
            self.take_out(self.jobs[identity])
            self.back(self.jobs[identity])

    def claim(self, claim: Claim) -> tuple[list[str], Gate | None]:
        if not claim.want:
            return [], None
        self.promote_due()
        gate, room = None, claim.want
        if self.paused:
            gate, room = Gate.PAUSED, 0
        elif self.concurrency is not None and self.concurrency - len(self.order(State.ACTIVE)) < room:
            gate, room = Gate.CONCURRENCY, max(0, self.concurrency - len(self.order(State.ACTIVE)))
        taken = self._take(claim, room)
        shut = len(taken) < claim.want and len(taken) == room
        return taken, gate if shut else None

    def _take(self, claim: Claim, room: int) -> list[str]:
        if claim.alone and self.suspects and room:
            found = self._take_live(claim, self.suspects[:], 1)
            if found:
                return found
        line = [self.waiting[:], self.order(State.PRIORITIZED)]
        if claim.limits.precedence is Precedence.PRIORITY_FIRST:
            line.reverse()
        return self._take_live(claim, line[0] + line[1], room)

    def _take_live(self, claim: Claim, line: list[str], room: int) -> list[str]:
        taken: list[str] = []
        for identity in line:
            if len(taken) == room:
                break
            job = self.jobs[identity]
            alone = identity in self.suspects
            self.take_out(job)
            if job.expires_at is not None and job.expires_at <= self.now:
                self.end(job, RunStatus.FAILED)
                continue
            job.state, job.token, job.deadline = State.ACTIVE, claim.token, self.now + claim.lease
            self.claims += 1
            job.starts, job.fence = job.starts + 1, self.claims
            job.ran_alone, job.max_stalls = alone, claim.max_stalls
            taken.append(identity)
        return taken

    def holds(self, lease: Lease) -> Verdict:
        job = self.jobs.get(lease.id)
        if job is None:
            return Verdict.MISSING
        held = job.state is State.ACTIVE and job.token == lease.token and job.deadline > self.now
        return Verdict.OK if held else Verdict.LOST

    def settle(self, lease: Lease, outcome: Outcome) -> Verdict:
        verdict = self.holds(lease)
        if verdict is not Verdict.OK:
            return verdict
        job = self.jobs[lease.id]
        if job.cancelling is not None and isinstance(outcome, Retried | Snoozed | Released | Rested):
            outcome = Cancelled(job.cancelling)
        if isinstance(outcome, Retried) and job.attempts_made + 1 >= job.new.attempts:
            outcome = Failed(outcome.failure)
        job.cancelling = None
        if not isinstance(outcome, Snoozed | Released):
            job.attempts_made += 1
        match outcome:
            case Completed():
                self.end(job, RunStatus.COMPLETED)
            case Failed():
                self.end(job, RunStatus.FAILED)
            case Cancelled():
                self.end(job, RunStatus.CANCELLED)
            case Retried(_, 0):
                self.back(job)
            case Retried(_, delay) | Snoozed(delay):
                self.delay(job, self.now + delay)
            case Released() if job.ran_alone:
                job.state, job.suspect = State.WAITING, True
                self.suspects.insert(0, job.id)
            case Released():
                self.front(job)
            case Rested():
                raise AssertionError("whether it rests is for `rest` to say")
        return verdict

    def end(self, job: OracleJob, ending: RunStatus) -> None:
        self.ended[ending].append(job.id)
        state = State.COMPLETED if ending is RunStatus.COMPLETED else State.FAILED
        options = job.new.options
        keep = options.keep_completed if state is State.COMPLETED else options.keep_failed
        if keep.count == 0:
            del self.jobs[job.id]
            return
        job.state, job.rests = state, ()
        if state is State.COMPLETED:
            job.inbox.clear()
        kept = self.completed if state is State.COMPLETED else self.failed
        kept.append(job.id)
        if keep.count is not None:
            while len(kept) > keep.count:
                del self.jobs[kept.pop(0)]

    def recover(self, dead: list[Lease], seen: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
        """Leases that ran out at the same moment have no order among themselves: `seen` is the engine's."""
        lost = [lease.id for lease in dead if self._is_held_by(lease)]
        overdue = [job for job in self.jobs.values() if job.state is State.ACTIVE and job.deadline <= self.now]
        order = {identity: n for n, identity in enumerate(seen)}
        overdue.sort(key=lambda job: (job.deadline, order.get(job.id, -1)))
        lost += [job.id for job in overdue if job.id not in lost]
        returned, failed, cancelled = [], [], []
        for identity in lost:
            job = self.jobs[identity]
            job.stalls += 1
            if job.cancelling is not None:
                job.cancelling = None
                self.end(job, RunStatus.CANCELLED)
                cancelled.append(identity)
            elif job.stalls > job.max_stalls and (job.ran_alone or not job.max_stalls):
                self.end(job, RunStatus.FAILED)
                failed.append(identity)
            else:
                job.state, job.suspect = State.WAITING, True
                self.suspects.append(identity)
                returned.append(identity)
        return returned, failed, cancelled

    def _is_held_by(self, lease: Lease) -> bool:
        job = self.jobs.get(lease.id)
        return job is not None and job.state is State.ACTIVE and job.token == lease.token

    def retry(self, identity: str) -> bool:
        job = self.jobs.get(identity)
        if job is None or job.state not in FINISHED:
            return False
        anew = 0 if job.state is State.COMPLETED else None
        self.take_out(job)
        job.run_again(since=anew)
        self.back(job)
        return True

    # durable steps

    def record(self, lease: Lease, key: str, kind: StepKind, until: int | None, text: str) -> Verdict:
        verdict = self.holds(lease)
        if verdict is Verdict.OK:
            job = self.jobs[lease.id]
            if key not in job.rows or job.rows[key].kind in _GIVES_WAY:
                job.write(kind, key, until, text)
        return verdict

    def receive(self, lease: Lease, key: str, signal: str) -> OracleRow | None:
        """With a lease that holds: the row that there is then, if the wait is over."""
        job = self.jobs[lease.id]
        row = job.rows.get(key)
        if row is not None and row.kind not in {StepKind.WAIT, *_GIVES_WAY}:
            return row
        until = row.until if row is not None and row.kind is StepKind.WAIT else None
        if job.inbox:
            return job.write(StepKind.RECEIVED, key, until, f'["{signal}",null] {job.inbox.pop(0)}')
        if until is not None and until <= self.now:
            return job.write(StepKind.RECEIVED, key, until, "null")
        return None

    def rest(self, job: OracleJob, rests: tuple[Rest, ...]) -> bool:
        """Whether it rests now; otherwise it goes to the front."""
        job.stalls, job.expires_at = 0, None
        times = []
        for rest in rests:
            row = job.rows.get(rest.key)
            if row is None or row.kind in _GIVES_WAY:
                until = None if rest.delay is None else self.now + rest.delay
                row = job.write(rest.kind, rest.key, until, rest.text)
            times.append(row.until if row.kind is rest.kind else self.now)
        known = [until for until in times if until is not None]
        if any(until <= self.now for until in known) or (job.inbox and any(rest.signals for rest in rests)):
            return False
        job.rests = rests
        self.delay(job, min(known, default=self.now + MAX_DELAY))
        return True

    def deliver(self, identity: str, signal: str, payload: str) -> SignalOutcome:
        job = self.jobs.get(identity)
        if job is None:
            return SignalOutcome.MISSING
        if job.state in FINISHED:
            return SignalOutcome.ENDED
        job.inbox.append(payload)
        if not job.rests_for(signal):
            return SignalOutcome.KEPT
        self.take_out(job)
        self.front(job)
        return SignalOutcome.WOKEN

    def promote(self, job: OracleJob) -> None:
        """Its sleeps are over."""
        for rest in job.rests:
            row = job.rows[rest.key]
            if row.kind is rest.kind is StepKind.SLEEP:
                job.rows[rest.key] = replace(row, until=min(row.until or 0, self.now))
        self.take_out(job)
        self.back(job)

    def rewind(self, identity: str, to: str | None) -> None:
        job = self.jobs[identity]
        since = 0 if to is None else job.rows[to].seq
        self.take_out(job)
        job.run_again(since=since)
        self.back(job)
