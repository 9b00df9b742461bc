"""What a store should answer, as plain lists and dicts: slow, obvious, and never wrong about order."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from toril.model import (
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
    Rested,
    Retried,
    RunStatus,
    Snoozed,
    Verdict,
)
from toril.model.states import FINISHED, State


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
        return Counts(paused=self.paused, **{state.value: len(self.order(state)) for state in State})

    # the steps

    def fits(self, jobs: list[NewJob]) -> bool:
        new = {job.id for job in jobs if job.id is not None and job.id not in self.jobs}
        fresh = len(new) + sum(job.id is None for job in jobs)
        held = len(self.waiting) + len(self.suspects) + len(self.delayed) + len(self.order(State.PRIORITIZED))
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
            self.delayed.remove(identity)
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
        if job.cancelling is not None and isinstance(outcome, Retried | Snoozed | Released):
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
                raise AssertionError("flows have an oracle of their own")
        return verdict

    def end(self, job: OracleJob, ending: RunStatus) -> None:
        self.ended[ending].append(job.id)
        state = State.COMPLETED if ending is RunStatus.COMPLETED else State.FAILED
        options = job.new.options
        keep = options.keep_completed if state is State.COMPLETED else options.keep_failed
        if keep.count == 0:
            del self.jobs[job.id]
            return
        job.state = state
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
        self.take_out(job)
        job.attempts_made = job.stalls = 0
        job.expires_at = None
        self.back(job)
        return True
