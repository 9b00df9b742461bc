"""A world of circuit breakers, on the real workers, under the same faults, beside a service that is down now and then.

Made of `agenda`, with other jobs and other rules. A model of each circuit follows every effect on the store: what the
store answers must be what the model says (C1 to C3). No run begins that was refused (C4), to be put off costs no
attempt (C5), and once the service is well all jobs come to their end (C6).
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.sim.agenda import Agenda
from tests.sim.clock import EPOCH, SimClock, stream
from tests.sim.journal import Journal
from tests.sim.line import Line, LinePart, Watch
from tests.sim.loop import until
from tests.sim.node import Node
from tests.sim.plan import QUEUE, AgendaPlan
from tests.sim.result import Result, played
from tests.sim.station import Home, KeptAside
from tests.sim.store import MemoryStore, SimStore
from toril.context import JobContext
from toril.errors import EngineUnavailable, PermanentError, TransientError
from toril.events import Events
from toril.model import KEEP_ALL, Admission, Admitted, Call, CircuitSample, CircuitState, CircuitTerms, Deferred
from toril.model.states import FINISHED, State
from toril.policy.breaker import Breaker
from toril.policy.retry import Fixed, Retry
from toril.queue import Queue, QueueOptions
from toril.runtime.clock import Clock
from toril.runtime.hooks import Hooks
from toril.store.engine import Store
from toril.worker.process import WorkerProcess

__all__ = ["break_circuits"]

_FAILS: Final = {"bank": 0.1, "post": 0.1, "shop": 0.4}  # services, and how often one fails that is not down
_KEYS: Final = tuple(_FAILS)
_NEVER_DOWN: Final = "shop"  # its failures are far apart, and each is to be forgotten before the next
_WIDTH: Final = 20  # what is counted leaves a window at most a twentieth too late
CLOSED, OPEN, HALF = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


@dataclass
class Fuse:
    """A circuit, as it must stand after the effects that were seen."""

    state: CircuitState = CLOSED
    till: int = 0
    runs: list[int] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    probes: dict[str, int] = field(default_factory=dict)
    passed: int = 0
    doubtful: bool = False  # it may have been forgotten, which the next answer tells

    def open(self, till: int) -> None:
        self.__init__(OPEN, till)  # type: ignore[misc]

    def half_open(self, now: int) -> None:
        self.__init__(HALF, now)  # type: ignore[misc]

    def close(self) -> None:
        self.__init__()  # type: ignore[misc]

    def is_old(self, terms: CircuitTerms, now: int) -> bool:
        """Nobody has asked for so long that the store may have forgotten it."""
        return now > max([self.till, *self.probes.values()]) + terms.window + terms.pause

    def must_open(self, terms: CircuitTerms, now: int) -> bool | None:
        """None: at the edge of the window, where both are right."""
        if terms.rate is not None:
            return len(self.runs) >= terms.minimum and len(self.bad) >= terms.rate * len(self.runs)
        surely = sum(at > now - terms.window for at in self.bad)
        perhaps = sum(at > now - terms.window - terms.window // _WIDTH for at in self.bad)
        return True if surely >= terms.failures else None if perhaps >= terms.failures else False


class FuseWatch(Watch):
    """Holds every answer of the store against the model, and every run against the answers."""

    def __init__(self, journal: Journal, store: SimStore, clock: Clock, lease: int, terms: CircuitTerms) -> None:
        super().__init__(journal, store, clock)
        self.began: Counter[str] = Counter()
        self._lease = lease
        self._terms = terms
        self._fuses: defaultdict[str, Fuse] = defaultdict(Fuse)
        self._holders: set[str] = set()
        self._leave: Counter[tuple[str, str]] = Counter()

    def saw(self, node: str, what: str, args: tuple[Any, ...], call: Call | None, answer: Any) -> None:
        match what:
            case "circuits.admit":
                self._asked(args, answer)
            case "circuits.record":
                self._told(args, answer)
            case "circuits.trip":
                self._fuses[args[0]].open(answer.till)
            case "circuits.reset":
                self._fuses[args[0]].close()
            case "prune":
                for fuse in self._fuses.values():
                    fuse.doubtful |= fuse.state is not CLOSED and fuse.is_old(self._terms, self.now())
            case _:
                pass
        super().saw(node, what, args, call, answer)

    def look(self) -> None:
        for text in self._store.contradictions():
            self.journal.violated("I1", text)

    def may(self, node: str, holder: str, admission: Admission | None) -> None:
        """What a process has heard. Where the store does not answer, the job runs."""
        if holder not in self._holders and not isinstance(admission, Deferred):
            self._holders.add(holder)
            self._leave[node, holder.rpartition(":")[2]] += 1

    def begins(self, node: str, job: str) -> None:
        self.began[job] += 1
        self._leave[node, job] -= 1
        if self._leave[node, job] < 0:
            self.journal.violated("C4", f"{job} runs in {node}, which was told that its circuit is open")

    def _asked(self, asked: tuple[str, CircuitTerms, str], answer: Admission) -> None:
        key, terms, holder = asked
        fuse, now = self._fuses[key], self.now()
        if fuse.doubtful:
            fuse.doubtful = False
            if answer == Admitted():
                fuse.state, fuse.probes, fuse.passed = CLOSED, {}, 0
        if fuse.state is CLOSED:
            self._must("C3", key, answer, Admitted())
        elif fuse.state is OPEN and now < fuse.till:
            self._must("C2", key, answer, Deferred(fuse.till - now))
        else:
            self._tried(fuse, key, terms, holder, answer)

    def _tried(self, fuse: Fuse, key: str, terms: CircuitTerms, holder: str, answer: Admission) -> None:
        now, news = self.now(), None
        if fuse.state is OPEN:
            fuse.half_open(now)
            news = HALF
        out = [each for each, till in fuse.probes.items() if till > now]
        if holder not in out and len(out) + fuse.passed >= terms.probes:
            if not isinstance(answer, Deferred):
                self.journal.violated("C1", f"{holder} tries {key} beside {out}, and {fuse.passed} did well")
            return
        self._must("C1", key, answer, Admitted(news, probe=True))
        fuse.till, fuse.probes[holder] = now, now + self._lease

    def _told(self, told: tuple[str, CircuitTerms, str, CircuitSample], answer: CircuitState | None) -> None:
        key, terms, holder, sign = told
        fuse, now = self._fuses[key], self.now()
        if fuse.doubtful and answer is None:
            fuse.runs += [now] * (sign is not CircuitSample.NEITHER)
            fuse.bad += [now] * (sign is CircuitSample.BAD)
        elif fuse.state is CLOSED and sign is not CircuitSample.NEITHER:
            self._counted(fuse, key, terms, sign, answer)
        elif fuse.state is HALF and fuse.probes.pop(holder, None) is not None:
            fuse.till = now
            fuse.passed += sign is CircuitSample.GOOD
            done = fuse.passed >= terms.probes
            self._must("C3", key, answer, OPEN if sign is CircuitSample.BAD else CLOSED if done else None)
            if answer is OPEN:
                fuse.open(now + terms.pause)
            elif answer is CLOSED:
                fuse.close()
        else:
            self._must("C3", key, answer, None)
            # A record may bring shorter terms, by which there is nothing left to know of the circuit.
            fuse.doubtful |= fuse.state is not CLOSED and fuse.is_old(terms, now)

    def _counted(
        self, fuse: Fuse, key: str, terms: CircuitTerms, sign: CircuitSample, answer: CircuitState | None
    ) -> None:  # fmt: skip
        now = self.now()
        fuse.runs.append(now)
        if sign is CircuitSample.BAD:
            fuse.bad.append(now)
        opens = sign is CircuitSample.BAD and fuse.must_open(terms, now)
        if opens is not None:
            self._must("C3", key, answer, OPEN if opens else None)
        if answer is OPEN:
            fuse.open(now + terms.pause)

    def _must(self, row: str, key: str, answer: object, right: object) -> None:
        if answer != right:
            self.journal.violated(row, f"the circuit {key} answers {answer}, where it is {right} by {self._fuses[key]}")


class _WatchedCircuits(LinePart):
    """Notes what a process is told of its circuits."""

    async def admit(self, key: str, terms: CircuitTerms, holder: str, **options: Any) -> Any:
        watch: FuseWatch = self.line.watch  # type: ignore[assignment]
        try:
            answer = await self.__getattr__("admit")(key, terms, holder, **options)
        except EngineUnavailable:
            watch.may(self.line.node.name, holder, None)
            raise
        watch.may(self.line.node.name, holder, answer)
        return answer


def break_circuits(
    seed: int, *, store: Callable[[Clock], SimStore] = MemoryStore, plan: AgendaPlan | None = None, trace: bool = False
) -> Result:
    """Run one seed to its end, on a loop of its own."""
    return played("circuits", Works(plan or AgendaPlan.draw(seed), store, trace=trace))


class Works(Agenda):
    """The fleet, and the services that its jobs need."""

    def __init__(self, plan: AgendaPlan, store: Callable[[Clock], SimStore], *, trace: bool = False) -> None:
        super().__init__(plan, store, trace=trace)
        chance = stream(plan.seed, "services")
        self._breaker = Breaker(
            failures=chance.choice((2, 3)), window=chance.choice((1, 1, 5)), pause=chance.choice((0.5, 1.5)),
            probes=chance.choice((1, 2)), by=lambda data: str(data["key"]),
        )  # fmt: skip
        if chance.random() < 0.3:
            self._breaker = Breaker(
                rate=0.5, minimum=4, window=600, pause=0.8, probes=2, by=lambda data: str(data["key"])
            )
        self.watch = FuseWatch(
            self.journal, self.store, SimClock(stream(plan.seed, "store")), plan.terms.lease, self._breaker.terms()
        )
        self.witness = self.watch
        self._down = {key: [] if key == _NEVER_DOWN else self._outages(chance.random) for key in _KEYS}

    def _outages(self, random: Callable[[], float]) -> list[tuple[float, float]]:
        """From when to when, in ms."""
        begins = EPOCH + random() * 1000
        found = []
        while begins < EPOCH + self.plan.storm * 3000:
            ends = begins + 300 + random() * 3000
            found.append((begins, ends))
            begins = ends + random() * 3000
        return found

    def _is_down(self, key: str) -> bool:
        return not self._calm and any(begins <= self.watch.now() < ends for begins, ends in self._down[key])

    def _line(self, node: Node, *, calm: bool = False) -> Line:
        line = super()._line(node, calm=calm)
        line.circuits = _WatchedCircuits(line, "circuits")
        return line

    def _queue(self, line: Line, clock: Clock) -> Queue:
        terms = self.plan.terms
        options = QueueOptions(
            concurrency=terms.slots, lease=terms.lease, renew=terms.lease // 3, max_stalls=terms.max_stalls,
            retry=Retry(100, Fixed(0.2)), keep_completed=KEEP_ALL, keep_failed=KEEP_ALL, breaker=self._breaker,
        )  # fmt: skip
        queue = Queue(Home(line.node.name, line, clock), QUEUE, options)

        async def send(ctx: JobContext[Any]) -> None:
            self.watch.begins(line.node.name, ctx.job_id)
            await clock.sleep(0.02 + clock.random() * 0.4)
            if self._is_down(ctx.data["key"]):
                raise TransientError("the service is down")
            if clock.random() < _FAILS[ctx.data["key"]]:
                raise TransientError("now and then")
            if clock.random() < 0.05:
                raise PermanentError("the service does not want it")

        queue.handlers.register_all({"send": send})
        return queue

    async def _work(self, node: Node) -> None:
        clock = SimClock(stream(self.plan.seed, node.name), name=node.name, node=node, skew=self.plan.skew)
        line = self._line(node)
        process = WorkerProcess(
            [self._queue(line, clock)], line, clock, Events(), Hooks(), name=node.name, version="simulated",
            owner="sim", schedules=line.schedules, grace=self.plan.terms.grace,
        )  # fmt: skip
        node.stop = process.stop
        await process.run(KeptAside(self._line(node), clock, node), None)

    async def _produce(self, node: Node) -> None:
        clock = SimClock(stream(self.plan.seed, node.name), name=node.name, node=node)
        queue = self._queue(self._line(node), clock)
        while self._added < self.plan.tasks:
            await clock.sleep(clock.random() * 0.25)
            self._added += 1
            try:
                await queue.add("send", {"key": _KEYS[int(clock.random() * len(_KEYS))]})
            except EngineUnavailable:
                self.journal.tally["add given up"] += 1
        await clock.sleep(3600)

    async def _meddle(self, node: Node) -> None:
        """Opens and closes circuits by hand."""
        clock = SimClock(stream(self.plan.seed, node.name), name=node.name, node=node)
        store: Any = self._line(node)
        while True:
            await clock.sleep(clock.random() * 2)
            key = _KEYS[int(clock.random() * len(_KEYS))]
            try:
                await (store.circuits.trip(key, pause=400) if clock.random() < 0.5 else store.circuits.reset(key))
            except EngineUnavailable:
                self.journal.tally["control given up"] += 1

    async def _come_to_rest(self) -> None:
        """The service is well, and the faults are over: all jobs end."""
        self._calm = True
        for name in ("op", "p0"):
            if name in self.nodes:
                self.nodes[name].kill()
        await until(self._is_broken, 2 * self._lateness + 1)  # for what is on its way
        store, bound = self.store.view(), 20 * self._lateness + 90
        for _ in range(int(bound)):
            if self._is_broken() or not await _left(store):
                break
            await until(self._is_broken, 1.0)
        if not self._is_broken() and (left := await _left(store)):
            self.journal.violated("C6", f"{left} jobs have not ended {bound:.0f} s after the last fault")
        self._closing = True
        for node in self.nodes.values():
            if node.stop is not None and not node.dead:
                node.stopping = True
                node.stop()
        await until(lambda: all(node.dead or node.over for node in self.nodes.values()), 30)
        if not self._is_broken():
            await self._check(store)

    async def _check(self, store: Store) -> None:
        for state in FINISHED:
            for record in (await store.page(QUEUE, state, limit=1000)).items:
                if record.attempts_made > self.watch.began[record.id]:
                    self.journal.violated(
                        "C5", f"{record.id} began {self.watch.began[record.id]} times: {record.attempts_made} attempts"
                    )


async def _left(store: Store) -> int:
    counts = await store.counts(QUEUE)
    return sum(counts.of(state) for state in State if state not in FINISHED)
