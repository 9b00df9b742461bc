"""Where every job must be, worked out from the effects that the simulator saw, one after another."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tests.sim.journal import Journal
from tests.sim.script import Script, fence_of, script_of
from toril.model import (
    Cancelled,
    Claim,
    Claimed,
    Completed,
    Failed,
    NewJob,
    Outcome,
    Released,
    Rested,
    Retried,
    Settlement,
    Snoozed,
    Verdict,
)
from toril.model.states import State
from toril.runtime.clock import Clock

__all__ = ["Entry", "Ledger", "Stage"]


class Stage(StrEnum):
    """How far a job has come. A job that ended is kept, or gone by a rule that the entry names."""

    READY = "ready"
    DELAYED = "delayed"
    ACTIVE = "active"
    ENDED = "ended"
    GONE = "gone"


@dataclass(slots=True, kw_only=True)
class Entry:
    """One job, from its add on. `causes` counts what explains another run: stalls, retries, snoozes, releases, and
    reruns by hand. A `suspect` may only run alone."""

    id: str
    data: str
    script: Script
    attempts: int
    priority: int
    keeps: dict[State, bool]
    stage: Stage = Stage.READY
    due: int = 0
    made: int = 0
    stalls: int = 0
    starts: int = 0
    fence: int = 0
    suspect: bool = False
    token: str = ""
    deadline: int = 0
    alone: bool = False
    max_stalls: int = 1
    cancelling: str | None = None
    ending: State | None = None
    rule: str = ""
    causes: int = 0
    finishes: int = 0
    acceptances: int = 1
    recorded: bool = True  # its run records are kept: nobody obliterated the queue since
    worker: str = ""
    claimed_at: float = 0.0
    delays: int = 0  # how often its worker had been held up when it was claimed; -1 if it was just then
    progress: Any = None
    group: str | None = None
    order: int = 0  # of the add
    late: bool = False  # it came to its group after younger ones: by a delay, or by hand

    @property
    def state(self) -> State | None:
        """The state that the store has to show."""
        match self.stage:
            case Stage.READY:
                return State.PRIORITIZED if self.priority and not self.suspect else State.WAITING
            case Stage.DELAYED:
                return State.DELAYED
            case Stage.ACTIVE:
                return State.ACTIVE
            case Stage.ENDED:
                return self.ending
            case Stage.GONE:
                return None

    @property
    def open(self) -> bool:
        return self.stage not in {Stage.ENDED, Stage.GONE}

    @property
    def sits(self) -> bool:
        """Whether it has the seat of its group: it runs, has stalled, or was put off after it had started."""
        return self.stage is Stage.ACTIVE or self.suspect or (self.stage is Stage.DELAYED and self.starts > 0)

    def held(self, token: str, now: int) -> bool:
        """Whether this token's lease holds."""
        return self.stage is Stage.ACTIVE and self.token == token and self.deadline > now


class Ledger:
    """All jobs of one queue. Each move checks what must be true of it; `journal` hears of what is not."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self.journal = journal
        self._clock = clock
        self.entries: list[Entry] = []
        self.by_id: dict[str, Entry] = {}
        self.by_nonce: dict[str, Entry] = {}
        self.letters: dict[str, Entry] = {}  # by the id that the job had
        self.paused = False
        self.concurrency: int | None = None
        self.fence = 0
        self.lease = 0
        self.last_claim = 0.0

    def of(self, stage: Stage) -> Iterator[Entry]:
        return (entry for entry in self.by_id.values() if entry.stage is stage)

    def ready_now(self) -> Iterator[Entry]:
        """What could be handed out at this moment, were there a claim."""
        now = self._clock.now()
        return (
            entry
            for entry in self.by_id.values()
            if (entry.stage is Stage.READY or (entry.stage is Stage.DELAYED and entry.due <= now))
            and not (entry.group and any(other.sits for other in self.beside(entry)))
        )

    def startable(self, ready: list[Entry]) -> int:
        """How many of these a claim for many gets: of a group one, unless someone has its seat."""
        plain = [entry for entry in ready if not entry.suspect]
        open_groups = {
            entry.group for entry in plain if entry.group and not any(other.sits for other in self.beside(entry))
        }
        return sum(entry.group is None for entry in plain) + len(open_groups)

    def beside(self, entry: Entry) -> Iterator[Entry]:
        """Other jobs of its group that have not ended."""
        return (
            other for other in self.by_id.values() if other.group == entry.group and other.open and other is not entry
        )

    def held_by(self, worker: str) -> Iterator[Entry]:
        now = self._clock.now()
        return (entry for entry in self.of(Stage.ACTIVE) if entry.worker == worker and entry.deadline > now)

    def full(self) -> bool:
        """Whether the queue lets nothing more run."""
        if self.concurrency is None or self.paused:
            return self.paused
        return sum(1 for _ in self.of(Stage.ACTIVE)) >= self.concurrency

    def _take_turn(self, entry: Entry, now: int) -> None:
        """Of a group of one only one runs, and none goes before an older one of the same priority that could run."""
        for other in self.beside(entry):
            if other.stage is Stage.ACTIVE and other.deadline > now:
                self.journal.violated("group", f"{entry.id} was handed out while {other.id} of {entry.group} runs")
            older = other.order < entry.order and other.priority == entry.priority
            if other.stage is Stage.READY and older and not (other.late or other.suspect or entry.suspect):
                self.journal.violated("group", f"{entry.id} was handed out before {other.id} of {entry.group}")

    def find(self, job_id: str) -> Entry | None:
        """The job of this id, if the store still has one."""
        entry = self.by_id.get(job_id)
        return None if entry is None or entry.stage is Stage.GONE else entry

    def add(self, job: NewJob, job_id: str, now: int) -> None:
        script = script_of(job.data)
        if script.nonce in self.by_nonce:
            self.journal.violated("I2", f"{script.nonce} was stored twice, as {job_id} too")
        if self.find(job_id) is not None:
            self.journal.violated("I1", f"id {job_id} was given to a second job")
        options = job.options
        keeps = {State.COMPLETED: options.keep_completed.count != 0, State.FAILED: options.keep_failed.count != 0}
        entry = Entry(
            id=job_id, data=job.data, script=script, attempts=job.attempts, priority=job.priority, keeps=keeps,
            group=job.group, order=len(self.entries), late=job.delay > 0 or job.due is not None,
        )  # fmt: skip
        if job.delay:
            self.delay(entry, now + job.delay)
        self.entries.append(entry)
        self.by_id[job_id] = self.by_nonce[script.nonce] = entry

    def delay(self, entry: Entry, due: int) -> None:
        entry.stage, entry.due, entry.suspect = Stage.DELAYED, due, False

    def ready(self, entry: Entry) -> None:
        entry.stage, entry.due, entry.suspect = Stage.READY, 0, False

    def promote_due(self, now: int) -> None:
        for entry in self.of(Stage.DELAYED):
            if entry.due <= now:
                self.ready(entry)

    def claim(self, job: Claimed, claim: Claim, now: int) -> None:
        """A job was handed out: it was to be had, and all that is told of it is true."""
        entry = self.find(job.lease.id)
        if entry is None:
            self.journal.violated("I2", f"{job.lease.id} was handed out and does not exist")
            return
        if entry.stage is not Stage.READY:
            row = "I9" if entry.stage is Stage.DELAYED else "I1"
            self.journal.violated(row, f"{entry.id} was handed out while {entry.stage}, due {entry.due}, now {now}")
        if job.fence <= self.fence or job.starts != entry.starts + 1:
            was = f"fence {self.fence} in the queue and {entry.starts} starts"
            self.journal.violated("I4", f"{entry.id} has fence {job.fence} and {job.starts} starts after {was}")
        self.fence, entry.starts = job.fence, job.starts
        if (job.attempts_made, job.stalls) != (entry.made, entry.stalls):
            seen, true = (job.attempts_made, job.stalls), (entry.made, entry.stalls)
            self.journal.violated("I6", f"{entry.id} counts {seen} attempts and stalls, and made {true}")
        if job.data != entry.data:
            self.journal.violated("I2", f"{entry.id} came back with other data")
        if entry.group:
            self._take_turn(entry, now)
        if job.suspect != entry.suspect:
            self.journal.violated("G6", f"{entry.id} is suspect={entry.suspect} and was handed out as {job.suspect}")
        entry.stage, entry.fence, entry.token, entry.deadline = Stage.ACTIVE, job.fence, claim.token, now + claim.lease
        entry.worker, entry.claimed_at, self.lease = claim.worker, self._clock.monotonic(), claim.lease
        entry.progress, self.last_claim = None, entry.claimed_at
        entry.alone, entry.max_stalls, entry.cancelling, entry.suspect = job.suspect, claim.max_stalls, None, False

    def settle(self, settlement: Settlement, now: int) -> Verdict:
        """The verdict that this settlement must get; if it is OK, it counts."""
        entry = self.find(settlement.lease.id)
        if entry is None:
            return Verdict.MISSING
        if not entry.held(settlement.lease.token, now):
            return Verdict.LOST
        self._check_fence(entry, settlement.outcome)
        self._apply(entry, settlement.outcome, now)
        if entry.made > entry.attempts:
            self.journal.violated("I6", f"{entry.id} made {entry.made} of {entry.attempts} attempts")
        return Verdict.OK

    def _check_fence(self, entry: Entry, outcome: Outcome) -> None:
        fence = fence_of(outcome)
        if fence is not None and fence != entry.fence:
            self.journal.violated("I4", f"{entry.id} is at fence {entry.fence} and was settled by fence {fence}")
        if type(outcome) is Completed and (entry.script.nonce, entry.fence) not in self.journal.ended:
            self.journal.violated("I2", f"{entry.id} was completed before its handler had returned")

    def _apply(self, entry: Entry, outcome: Outcome, now: int) -> None:
        if entry.cancelling is not None and isinstance(outcome, Retried | Snoozed | Released):
            outcome = Cancelled(entry.cancelling)  # it was to stop, and so does not run again
        if isinstance(outcome, Retried) and entry.made + 1 >= entry.attempts:
            outcome = Failed(outcome.failure)
        match outcome:
            case Completed():
                entry.made += 1
                self.end(entry, State.COMPLETED)
            case Failed():
                entry.made += 1
                self.end(entry, State.FAILED)
                self._bury(entry)
            case Cancelled():
                entry.made += 1
                self.end(entry, State.FAILED)
            case Retried(_, delay):
                entry.made += 1
                self._again(entry, delay, now)
            case Snoozed(delay):
                entry.causes += 1
                self.delay(entry, now + delay)
            case Released():
                self._again(entry, 0, now)
                entry.suspect = entry.alone  # it has not shown that it is innocent
            case Rested():
                raise AssertionError(f"{entry.id} was parked, and no script asks for that")

    def _again(self, entry: Entry, delay: int, now: int) -> None:
        entry.causes += 1
        if delay:
            self.delay(entry, now + delay)
        else:
            self.ready(entry)

    def end(self, entry: Entry, ending: State) -> None:
        entry.finishes += 1
        entry.ending = ending
        entry.stage = Stage.ENDED if entry.keeps[ending] else Stage.GONE
        entry.rule = ending.value
        if entry.finishes > entry.acceptances:
            self.journal.violated("I3", f"{entry.id} ended {entry.finishes} times, taken on {entry.acceptances} times")

    def stall(self, entry: Entry) -> bool:
        """A lease ran out. Whether that ends the job."""
        entry.stalls += 1
        entry.causes += 1
        guilty = entry.stalls > entry.max_stalls and (entry.alone or entry.max_stalls == 0)
        if guilty or entry.cancelling is not None:
            self.end(entry, State.FAILED)
            if entry.cancelling is None:
                self._bury(entry)
            return True
        self.ready(entry)
        entry.suspect = True
        return False

    def _bury(self, entry: Entry) -> None:
        """A job that failed and is not kept is a dead letter; of two of one id the newer."""
        if entry.stage is Stage.GONE:
            self.letters[entry.id] = entry

    def replay(self, job_id: str, attempts: int | None) -> bool:
        """Back into its queue, as if it had tried nothing; unless its id is taken."""
        if job_id not in self.letters or self.find(job_id) is not None:
            return False
        entry = self.letters.pop(job_id)
        self.by_id[job_id] = entry
        entry.starts, entry.suspect, entry.cancelling = 0, False, None
        entry.attempts = attempts or entry.attempts
        self.rerun(entry)
        self.journal.tally["dead letter replayed"] += 1
        return True

    def rerun(self, entry: Entry) -> None:
        self.ready(entry)
        entry.late = True
        entry.made = entry.stalls = 0
        entry.acceptances += 1
        entry.causes += 1

    def remove(self, entry: Entry, rule: str) -> None:
        entry.stage, entry.rule = Stage.GONE, rule
