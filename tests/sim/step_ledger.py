"""What must be true of durable steps: a model of every job's rows, signals and rests, kept by effects alone.

The rows are S1 to S11 of `docs/capabilities.md`. Each effect on the store is put beside what the model says of it, and
each claim beside the rows that the model has. What a run may believe is what its claim and its own calls brought.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from tests.sim.journal import Journal
from tests.sim.plan import QUEUE
from tests.sim.remote_store import Watch
from tests.sim.store import SimStore
from toril.codec.steps import load_received, load_step
from toril.errors import NotFound
from toril.model import (
    AddOutcome,
    Call,
    Claimed,
    Completed,
    DeliveredSignal,
    Failed,
    Lease,
    NewSignal,
    Outcome,
    Released,
    Rest,
    Rested,
    RestReason,
    Retried,
    SignalOutcome,
    SignalWait,
    Snoozed,
    StepAnswer,
    StepKind,
    StepReport,
    StepRow,
    StepVerdict,
    Verdict,
    letter_id,
)
from toril.model.states import State
from toril.runtime.clock import Clock
from toril.store.engine import Store

__all__ = ["Run", "StepJob", "StepWatch"]

T = TypeVar("T")

_GIVES_WAY: Final = (StepKind.FAILED, StepKind.RETRY)
_PASSES: Final = (StepKind.SLEEP, StepKind.RETRY)  # whose time passes if somebody promotes the job


@dataclass(frozen=True, slots=True)
class Sent:
    """A signal that is there, and that nobody has read."""

    wait: SignalWait
    payload: str
    id: str | None
    at: int
    until: int | None = None


@dataclass
class StepJob:
    """One job, as the effects tell."""

    id: str
    group: str | None = None
    rows: dict[str, StepRow] = field(default_factory=dict)
    seq: int = 0
    reruns: int = 0
    epoch: int = 0
    attempts: int = 0
    stalls: int = 0
    token: str | None = None
    deadline: int = 0
    reasons: tuple[RestReason, ...] | None = None  # why it rests, if it does
    for_children: bool = False
    come: bool = False  # what it was to rest for had come already
    ready_at: int = 0  # until when it was put off otherwise
    most_attempts: int = 1
    inbox: list[Sent] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)  # of signals that were read
    stopping: bool = False
    rewound: bool = False
    end: str | None = None

    @property
    def until(self) -> int | None:
        """When its rest is over at the latest."""
        times = [each.until for each in self.reasons or () if each.until is not None]
        return min(times, default=None)

    def rests_for(self, wait: SignalWait) -> bool:
        return any(wait in each.signals for each in self.reasons or ())

    def run_again(self, *, anew: int | None) -> None:
        self.reruns += 1
        self.attempts = self.stalls = self.ready_at = 0
        self.reasons, self.end, self.stopping = None, None, False
        if anew is not None:
            self.epoch += 1
            self.rows = {key: row for key, row in self.rows.items() if row.seq < anew}


@dataclass(eq=False)
class Run:
    """One run of the handler. `rows` is what its claim brought and what its own calls have recorded since."""

    job: StepJob
    token: str
    rows: dict[str, StepRow]
    reruns: int
    attempt: int
    under_way: Counter[str] = field(default_factory=Counter)
    at_work: int = 0  # branches that do something outside of steps
    failures: dict[str, str] = field(default_factory=dict)  # keys and reasons
    caught: list[str] = field(default_factory=list)  # keys of steps whose failure the handler has caught
    told_to_rest: bool = False
    signal: Any = None

    def counts(self, row: StepRow | None) -> bool:
        """Whether a failure, or tries, are of this attempt."""
        return row is not None and (row.reruns, row.attempt) == (self.reruns, self.attempt)

    def has_failed(self, key: str) -> bool:
        """Whether it is recorded that this step has failed in this attempt."""
        row = self.rows.get(key)
        return row is not None and row.kind is StepKind.FAILED and self.counts(row)


class StepWatch(Watch):
    """Follows the jobs of the queue whose handlers have steps."""

    def __init__(self, journal: Journal, store: SimStore, clock: Clock) -> None:
        super().__init__(journal, store, clock)
        self.lease = 0  # ms, of every claim
        self.jobs: dict[str, StepJob] = {}
        self.kept: defaultdict[SignalWait, list[Sent]] = defaultdict(list)
        self._sent: dict[tuple[SignalWait, str], int] = {}  # until when the ids of signals by key are known
        self._runs: dict[tuple[str, str], Run] = {}
        self._awaited: dict[SignalWait, str] = {}
        self._read: set[str] = set()  # payloads, each of which is sent once
        self._ahead = 0
        self._view: Store | None = None
        self._epoch = -1

    # what runs do and see

    def run_of(self, lease: Lease, signal: Any) -> Run:
        run = self._runs[lease.id, lease.token]
        run.signal = signal
        return run

    def begins(self, run: Run, key: str, caught: Iterable[str]) -> None:
        """The function of a step is called."""
        row = run.rows.get(key)
        self._count("steps run")
        if row is not None and row.kind is StepKind.DONE:
            self.journal.violated("S1", f"step {key} of {run.job.id} begins, and is recorded: {row}")
        if row is not None and row.kind is StepKind.FAILED and run.counts(row):
            self.journal.violated("S8", f"step {key} of {run.job.id} begins, and its failure is recorded: {row}")
        if row is not None and row.kind is StepKind.RETRY and run.counts(row) and (row.until or 0) > self._time():
            self.journal.violated("S6", f"step {key} of {run.job.id} is tried again before its time: {row}")
        for each in caught:
            if not run.has_failed(each):
                text = f"step {key} of {run.job.id} begins, and the failure of {each} before it is not recorded"
                self.journal.violated("S8", text)
        if run.told_to_rest:
            self.journal.violated("S11", f"step {key} of {run.job.id} begins, and the job was told to rest")
        run.under_way[key] += 1

    def ended(self, run: Run, key: str, *, cut: bool) -> None:
        """It has returned or raised."""
        run.under_way[key] -= 1
        if cut:
            self.journal.violated("S11", f"step {key} of {run.job.id} was cut, and nobody asked its job to stop")

    def returned(self, run: Run, key: str, value: object, tag: str) -> None:
        """The handler has the value of a step. `tag` is what its own function would have returned."""
        row = run.rows.get(key)
        if row is None or row.kind is not StepKind.DONE or json.loads(row.text) != value:
            self.journal.violated("S2", f"step {key} of {run.job.id} returns {value}, and is recorded as {row}")
        if str(value).partition("|")[0] != tag:
            self.journal.violated("S2", f"step {key} of {run.job.id} returns {value}, which is not {tag}'s")

    def raised(self, run: Run, key: str, reason: str) -> None:
        """The handler has the failure of a step."""
        row = run.rows.get(key)
        if row is not None and row.kind is StepKind.FAILED and run.counts(row):
            told = json.loads(row.text)[1]
        else:
            told = run.failures.get(key)
        if told != reason:
            self.journal.violated("S2", f"step {key} of {run.job.id} fails for {reason!r}, and {told!r} was first")

    def slept(self, run: Run, key: str) -> None:
        """The handler goes on after a sleep."""
        row = run.rows.get(key)
        if row is None or row.kind is not StepKind.SLEEP:
            self.journal.violated("S2", f"sleep {key} of {run.job.id} is over, and is recorded as {row}")
        elif (row.until or 0) > self._time():
            self.journal.violated("S6", f"sleep {key} of {run.job.id} ends early, at {self._time()}: {row}")

    def waited(self, run: Run, key: str, name: str | None, payload: object) -> None:
        """The handler goes on after a wait; `name` is None if the time was over."""
        row = run.rows.get(key)
        if row is None or row.kind is not StepKind.RECEIVED:
            self.journal.violated("S2", f"wait {key} of {run.job.id} is over, and is recorded as {row}")
            return
        found = load_received(row.text)
        told = None if found is None else (found.signal.name, json.loads(found.payload))
        if told != (None if name is None else (name, payload)):
            self.journal.violated("S2", f"wait {key} of {run.job.id} has {name} {payload}, and is recorded as {row}")

    def numbered(self, run: Run, key: str, number: int) -> None:
        row = run.rows.get(key)
        if row is None or row.kind is not StepKind.VERSION or row.text != str(number):
            self.journal.violated("S2", f"version {key} of {run.job.id} is {number}, and is recorded as {row}")

    # what the store does

    def refused(self, node: str, what: str, call: Call | None, error: Exception) -> None:
        if what == "steps.rewind" and isinstance(error, NotFound):
            self.note(node, what, "no such row")
            return
        super().refused(node, what, call, error)

    def saw(self, node: str, what: str, args: tuple[Any, ...], call: Call | None, answer: Any) -> None:
        self._time()
        if call is None or self._newest.get(call.sender) != call.seq:
            self._apply(what, args, answer)
        self._compare_rests(what)
        super().saw(node, what, args, call, answer)

    def _apply(self, what: str, args: tuple[Any, ...], answer: Any) -> None:
        if what == "renew":
            self._renewed(args[0], answer)
        elif what == "steps.receive":
            self._received(args[0], args[1], args[2], answer)
        elif what == "dead_letters.replay":
            self._controlled(what, answer.done)
        elif what == "dead_letters.discard":
            return
        elif args and args[0] == QUEUE:
            self._apply_here(what, args, answer)

    def _apply_here(self, what: str, args: tuple[Any, ...], answer: Any) -> None:
        match what:
            case "add":
                self._stored(args[1], answer)
            case "exchange":
                self._exchanged(args[1], answer)
            case "recover":
                self._recovered(answer)
            case "steps.record":
                for report, each in zip(args[1], answer, strict=True):
                    self._recorded(report, each)
            case "steps.deliver":
                for signal, each in zip(args[1], answer, strict=True):
                    self._delivered(signal, each)
            case "steps.rewind":
                self._rewound(args[1], args[2], answer.done)
            case "promote" | "retry" | "remove" | "cancel":
                self._controlled(what, answer.done, answer.asked)
            case "drain" | "clean":
                for each in answer.ids:
                    self._gone(each, what)
            case _:
                pass

    def _stored(self, jobs: Sequence[Any], answers: Sequence[Any]) -> None:
        for new, answer in zip(jobs, answers, strict=True):
            if answer.outcome in {AddOutcome.ADDED, AddOutcome.REPLACED}:
                self.jobs[answer.id] = StepJob(answer.id, new.group)
            if answer.outcome is AddOutcome.REPLACED:
                self._look_for_removed()

    def _look_for_removed(self) -> None:
        """Somebody took the place of another."""
        alive = [job for job in self.jobs.values() if job.end is None]
        found = self._ask(self.store_view().jobs(QUEUE, [job.id for job in alive]))
        for job, row in zip(alive, found, strict=True):
            if row is None:
                self._gone(job.id, "add")

    def _gone(self, identity: str, why: str) -> None:
        """It was removed by somebody who takes only what has not started."""
        job = self.jobs.get(identity)
        if job is None:
            return
        if job.end is None and (job.reasons is not None or job.token is not None):
            self.journal.violated("S7", f"{why} removes {identity}, which rests or runs")
        self._end(job, "removed")

    def _exchanged(self, batch: Sequence[Any], answer: Any) -> None:
        rested: list[tuple[StepJob, bool]] = []
        for settlement, verdict in zip(batch, answer.verdicts, strict=True):
            job = self.jobs.get(settlement.lease.id)
            if job is not None and verdict is Verdict.OK:
                self._must_hold(job, settlement.lease, "settled")
                self._watch_end(job, settlement.lease, settlement.outcome)
                if (come := self._settled(job, settlement.outcome)) is not None:
                    rested.append((job, come))
        for each in answer.unstarted:
            if each.id in self.jobs:
                self._end(self.jobs[each.id], "failed")
        for claimed in answer.jobs:
            self._claimed(claimed)
        resting = self._resting() if rested else set[str]()
        for job, come in rested:
            self._must_rest(job, come, job.id in resting)

    def _watch_end(self, job: StepJob, lease: Lease, outcome: Outcome) -> None:
        """What is under way in the run that ends now."""
        run = self._runs[lease.id, lease.token]
        if isinstance(outcome, Rested) and (+run.under_way or run.at_work):
            self.journal.violated("S11", f"{job.id} rests, and {dict(+run.under_way)} are under way, {run.at_work}")
        if isinstance(outcome, Rested) and (left := [key for key in run.caught if not run.has_failed(key)]):
            self.journal.violated("S8", f"{job.id} rests, and the failures of {left} are not recorded")
        if run.told_to_rest and isinstance(outcome, Completed | Failed | Retried):
            self.journal.violated("S6", f"{job.id} was told to rest, and ends as {outcome}")
        asked = run.signal is None or run.signal.aborted
        if isinstance(outcome, Completed | Retried | Failed) and +run.under_way and not asked:
            self.journal.violated("S11", f"{job.id} ends as {outcome}, and {dict(+run.under_way)} are under way")

    def _settled(self, job: StepJob, outcome: Outcome) -> bool | None:
        """For one that is to rest: whether something has come that it would rest for."""
        job.token = None
        job.ready_at = 0
        if job.stopping and isinstance(outcome, Retried | Snoozed | Released | Rested):
            self._end(job, "cancelled")
            return None
        match outcome:
            case Completed():
                job.attempts += 1
                job.inbox.clear()
                self._end(job, "completed")
            case Retried(_, delay) if job.attempts + 1 < job.most_attempts:
                job.attempts += 1
                job.ready_at = self.now() + delay
            case Retried() | Failed():
                job.attempts += 1
                self._end(job, "failed")
            case Snoozed(delay):
                job.ready_at = self.now() + delay
            case Rested(rests=rests):
                return self._rested(job, rests)
            case Released():
                pass
            case _:
                self._end(job, "cancelled")
        return None

    def _rested(self, job: StepJob, rests: Sequence[Rest]) -> bool:
        job.stalls = 0
        reasons = []
        for rest in rests:
            row = job.rows.get(rest.key)
            if row is None or (row.kind in _GIVES_WAY and not rest.recorded):
                until = None if rest.delay is None else self.now() + rest.delay
                text = rest.text
                row = self._write(job, None, rest.key, rest.kind, until, text, rest.digest)
            until = row.until if row.kind is rest.kind else self.now()
            reasons.append(RestReason(rest.key, rest.kind, until, rest.signals))
            for wait in rest.signals:
                if wait.key is not None:
                    self._awaited[wait] = job.id
        job.reasons = tuple(reasons)
        job.for_children = any(rest.kind is StepKind.CALLED for rest in rests)
        waits = {wait for rest in rests for wait in rest.signals}
        late = any(each.until is not None and each.until <= self.now() for each in reasons)
        there = any(sent.wait in waits for sent in job.inbox) or any(self._kept(wait) for wait in waits)
        job.come = late or there
        return job.come

    def _is_over(self, job: StepJob) -> bool:
        return job.until is not None and job.until <= self._time()

    def _must_rest(self, job: StepJob, come: bool, resting: bool) -> None:
        if come and resting:
            self.journal.violated("S4", f"{job.id} rests, and what it rests for has come: {job.reasons}")
        if not come and not resting and job.reasons is not None and not job.for_children:
            self.journal.violated("S6", f"{job.id} does not rest, and nothing has come: {job.reasons}")
        if not resting:
            job.reasons = None

    def _claimed(self, claimed: Claimed) -> None:
        job = self.jobs.get(claimed.lease.id)
        if job is None:
            job = self.jobs[claimed.lease.id] = StepJob(claimed.lease.id)
        now = self.now()
        if self._time() < job.ready_at:
            self.journal.violated("S5", f"{job.id} was put off until {job.ready_at}, and runs at {now}")
        told = (claimed.attempts_made, claimed.stalls)
        if told != (job.attempts, job.stalls):
            text = f"{job.id} runs after {told} attempts and stalls, and had {job.attempts, job.stalls}"
            self.journal.violated("S8", text)
        if job.end is not None:
            self.journal.violated("S10", f"{job.id} runs, and was {job.end}")
        if job.reasons is not None and not (job.come or job.for_children or self._is_over(job)):
            self.journal.violated("S6", f"{job.id} runs, and nothing has come that it rests for: {job.reasons}")
        job.reasons = None
        self._compare_rows(job, claimed)
        job.most_attempts = claimed.max_attempts
        job.token, job.rewound = claimed.lease.token, False
        job.deadline = now + self.lease
        self._runs[job.id, claimed.lease.token] = Run(
            job, claimed.lease.token, dict(job.rows), job.reruns, job.attempts
        )

    def _compare_rows(self, job: StepJob, claimed: Claimed) -> None:
        told = claimed.steps
        reruns, epoch = (0, 0) if told is None else (told.reruns, told.epoch)
        if (reruns, epoch) != (job.reruns, job.epoch):
            text = f"{job.id} has reruns and epoch {reruns, epoch}, and not {job.reruns, job.epoch}"
            self.journal.violated("S8", text)
        rows = {} if told is None else {key: load_step(key, text) for key, text in told.rows.items()}
        if rows.keys() != job.rows.keys():
            text = f"{job.id} has the rows {sorted(rows)}, and not {sorted(job.rows)}"
            self.journal.violated("S9" if job.rewound else "S2", text)
        for key in rows.keys() & job.rows.keys():
            found, right = rows[key], job.rows[key]
            if found is None or replace(found, until=right.until, reruns=right.reruns, attempt=right.attempt) != right:
                self.journal.violated("S2", f"{job.id} has the row {found}, and not {right}")
            elif found.until != right.until:
                self.journal.violated("S6", f"{job.id} has the row {found}, whose time is {right.until}")
            elif found != right:
                self.journal.violated("S8", f"{job.id} has the row {found}, which is of {right.reruns, right.attempt}")

    def _renewed(self, leases: Sequence[Lease], answer: Any) -> None:
        lost = set(answer.lost)
        for lease in leases:
            job = self.jobs.get(lease.id)
            if job is not None and lease not in lost and lease.queue == QUEUE:
                self._must_hold(job, lease, "renewed")
                job.deadline = self.now() + self.lease

    def _recovered(self, answer: Any) -> None:
        for identity in (*answer.returned, *answer.failed, *answer.cancelled):
            job = self.jobs.get(identity)
            if job is not None:
                job.token = None
                job.stalls += 1
                self._count("jobs stalled")
        for identity in (*answer.failed, *answer.cancelled):
            if identity in self.jobs:
                self._end(self.jobs[identity], "failed")

    def _must_hold(self, job: StepJob, lease: Lease, what: str) -> None:
        if job.token != lease.token or self.now() >= job.deadline:
            self.journal.violated(
                "S3", f"{job.id} is {what} by {lease.token}, held by {job.token} until {job.deadline}"
            )

    # rows

    def _write(
        self, job: StepJob, lease: Lease | None, key: str, kind: StepKind, until: int | None, text: str,
        digest: str | None, took: int = 0,
    ) -> StepRow:  # fmt: skip
        job.seq += 1
        row = StepRow(key, kind, job.seq, self.now(), took, digest, job.reruns, job.attempts, until, text)
        job.rows[key] = row
        if lease is not None and (run := self._runs.get((job.id, lease.token))) is not None:
            run.rows[key] = row
        self._count(f"row {kind.value}")
        return row

    def _recorded(self, report: StepReport, answer: StepAnswer) -> None:
        job = self.jobs.get(report.lease.id)
        if job is None or not self._is_accepted(report.key, answer):
            return
        self._must_hold(job, report.lease, f"given the row {report.key}")
        before = job.rows.get(report.key)
        unfit = before is not None and before.kind is StepKind.RECEIVED and report.kind is StepKind.WAIT
        if before is not None and before.kind not in _GIVES_WAY and not (unfit and report.until is not None):
            self._must_answer(answer, before)
            return
        until = report.until if report.delay is None else self.now() + report.delay
        row = self._write(job, report.lease, report.key, report.kind, until, report.text, report.digest, report.took)
        if answer.row is not None:
            self._must_answer(answer, row)

    def _is_accepted(self, key: str, answer: StepAnswer) -> bool:
        """No job here has many rows, or waits for the key of another."""
        if answer.verdict in {StepVerdict.FULL, StepVerdict.CLASH}:
            self.journal.violated("S2", f"the store refuses {key}: {answer}")
        return answer.verdict is StepVerdict.OK

    def _must_answer(self, answer: StepAnswer, right: StepRow) -> None:
        found = None if answer.row is None else load_step(right.key, answer.row)
        if found != right:
            self.journal.violated("S2", f"the store answers {found}, and the row is {right}")

    # signals

    def _kept(self, wait: SignalWait) -> list[Sent]:
        """Those by key that no job was there for."""
        return [sent for sent in self.kept.get(wait, ()) if (sent.until or 0) > self.now()]

    def _received(self, lease: Lease, key: str, waits: Sequence[SignalWait], answer: StepAnswer) -> None:
        job = self.jobs.get(lease.id)
        if job is None or not self._is_accepted(key, answer):
            return
        self._must_hold(job, lease, f"looking for the signals of {key}")
        before = job.rows.get(key)
        if before is not None and before.kind not in {StepKind.WAIT, *_GIVES_WAY}:
            self._must_answer(answer, before)
            return
        until = before.until if before is not None and before.kind is StepKind.WAIT else None
        there = [sent for wait in waits for sent in (self._kept(wait) or [s for s in job.inbox if s.wait == wait])[:1]]
        found = None if answer.row is None else load_step(key, answer.row)
        for wait in waits:
            if wait.key is not None:
                self._awaited[wait] = job.id
        if found is None:
            if there:
                self.journal.violated("S5", f"{job.id} finds no signal for {key}, and {there} are there")
            if until is not None and until <= self.now():
                self.journal.violated("S6", f"{job.id} waits on for {key}, and its time was over at {until}")
            return
        for wait in waits:
            if self._awaited.get(wait) == job.id:
                del self._awaited[wait]
        row = self._write(job, lease, key, StepKind.RECEIVED, until, found.text, found.digest)
        self._must_answer(answer, row)
        self._read_now(job, key, there, until, found)

    def _read_now(self, job: StepJob, key: str, there: list[Sent], until: int | None, found: StepRow) -> None:
        received = load_received(found.text)
        if received is None:
            if there:
                self.journal.violated("S5", f"the wait {key} of {job.id} is over, and {there} are there")
            if until is None or until > self.now():
                self.journal.violated("S6", f"the wait {key} of {job.id} is over before {until}, at {self.now()}")
            return
        self._count("signals received")
        oldest = min((sent.at for sent in there), default=0)
        sent = next((each for each in there if each.payload == received.payload and each.at == oldest), None)
        if sent is None or received.payload in self._read:
            self.journal.violated("S5", f"{job.id} reads {received} for {key}, and {there} are there")
            return
        self._read.add(received.payload)
        (self.kept[sent.wait] if sent in self.kept[sent.wait] else job.inbox).remove(sent)
        if sent.id is not None:
            job.ids.add(sent.id)

    def _delivered(self, signal: NewSignal, answer: DeliveredSignal) -> None:
        self._count(f"signal {answer.outcome.value}")
        wait = SignalWait(signal.name, signal.key)
        sent = Sent(wait, signal.payload, signal.id, self.now())
        if signal.key is not None and signal.id is not None and self._sent.get((wait, signal.id), 0) > self.now():
            right = SignalOutcome.DUPLICATE
        elif signal.key is not None and wait not in self._awaited:
            right = self._keep(signal, sent)
        else:
            job = self.jobs.get(self._awaited.get(wait, "") if signal.job_id is None else signal.job_id)
            right = SignalOutcome.MISSING if job is None else self._deliver(job, wait, sent)
        if signal.key is not None and signal.id is not None and right in {SignalOutcome.KEPT, SignalOutcome.WOKEN}:
            self._sent[wait, signal.id] = self.now() + signal.ttl
        if right is not answer.outcome and {right, answer.outcome} != {SignalOutcome.MISSING, SignalOutcome.ENDED}:
            self.journal.violated("S5", f"{signal} was {answer.outcome}, and should be {right}")

    def _keep(self, signal: NewSignal, sent: Sent) -> SignalOutcome:
        self.kept[sent.wait].append(replace(sent, until=self.now() + signal.ttl))
        return SignalOutcome.KEPT

    def _deliver(self, job: StepJob, wait: SignalWait, sent: Sent) -> SignalOutcome:
        if job.end is not None:
            return SignalOutcome.ENDED
        if sent.id is not None and (sent.id in job.ids or any(sent.id == each.id for each in job.inbox)):
            return SignalOutcome.DUPLICATE
        job.inbox.append(sent)
        if not job.rests_for(wait):
            return SignalOutcome.KEPT
        job.reasons = None
        return SignalOutcome.WOKEN

    # what people do

    def _rewound(self, identity: str, to: str | None, done: Sequence[str]) -> None:
        job = self.jobs.get(identity)
        if job is None or not done:
            return
        self._count("jobs rewound")
        if job.token is not None and self.now() < job.deadline:
            self.journal.violated("S9", f"{identity} was rewound while it ran")
        self._unregister(job)
        first = 0 if to is None or to not in job.rows else job.rows[to].seq
        job.run_again(anew=first)
        job.rewound = True

    def _controlled(self, what: str, done: Sequence[str], asked: Sequence[str] = ()) -> None:
        by_letter = {letter_id(QUEUE, identity): job for identity, job in self.jobs.items()}
        for identity in done:
            job = self.jobs.get(identity) or by_letter.get(identity)
            if job is None:
                continue
            self._count(f"{what} done")
            match what:
                case "promote":
                    self._promoted(job)
                case "retry" | "dead_letters.replay":
                    job.run_again(anew=0 if job.end == "completed" else None)
                case "remove":
                    self._end(job, "removed")
                case _:
                    self._end(job, "cancelled")
        for identity in asked:
            if identity in self.jobs:
                self.jobs[identity].stopping = True

    def _promoted(self, job: StepJob) -> None:
        for each in job.reasons or ():
            row = job.rows.get(each.key)
            if each.kind in _PASSES and row is not None and row.kind is each.kind:
                job.rows[each.key] = replace(row, until=min(row.until or 0, self.now()))
        job.reasons, job.ready_at = None, 0

    def _end(self, job: StepJob, how: str) -> None:
        self._count(f"jobs {how}")
        self._unregister(job)
        job.end, job.token, job.reasons = how, None, None

    def _unregister(self, job: StepJob) -> None:
        for wait in [wait for wait, owner in self._awaited.items() if owner == job.id]:
            del self._awaited[wait]

    # looking into the store

    def store_view(self) -> Store:
        """The store as it is now, for whoever only looks."""
        if self._view is None or self._epoch != self._store.epoch:
            self._view, self._epoch = self._store.view(), self._store.epoch
        return self._view

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        """The answer to a question that the simulated store has at once."""
        try:
            question.send(None)
        except StopIteration as answered:
            found: T = answered.value
            return found
        raise AssertionError("the store did not answer at once")

    def _resting(self) -> set[str]:
        rows = self._ask(self.store_view().steps.resting(QUEUE, limit=100)).items
        for row in rows:
            if row.rest is None or row.state not in {State.DELAYED, State.WAITING_CHILDREN}:
                self.journal.violated("S7", f"{row.id} is said to rest, and is {row.state} with {row.rest}")
        return {row.id for row in rows}

    def _compare_rests(self, what: str) -> None:
        """Those that rest are those that should (S7)."""
        if not self._store.up:
            return
        resting = self._resting()
        for job in self.jobs.values():
            if job.id in resting and job.reasons is None:
                self.journal.violated("S7", f"after {what}, {job.id} rests, and nothing has it rest: {job}")
            if job.reasons is None or job.id in resting:
                continue
            if not job.for_children and not self._is_over(job):
                self.journal.violated("S6", f"after {what}, {job.id} rests no more, and nothing has come: {job}")
            job.reasons = None

    def look(self) -> None:
        for text in self._store.contradictions():
            self.journal.violated("I1", text)
        if self._store.up:
            self._look_at_seats()

    def _look_at_seats(self) -> None:
        """No job that rests has the seat of its group."""
        for group in self._ask(self.store_view().groups.page(QUEUE)).items:
            members = [job for job in self.jobs.values() if job.group == group.name and job.end is None]
            may = sum(job.reasons is None for job in members)  # also those that wait to run alone, or for their retry
            if group.running > may:
                self.journal.violated("S7", f"{group.running} run of group {group.name}, and {may} may: {members}")

    def _time(self) -> int:
        """The store's time, as if its clock had never been set back."""
        monotonic = round(self._clock.monotonic() * 1000)
        self._ahead = max(self._ahead, self.now() - monotonic)
        return monotonic + self._ahead

    def _count(self, what: str) -> None:
        self.journal.tally[what] += 1
