"""A world of circuit breakers, beside a service that is down now and then.

A model of each circuit follows every effect on the store: what the store answers must be what the model says (C1 to
C3). No run begins that was refused (C4), to be deferred costs no attempt (C5), and once the service is well all jobs
end (C6).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from tests.sim.clock import EPOCH, SimClock, stream
from tests.sim.journal import Journal
from tests.sim.loop import until
from tests.sim.node import Node
from tests.sim.plan import QUEUE, SmallPlan
from tests.sim.remote_store import RemoteStore, RemoteStorePart, Watch
from tests.sim.result import Result, played
from tests.sim.small_world import SmallWorld
from tests.sim.store import MemoryStore, SimStore
from toril.context import JobContext
from toril.errors import EngineUnavailable, PermanentError, TransientError
from toril.model import KEEP_ALL, Admission, Admitted, Call, CircuitSample, CircuitState, CircuitTerms, Deferred
from toril.model.states import FINISHED, State
from toril.policy.breaker import Breaker
from toril.policy.retry import Fixed, Retry
from toril.queue import Queue
from toril.runtime.clock import Clock
from toril.store.engine import Store

__all__ = ["run_circuits"]

_FAILS: Final = {"bank": 0.1, "post": 0.1, "shop": 0.4}  # services, and how often one fails that is not down
_KEYS: Final = tuple(_FAILS)
_NEVER_DOWN: Final = "shop"  # its failures are far apart, and each is to be forgotten before the next
_WIDTH: Final = 20  # what is counted leaves a window at most a twentieth too late
CLOSED, OPEN, HALF = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


@dataclass
class CircuitModel:
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
        certain = sum(at > now - terms.window for at in self.bad)
        possible = sum(at > now - terms.window - terms.window // _WIDTH for at in self.bad)
        return True if certain >= terms.failures else None if possible >= terms.failures else False


class CircuitWatch(Watch):
    """Holds every answer of the store against the model, and every run against the answers."""

    def __init__(self, journal: Journal, store: SimStore, clock: Clock, lease: int, terms: CircuitTerms) -> None:
        super().__init__(journal, store, clock)
        self.began: Counter[str] = Counter()
        self._lease = lease
        self._terms = terms
        self._circuits: defaultdict[str, CircuitModel] = defaultdict(CircuitModel)
        self._holders: set[str] = set()
        self._leave: Counter[tuple[str, str]] = Counter()

    def saw(self, node: str, what: str, args: tuple[Any, ...], call: Call | None, answer: Any) -> None:
        match what:
            case "circuits.admit":
                self._asked(args, answer)
            case "circuits.record":
                self._recorded(args, answer)
            case "circuits.trip":
                self._circuits[args[0]].open(answer.till)
            case "circuits.reset":
                self._circuits[args[0]].close()
            case "prune":
                for circuit in self._circuits.values():
                    circuit.doubtful |= circuit.state is not CLOSED and circuit.is_old(self._terms, self.now())
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
            self.journal.violated("C4", f"{job} runs in {node}, which has heard that its circuit is open")

    def _asked(self, asked: tuple[str, CircuitTerms, str], answer: Admission) -> None:
        key, terms, holder = asked
        circuit, now = self._circuits[key], self.now()
        if circuit.doubtful:
            circuit.doubtful = False
            if answer == Admitted():
                circuit.state, circuit.probes, circuit.passed = CLOSED, {}, 0
        if circuit.state is CLOSED:
            self._must("C3", key, answer, Admitted())
        elif circuit.state is OPEN and now < circuit.till:
            self._must("C2", key, answer, Deferred(circuit.till - now))
        else:
            self._probed(circuit, key, terms, holder, answer)

    def _probed(self, circuit: CircuitModel, key: str, terms: CircuitTerms, holder: str, answer: Admission) -> None:
        now, news = self.now(), None
        if circuit.state is OPEN:
            circuit.half_open(now)
            news = HALF
        out = [each for each, till in circuit.probes.items() if till > now]
        if holder not in out and len(out) + circuit.passed >= terms.probes:
            if not isinstance(answer, Deferred):
                self.journal.violated("C1", f"{holder} tries {key} beside {out}, and {circuit.passed} did well")
            return
        self._must("C1", key, answer, Admitted(news, probe=True))
        circuit.till, circuit.probes[holder] = now, now + self._lease

    def _recorded(self, record: tuple[str, CircuitTerms, str, CircuitSample], answer: CircuitState | None) -> None:
        key, terms, holder, sample = record
        circuit, now = self._circuits[key], self.now()
        if circuit.doubtful and answer is None:
            circuit.runs += [now] * (sample is not CircuitSample.NEITHER)
            circuit.bad += [now] * (sample is CircuitSample.BAD)
        elif circuit.state is CLOSED and sample is not CircuitSample.NEITHER:
            self._counted(circuit, key, terms, sample, answer)
        elif circuit.state is HALF and circuit.probes.pop(holder, None) is not None:
            circuit.till = now
            circuit.passed += sample is CircuitSample.GOOD
            done = circuit.passed >= terms.probes
            self._must("C3", key, answer, OPEN if sample is CircuitSample.BAD else CLOSED if done else None)
            if answer is OPEN:
                circuit.open(now + terms.pause)
            elif answer is CLOSED:
                circuit.close()
        else:
            self._must("C3", key, answer, None)
            # A record may bring shorter terms, by which there is nothing left to know of the circuit.
            circuit.doubtful |= circuit.state is not CLOSED and circuit.is_old(terms, now)

    def _counted(
        self, circuit: CircuitModel, key: str, terms: CircuitTerms, sample: CircuitSample, answer: CircuitState | None
    ) -> None:  # fmt: skip
        now = self.now()
        circuit.runs.append(now)
        if sample is CircuitSample.BAD:
            circuit.bad.append(now)
        opens = sample is CircuitSample.BAD and circuit.must_open(terms, now)
        if opens is not None:
            self._must("C3", key, answer, OPEN if opens else None)
        if answer is OPEN:
            circuit.open(now + terms.pause)

    def _must(self, row: str, key: str, answer: object, right: object) -> None:
        if answer != right:
            self.journal.violated(
                row, f"the circuit {key} answers {answer}, where it is {right} by {self._circuits[key]}"
            )


class _WatchedCircuits(RemoteStorePart):
    """Notes what a process hears of its circuits."""

    async def admit(self, key: str, terms: CircuitTerms, holder: str, **options: Any) -> Any:
        watch: CircuitWatch = self.store.watch  # type: ignore[assignment]
        try:
            answer = await self.__getattr__("admit")(key, terms, holder, **options)
        except EngineUnavailable:
            watch.may(self.store.node.name, holder, None)
            raise
        watch.may(self.store.node.name, holder, answer)
        return answer


def run_circuits(
    seed: int, *, store: Callable[[Clock], SimStore] = MemoryStore, plan: SmallPlan | None = None, trace: bool = False
) -> Result:
    """Run one seed to its end, on a loop of its own."""
    return played("circuits", CircuitWorld(plan or SmallPlan.draw(seed), store, trace=trace))


class CircuitWorld(SmallWorld):
    """The fleet, and the services that its jobs need."""

    adds_within: ClassVar[float] = 0.25
    meddles_within: ClassVar[float] = 2

    def __init__(self, plan: SmallPlan, store: Callable[[Clock], SimStore], *, trace: bool = False) -> None:
        chance = stream(plan.seed, "services")
        self._breaker = Breaker(
            failures=chance.choice((2, 3)), window=chance.choice((1, 1, 5)), pause=chance.choice((0.5, 1.5)),
            probes=chance.choice((1, 2)), by=lambda data: str(data["key"]),
        )  # fmt: skip
        if chance.random() < 0.3:
            self._breaker = Breaker(
                rate=0.5, minimum=4, window=600, pause=0.8, probes=2, by=lambda data: str(data["key"])
            )
        watch = partial(CircuitWatch, lease=plan.terms.lease, terms=self._breaker.terms())
        super().__init__(plan, store, trace=trace, watch=watch)
        self._down = {key: [] if key == _NEVER_DOWN else self._outages(chance.random) for key in _KEYS}

    @property
    def watch(self) -> CircuitWatch:
        assert isinstance(self.witness, CircuitWatch)
        return self.witness

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

    def _remote(self, node: Node, *, calm: bool = False) -> RemoteStore:
        store = super()._remote(node, calm=calm)
        store.circuits = _WatchedCircuits(store, "circuits")
        return store

    def _queues(self, store: RemoteStore, clock: SimClock) -> list[Queue]:
        queues = self._declare(
            store, clock, QUEUE,
            retry=Retry(100, Fixed(0.2)), keep_completed=KEEP_ALL, keep_failed=KEEP_ALL, breaker=self._breaker,
        )  # fmt: skip

        async def send(ctx: JobContext[Any]) -> None:
            self.watch.begins(store.node.name, ctx.job_id)
            await clock.sleep(0.02 + clock.random() * 0.4)
            if self._is_down(ctx.data["key"]):
                raise TransientError("the service is down")
            if clock.random() < _FAILS[ctx.data["key"]]:
                raise TransientError("now and then")
            if clock.random() < 0.05:
                raise PermanentError("the service does not want it")

        queues[0].handlers.register_all({"send": send})
        return queues

    async def _add(self, clock: SimClock, queues: Sequence[Queue]) -> None:
        await queues[0].add("send", {"key": _KEYS[int(clock.random() * len(_KEYS))]})

    async def _meddle(self, clock: SimClock, queues: Sequence[Queue]) -> None:
        """Open or close a circuit."""
        circuits = queues[0].store.circuits
        key = _KEYS[int(clock.random() * len(_KEYS))]
        await (circuits.trip(key, pause=400) if clock.random() < 0.5 else circuits.reset(key))

    async def _finish(self) -> None:
        """The service is well: all jobs end."""
        store, bound = self.store.view(), 20 * self._lateness + 90
        for _ in range(int(bound)):
            if self._is_broken() or not await _left(store):
                break
            await until(self._is_broken, 1.0)
        if not self._is_broken() and (left := await _left(store)):
            self.journal.violated("C6", f"{left} jobs have not ended {bound:.0f} s after the last fault")

    async def _check(self) -> None:
        store = self.store.view()
        for state in FINISHED:
            for record in (await store.page(QUEUE, state, limit=1000)).items:
                if record.attempts_made > self.watch.began[record.id]:
                    self.journal.violated(
                        "C5", f"{record.id} began {self.watch.began[record.id]} times: {record.attempts_made} attempts"
                    )


async def _left(store: Store) -> int:
    counts = await store.counts(QUEUE)
    return sum(counts.of(state) for state in State if state not in FINISHED)
