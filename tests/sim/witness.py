"""Sees every effect on the store, in order, and holds the store's answers against the ledger."""

import json
from collections.abc import Sequence
from typing import Any

from tests.sim.clock import EPOCH
from tests.sim.conduct import Conduct
from tests.sim.journal import Journal
from tests.sim.ledger import Entry, Ledger, Stage
from tests.sim.script import QUEUE
from tests.sim.store import SimStore
from toril.model import (
    Added,
    AddOutcome,
    Call,
    Claim,
    DataUpdate,
    Exchange,
    Lease,
    NewJob,
    Progress,
    Recovered,
    Renewed,
    Report,
    Settlement,
    Verdict,
)
from toril.runtime.clock import Clock

__all__ = ["Witness"]


class Witness:
    """The checks that need no end: each effect must follow from those before it."""

    def __init__(self, journal: Journal, store: SimStore, clock: Clock, *, every: int = 1) -> None:
        self.journal = journal
        self.ledger = Ledger(journal, clock)
        self.conduct = Conduct(journal, self.ledger, store.untold)
        self.effects = 0
        self._store = store
        self._clock = clock
        self._every = every
        self._newest: dict[str, int] = {}
        self._answers: dict[str, object] = {}
        self._tokens: set[str] = set()

    def now(self) -> int:
        return self._clock.now()

    def note(self, node: str, what: str, text: str) -> None:
        self.journal.note(f"{self.now() - EPOCH} {node} {what} {text}")

    def saw(self, node: str, what: str, text: str) -> None:
        """An effect took place. Now and then the store's records are held against each other."""
        self.note(node, what, text)
        self.effects += 1
        if self.effects % self._every == 0:
            self.look()

    def look(self) -> None:
        for text in self._store.contradictions():
            self.journal.violated("I1", text)

    def must_refuse(self, call: Call | None) -> bool:
        """Whether a newer call of the same sender has been answered."""
        return call is not None and call.seq < self._newest.get(call.sender, call.seq)

    def refused(self, node: str, what: str, call: Call | None, error: Exception) -> None:
        """The store did not take a call. It may only refuse one that came too late."""
        self.note(node, what, f"{_named(call)} refused")
        if self.must_refuse(call):
            self.journal.tally["late call refused"] += 1
        else:
            self.journal.violated("error", f"{what} {_named(call)} raised {error!r}")

    def is_new(self, call: Call | None, answer: object) -> bool:
        """Whether this answer tells of a new effect; if the call was answered before, it must be the same answer."""
        if call is None:
            return True
        if self.must_refuse(call):
            self.journal.violated("G2", f"{_named(call)} took effect after {self._newest[call.sender]}")
        if self._newest.get(call.sender) == call.seq:
            self.journal.tally["resent call answered from memory"] += 1
            if self._answers[call.sender] != answer:
                self.journal.violated("G2", f"{_named(call)} was first answered otherwise: {answer}")
            return False
        self._newest[call.sender], self._answers[call.sender] = call.seq, answer
        return True

    def added(self, node: str, jobs: Sequence[NewJob], call: Call | None, answers: list[Added]) -> None:
        if self.is_new(call, tuple(answers)):
            for job, answer in zip(jobs, answers, strict=True):
                if answer.outcome is AddOutcome.ADDED:
                    self.ledger.add(job, answer.id, self.now())
                    self._expect("I1", self.ledger.by_id[answer.id].state, answer.state, f"the state of {answer.id}")
                elif job.id is None or self.ledger.find(job.id) is None:
                    self.journal.violated("I2", f"{answer.id} was called {answer.outcome} and there is no such job")
        self.saw(node, "add", f"{_named(call)} {[f'{answer.id} {answer.outcome}' for answer in answers]}")

    def exchanged(
        self, node: str, batch: Sequence[Settlement], claim: Claim, call: Call | None, answer: Exchange
    ) -> None:
        ids = tuple(job.lease.id for job in answer.jobs)
        if self._is_new_exchange(call, claim, ids, answer):
            due = [self._settle(settlement, answer.now) for settlement in batch]
            self._judge(batch, due, answer.verdicts)
            for settlement, verdict in zip(batch, answer.verdicts, strict=True):
                self.conduct.settled(claim.worker, settlement, verdict)
            self._claimed(claim, answer)
        settled = [f"{s.lease.id} {type(s.outcome).__name__} {v}" for s, v in zip(batch, answer.verdicts, strict=True)]
        self.saw(node, "exchange", f"{_named(call)} {settled} {claim.token} {ids}")

    def _settle(self, settlement: Settlement, now: int) -> Verdict:
        entry = self.ledger.find(settlement.lease.id)
        if entry is not None and entry.held(settlement.lease.token, now):
            self.conduct.settling(settlement, entry)
        return self.ledger.settle(settlement, now)

    def _is_new_exchange(self, call: Call | None, claim: Claim, ids: tuple[str, ...], answer: Exchange) -> bool:
        """A repeated answer is the first one, without the jobs that were lost since."""
        facts = (answer.verdicts, answer.now, answer.wake_at, answer.blocked_by, answer.suspects, claim)
        if call is not None and self._newest.get(call.sender) == call.seq:
            first: Any = self._answers[call.sender]
            held = tuple(job for job in first[1] if self._holds(job, claim.token, self.now()))
            self._expect("G2", held, ids, f"what {_named(call)} still holds")
            self.conduct.withheld([Lease(QUEUE, job, claim.token) for job in first[1] if job not in held])
            return self.is_new(call, (facts, first[1]))
        return self.is_new(call, (facts, ids))

    def _holds(self, job_id: str, token: str, now: int) -> bool:
        entry = self.ledger.find(job_id)
        return entry is not None and entry.held(token, now)

    def _judge(self, batch: Sequence[Settlement], due: Sequence[Verdict], given: Sequence[Verdict]) -> None:
        for settlement, right, verdict in zip(batch, due, given, strict=True):
            lease = settlement.lease
            if right is not verdict:
                row = "I4" if verdict is Verdict.OK else "G2"
                self.journal.violated(row, f"settling {lease.id} by {lease.token} was {verdict}, must be {right}")
            elif verdict is not Verdict.OK:
                self.journal.tally["stale settlement refused"] += 1

    def _claimed(self, claim: Claim, answer: Exchange) -> None:
        ledger = self.ledger
        if claim.token in self._tokens:
            self.journal.violated("G2", f"token {claim.token} serves a second exchange")
        self._tokens.add(claim.token)
        if not claim.want:
            self._expect("I1", 0, len(answer.jobs), "jobs for a claim that wanted none")
            return
        ledger.promote_due(answer.now)
        ready = list(ledger.of(Stage.READY))
        room = 0 if ledger.paused else claim.want
        if ledger.concurrency is not None:
            room = min(room, max(0, ledger.concurrency - sum(1 for _ in ledger.of(Stage.ACTIVE))))
        suspects = sum(1 for entry in ready if entry.suspect)
        given = min(1, room) if claim.alone and suspects else min(room, ledger.startable(ready))
        self._expect("I1", given, len(answer.jobs), f"jobs handed out of {[entry.id for entry in ready]}")
        for job in answer.jobs:
            ledger.claim(job, claim, answer.now)
            self.conduct.claimed(job, claim)
            if job.suspect:
                self.journal.tally["suspect run alone"] += 1
                self._expect("G6", (True, 1), (claim.alone, len(answer.jobs)), f"the company of suspect {job.lease.id}")
        if len(answer.jobs) < claim.want and answer.blocked_by is None and room == claim.want:
            self._check_wake(answer, has_ready=any(not entry.suspect for entry in ledger.of(Stage.READY)))

    def _check_wake(self, answer: Exchange, *, has_ready: bool) -> None:
        due = min((entry.due for entry in self.ledger.of(Stage.DELAYED)), default=None)
        self._expect("I15", answer.now if has_ready else due, answer.wake_at, "when to come back")

    def extended(self, node: str, leases: Sequence[Lease], ttl: int, answer: Renewed) -> None:
        now, lost = self.now(), []
        stopped = []
        for lease in leases:
            entry = self.ledger.find(lease.id)
            if entry is None or not entry.held(lease.token, now):
                lost.append(lease)
                continue
            entry.deadline = now + ttl
            if entry.cancelling is not None:
                stopped.append((lease, entry.cancelling))
        self._expect("I4", tuple(lost), answer.lost, "leases that were lost")
        self._expect("I4", stopped, [(each.lease, each.reason) for each in answer.cancelled], "jobs to stop")
        self.journal.tally["renewal found the lease lost"] += len(lost)
        self.saw(node, "renew", f"{[lease.id for lease in leases]} lost {[lease.id for lease in answer.lost]}")

    def reported(self, node: str, reports: Sequence[Report], call: Call | None, answer: list[Verdict]) -> None:
        if self.is_new(call, tuple(answer)):
            for report, verdict in zip(reports, answer, strict=True):
                entry = self.ledger.find(report.lease.id)
                held = entry is not None and entry.held(report.lease.token, self.now())
                right = Verdict.OK if held else Verdict.MISSING if entry is None else Verdict.LOST
                self._expect("I4", right, verdict, f"the report on {report.lease.id}")
                self.journal.tally["stale report refused"] += not held
                if entry is not None and held and isinstance(report, DataUpdate):
                    entry.data = report.data
                if entry is not None and held and isinstance(report, Progress):
                    entry.progress = json.loads(report.value)
        self.saw(node, "report", f"{_named(call)} {[verdict.value for verdict in answer]}")

    def recovered(self, node: str, dead: Sequence[Lease], answer: Recovered) -> None:
        now = self.now()
        running = list(self.ledger.of(Stage.ACTIVE))
        claimed = {(lease.id, lease.token) for lease in dead}
        due = [entry for entry in running if entry.deadline <= now or (entry.id, entry.token) in claimed]
        self._expect("I1", sorted(entry.id for entry in due), sorted(answer.taken_back), "leases to take back")
        for entry in due:
            self._stalled(node, entry, now, answer)
        running = [entry for entry in running if entry.stage is Stage.ACTIVE]
        self._expect(
            "I15", min((entry.deadline for entry in running), default=None), answer.next_deadline, "the next deadline"
        )
        self.saw(node, "recover", f"{answer.returned} {answer.failed} {answer.cancelled}")

    def _stalled(self, node: str, entry: Entry, now: int, answer: Recovered) -> None:
        early, alone, cancelling = entry.deadline > now, entry.alone, entry.cancelling
        self.conduct.stalled(entry)
        if entry.id in answer.cancelled:
            self.conduct.cancelled(node, entry)
        ended = self.ledger.stall(entry)
        right = (ended and cancelling is None, ended and cancelling is not None)
        seen = (entry.id in answer.failed, entry.id in answer.cancelled)
        self._expect("I6", right, seen, f"whether the stall of {entry.id} failed or cancelled it")
        self.journal.tally["stall"] += 1
        self.journal.tally["dead worker's job taken back early"] += early
        self.journal.tally["failed for stalling alone"] += ended and alone and cancelling is None

    def _expect(self, row: str, right: object, seen: object, what: str) -> None:
        if right != seen:
            self.journal.violated(row, f"{what}: expected {right}, saw {seen}")


def _named(call: Call | None) -> str:
    return "-" if call is None else f"{call.sender}#{call.seq}"
