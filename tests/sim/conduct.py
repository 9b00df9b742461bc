"""What workers do must follow from what their handlers did: the checks on the real worker, beside those on the store.

Rows are those of the list of invariants, or else a word: `outcome` (what was handed in is not what the handler did),
`stall` (a living process lost a lease), `stop`, `cancel`, `timeout`, `lost lease` (an attempt went on for too long),
`handed in`, `renewal`, `progress`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.sim.journal import Journal
from tests.sim.ledger import Entry, Ledger
from tests.sim.node import Node
from tests.sim.outcomes import wrong
from tests.sim.script import QUEUE, Kind, Script
from toril.context import StopReason
from toril.model import Claim, Claimed, Completed, Lease, Outcome, Renewed, Settlement, Verdict

__all__ = ["Conduct", "Run"]

PROMPT: Final = 8.0  # seconds: a wake-up that was lost (5), a pause between two tries (1.5), and a little
_HOLD: Final = 10.0  # seconds for which claims are held back so that a suspect can run alone
_IDLE: Final = 4.0  # seconds in which a worker that runs nothing asks for what could be had, once it was told of that
_LATE: Final = 0.8  # seconds by which a renewal may be late: two looks at the table, and one that is not answered (0.5)
_LOOK: Final = 8.0  # seconds by which a look for lost leases may be late: a rest after an error (5), and a little
_HEARD: Final = 0.5  # seconds in which a process tells an attempt that it should stop, once it has heard that
_SLACK: Final = 4.0  # seconds that an attempt may take to end once its process knows that it should
_TOLD: Final[dict[str, str]] = {
    "Completed": "completed", "Failed": "failed", "Retried": "retrying", "Snoozed": "snoozed", "Released": "released",
    "Cancelled": "cancelled",
}  # fmt: skip


@dataclass(slots=True, eq=False, kw_only=True)
class Run:
    """One run of a handler, as the handler tells it."""

    node: Node
    job: Claimed
    script: Script
    began: float
    delays: int
    ended: float | None = None
    error: BaseException | None = None
    told: StopReason | None = None
    progress: int | str | None = None
    cut: bool = False
    lost_at: float | None = None
    wished_at: float | None = None
    heard: tuple[float, int] | None = None  # when its process heard that it should stop, and its delays by then
    kept: tuple[float, int] | None = None  # when its lease was last renewed, and its process's delays by then

    @property
    def held_up(self) -> bool:
        """Its process was kept from running meanwhile."""
        return self.node.delays != self.delays


class Conduct:
    """Sees what workers send, what their handlers did, and what they tell."""

    def __init__(self, journal: Journal, ledger: Ledger, untold: float = 0.0) -> None:
        """`untold` is for how many seconds a worker may not hear of what has arrived."""
        self.journal = journal
        self._idle = untold + _IDLE
        self.calm_at: float | None = None
        self.slots = 1
        self.nodes: dict[str, Node] = {}
        self.starts: list[str] = []
        self._ledger = ledger
        self._runs: dict[Lease, Run] = {}
        self._live: dict[str, dict[Lease, Run]] = {}
        self._sent: set[Lease] = set()
        self._settled: dict[Lease, float] = {}
        self._refused: set[Lease] = set()  # a settlement was refused because the lease was over, and its worker knows
        self._withheld: set[Lease] = set()  # over before the answer to its claim was sent again: that leaves it out
        self._untold: dict[tuple[str, str], list[tuple[str, Lease]]] = {}
        self._may_tell = set[tuple[str, str, str]]()  # of recoveries: an answer may be lost, a job gone
        self._hungry_since: float | None = None
        self._idle_since: dict[str, float] = {}
        self._suspect_at = float("-inf")  # when a suspect was last heard of
        self._looked: dict[str, tuple[float, int]] = {}  # when a process looked for lost leases, and its delays by then
        self._answered: set[str] = set()  # tokens of claims whose answers have come

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def calm_since(self, time: float) -> bool:
        """Whether no fault has struck since then."""
        return self.calm_at is not None and time >= self.calm_at

    # what handlers do

    def began(self, node: Node, job: Claimed, script: Script) -> Run:
        self.journal.began(script.nonce, job.fence)
        now = self.now()
        run = Run(node=node, job=job, script=script, began=now, delays=node.delays, kept=(now, node.delays))
        self._runs[job.lease] = self._live.setdefault(node.name, {})[job.lease] = run
        self.starts.append(script.nonce)
        company = [] if node.dead else self.company(node)
        if len(company) > self.slots:
            self._violated("I7", f"{node.name} runs {len(company)} jobs in {self.slots} slots")
        if len(company) > 1 and any(each.job.suspect for each in company):
            self._violated("G6", f"{node.name} runs {[each.job.lease.id for each in company]}, a suspect among them")
        return run

    def ended(self, run: Run, told: StopReason | None) -> None:
        run.ended, run.told = self.now(), told
        run.cut = run.cut or isinstance(run.error, asyncio.CancelledError)
        self._live[run.node.name].pop(run.job.lease)
        self.journal.over(run.script.nonce, run.job.fence)
        if run.heard is not None and told is None:
            self._check_told(run, *run.heard)
        if run.script.kind is not Kind.DEAF and not run.held_up:
            self._check_length(run, run.ended)

    def _check_told(self, run: Run, since: float, delays: int) -> None:
        """A process that hears that an attempt should stop tells the attempt."""
        passed = self.now() - since
        if delays == run.node.delays and passed > _HEARD:
            row = "cancel" if run.lost_at is None else "lost lease"
            self._violated(row, f"{run.job.lease.id} should stop: its process knew that for {passed:.1f} s")

    def _check_length(self, run: Run, now: float) -> None:
        """An attempt that should stop does so soon after its process can have learned of it."""
        name, patience = run.job.lease.id, self._ledger.lease / 1000 + _SLACK
        if run.script.timeout is not None and now - run.began > run.script.timeout / 1000 + 0.5:
            self._violated("timeout", f"{name} ran for {now - run.began:.1f} s, its timeout is {run.script.timeout} ms")
        if run.lost_at is not None and now - run.lost_at > patience:
            self._violated("lost lease", f"{name} ran on for {now - run.lost_at:.1f} s without a lease")
        elif run.wished_at is not None and now - run.wished_at > patience:
            self._violated("cancel", f"{name} ran on for {now - run.wished_at:.1f} s after it was told to stop")

    def company(self, node: Node) -> list[Run]:
        """What runs in a process and was not told to stop."""
        return [run for run in self._live.get(node.name, {}).values() if not run.cut]

    def running(self, node: Node) -> int:
        return len(self._live.get(node.name, ()))

    def deaf(self, node: Node) -> bool:
        return any(run.script.kind is Kind.DEAF for run in self._live.get(node.name, {}).values())

    # what workers send

    def exchanging(self, node: str, batch: Sequence[Settlement], claim: Claim) -> None:
        for settlement in batch:
            self._sent.add(settlement.lease)
            self._check_kept(settlement.lease)
        if claim.want:
            self._idle_since.pop(node, None)
        if node not in self.nodes or self.nodes[node].dead or not claim.want:
            return  # what a dead process still asks for reaches nobody
        company = self.company(self.nodes[node])
        if any(run.job.suspect for run in company):
            self._violated("G6", f"{node} claims more beside a suspect")
        if claim.alone and company:
            self._violated("G6", f"{node} says it is alone, and runs {[run.job.lease.id for run in company]}")

    def _check_kept(self, lease: Lease) -> None:
        """While an outcome waits to be handed in its lease is renewed in time, or that is tried and not answered."""
        run = self._runs.get(lease)
        if run is None or run.kept is None or run.node.held or run.node.dead:
            return
        since, delays = run.kept
        if delays == run.node.delays and self.now() - since > self._ledger.lease / 1000 / 3 + _LATE:
            passed = f"{self.now() - since:.1f} s"
            self._violated("renewal", f"{run.node.name} hands in {lease.id} and has not renewed its lease for {passed}")

    def renewed(self, leases: Sequence[Lease], answer: Renewed) -> None:
        """The answer to a renewal has come."""
        stopped = {*answer.lost, *(each.lease for each in answer.cancelled)}
        for run in [self._runs[lease] for lease in leases if lease in self._runs]:
            if run.job.lease not in answer.lost:
                run.kept = self.now(), run.node.delays
            if run.job.lease in stopped and run.heard is None:
                run.heard = self.now(), -1 if run.node.held else run.node.delays

    def renewing(self, node: str, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if lease in self._runs:
                self._runs[lease].kept = None
        late = [lease.id for lease in leases if self.now() - self._settled.get(lease, self.now()) > 5]
        if late and node in self.nodes and not self.nodes[node].held and not self.nodes[node].dead:
            self._violated("renewal", f"{node} renews leases that it handed in long ago: {late}")

    def recovering(self, node: str) -> None:
        if node in self.nodes:
            self._looked[node] = self.now(), self.nodes[node].delays

    def claimed(self, job: Claimed, claim: Claim) -> None:
        entry, node = self._ledger.by_id[job.lease.id], self.nodes.get(claim.worker)
        if job.suspect:
            self._suspect_at = self.now()
        if node is not None:
            entry.delays = -1 if node.held else node.delays

    def answered(self, claim: Claim) -> None:
        """The answer has come to who claimed."""
        self._answered.add(claim.token)

    def withheld(self, leases: Sequence[Lease]) -> None:
        """An answer was sent again without these jobs: who did not hear the first one never hears of them."""
        self._withheld.update(leases)

    def settling(self, settlement: Settlement, entry: Entry) -> None:
        """A settlement is about to be accepted: it must say what the handler did."""
        run = self._runs.get(settlement.lease)
        text = self._wrong(run, settlement.outcome, entry)
        if text is not None:
            self._violated("outcome", f"{entry.id} ({entry.script.kind}): {text}")
        if run is None or not isinstance(settlement.outcome, Completed):
            return
        if run.progress is not None and entry.progress != run.progress and self.calm_since(run.began):
            self._violated("progress", f"{entry.id} reported {run.progress!r}, and the store has {entry.progress!r}")

    def _wrong(self, run: Run | None, outcome: Outcome, entry: Entry) -> str | None:
        node = self.nodes.get(entry.worker)
        if node is None:
            return None  # somebody plays a worker by hand
        return wrong(run, outcome, entry, self.now(), stopping=node.stopping)

    def settled(self, worker: str, settlement: Settlement, verdict: Verdict) -> None:
        if worker in self.nodes:
            lease = settlement.lease
            told = _TOLD[type(settlement.outcome).__name__] if verdict is Verdict.OK else "lease_lost"
            self._untold.setdefault((worker, lease.id), []).append((told, lease))
            self.journal.tally[f"settled: {told}"] += 1

    def cancelled(self, worker: str, entry: Entry) -> None:
        """It has taken a job back that was to be stopped, and may tell that."""
        if worker in self.nodes:
            self._may_tell.add((worker, "cancelled", entry.id))

    def told(self, worker: str, name: str, job: str) -> None:
        """A worker's event. What it says of an end must be what the store has answered."""
        due = self._untold.get((worker, job), [])
        for each in due:
            if each[0] == name:
                due.remove(each)
                self._settled[each[1]] = self.now()
                if name == "lease_lost":
                    self._refused.add(each[1])
                return
        if (worker, name, job) in self._may_tell:
            self._may_tell.discard((worker, name, job))
            return
        if name != "lease_lost":  # an attempt may learn of that before it has anything to hand in
            self._violated("I14", f"{worker} tells that {job} is {name}; the store has answered {due}")

    # what befalls their jobs

    def wished(self, entry: Entry) -> None:
        run = self._runs.get(Lease(QUEUE, entry.id, entry.token))
        if run is not None and run.wished_at is None:
            run.wished_at = self.now()

    def stalled(self, entry: Entry) -> None:
        """A lease was taken back. No process that lives and was not paused may lose one once the weather is calm; to
        block its event loop is no excuse, except for a job of which it had not yet heard."""
        run = self._runs.get(Lease(QUEUE, entry.id, entry.token))
        node = self.nodes.get(entry.worker)
        self._suspect_at = self.now()
        if run is not None:
            run.lost_at = self.now()
        if node is None or node.dead or node.over or not self.calm_since(entry.claimed_at):
            return
        if entry.delays == (node.delays if run is None else run.delays):
            self._violated("stall", f"{entry.id} was taken from {node.name}, which lives and had it")

    def stopped(self, node: Node, code: int) -> None:
        """A process has ended in good order. What it held it has given back, unless it could not reach the store. It
        does not know of what a claim took whose answer never came."""
        node.over, node.clean = True, code == 0
        stormy = not self.calm_since(node.stop_at)
        held = [entry for entry in self._ledger.held_by(node.name) if entry.token in self._answered or not stormy]
        left = [entry.id for entry in held if not self._let_go(entry)]
        free = self.calm_since(node.stop_at) and node.delays == node.stop_delays and not node.excused
        if left and (code == 0 or free):
            self._violated("stop", f"{node.name} has stopped with {code} and left {left} behind")
        took = self.now() - node.stop_at
        if free and took > node.patience:
            self._violated("stop", f"{node.name} took {took:.1f} s to stop")

    def _let_go(self, entry: Entry) -> bool:
        """Whether its process had to think the lease lost: no renewal was answered in time, or the store has said so.
        Such a lease may hold again, if the store's clock went back since."""
        lease = Lease(QUEUE, entry.id, entry.token)
        run = self._runs.get(lease)
        if run is None:
            return lease in self._refused or lease in self._withheld
        return lease in self._refused or run.told is StopReason.LEASE_LOST

    # what must not last

    def hungry(self, workers: list[Node]) -> None:
        """Looked at often once it is calm: no job waits for long while a worker has nothing better to do."""
        for node in workers:
            self._check_rounds(node)
        ready = list(self._ledger.ready_now())
        if any(entry.suspect for entry in ready):
            self._suspect_at = self.now()
        if self._ledger.full():
            ready = []
        able = [node for node in workers if ready and self._is_able(node)]
        idle = [node.name for node in able if not self.running(node)]
        self._idle_since = {name: self._idle_since.get(name, self.now()) for name in idle}
        for name, since in self._idle_since.items():
            if self.now() - since > self._idle:
                waiting = [entry.id for entry in ready]
                self._violated(
                    "I15", f"{name} runs nothing and has not asked for {self._idle} s, though {waiting} could be had"
                )
        plain = any(not entry.suspect for entry in ready)
        if not idle and not (plain and any(self.running(node) < self.slots for node in able)):
            self._hungry_since = None
        elif self._hungry_since is None or self._ledger.last_claim > self._hungry_since:
            self._hungry_since = self.now()
        elif self.now() - self._hungry_since > self._prompt():
            waiting = [entry.id for entry in ready]
            self._violated("I15", f"nobody has claimed anything for {self._prompt()} s, though {waiting} could be had")

    def _check_rounds(self, node: Node) -> None:
        """Each worker looks for lost leases, though all others may do so too; and what it runs ends when it should."""
        if node.dead or node.over or node.stopping or node.held:
            return
        since, delays = self._looked.get(node.name, (0.0, -1))
        if delays != node.delays:
            self._looked[node.name] = self.now(), node.delays
        elif self._ledger.lease and self.now() - since > self._ledger.lease / 1000 + _LOOK:  # 0 before the first claim
            self._violated("I15", f"{node.name} has not looked for lost leases for {self.now() - since:.1f} s")
        for run in self._live.get(node.name, {}).values():
            if run.script.kind is not Kind.DEAF and not run.held_up:
                self._check_length(run, self.now())

    def _prompt(self) -> float:
        """How long a job may wait: longer where claims may be held back for a suspect."""
        held = self._hungry_since is not None and self._hungry_since - self._suspect_at < _HOLD
        return PROMPT - 5 + _HOLD if held else PROMPT

    def _is_able(self, node: Node) -> bool:
        """Whether a process could claim something: it lives, runs, and has no suspect."""
        away = node.dead or node.over or node.stopping or node.held
        return not away and not any(run.job.suspect for run in self.company(node))

    def at_rest(self) -> None:
        """All jobs have ended: so must everything that the workers had to say."""
        for run in self._runs.values():
            mute = run.ended is not None and not run.cut and run.told is None and run.job.lease not in self._sent
            if mute and not run.node.dead and (run.node.clean or not run.node.over):
                self._violated("handed in", f"{run.job.lease.id} ended in {run.node.name}, and nobody was told")
        for (worker, job), due in self._untold.items():
            if due and not self.nodes[worker].dead and not self.nodes[worker].over:
                self._violated("I14", f"{worker} has not told that {job} is {due}")

    def _violated(self, row: str, text: str) -> None:
        self.journal.violated(row, text)
