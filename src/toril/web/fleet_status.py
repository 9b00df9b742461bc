"""The state of the whole app for all pages, read at most once every moment and shared by all viewers."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

from toril.app import App
from toril.model import AuditEntry, CircuitRow, CircuitState, Finding, RunStatus, ms_of
from toril.operate.metrics import Overview, QueueOverview
from toril.operate.steps import waiting_for_signals
from toril.policy.attention import HighFailureRate, Need, QueueFacts, needs, suspects, usual_rate
from toril.policy.doctor import judged
from toril.policy.retention import RUNS
from toril.records import WorkerRecord
from toril.runtime.clock import Clock
from toril.web.api.common import known_queue

__all__ = ["MANY", "FleetStatus", "FleetStatusReader", "Recall"]

MANY: Final = 100
_MOMENT: Final = 3.0  # seconds for which that count is kept
_FRESH: Final = 1.5  # seconds for which it is fresh
_LOOKED_OVER: Final = 60.0  # seconds between two checks of the server itself
_WEEK: Final = 600.0  # seconds for which the usual rate of a week is kept
_KNOWN: Final = 1_000  # answers kept
_SAMPLES: Final = 40
_SAMPLED: Final = 10_000  # ms between two samples of the backlog
_FIVE_MINUTES: Final = 300_000
_LETTERS: Final = 100
_MINUTE: Final = 60_000
_HOUR: Final = 3_600_000


T = TypeVar("T")


class Recall(Protocol):
    """An answer that may be this many seconds old, or a new one."""

    async def __call__(self, key: Hashable, seconds: float, ask: Callable[[], Awaitable[T]]) -> T: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """As of `now` (ms, the store's clock)."""

    now: int
    overview: Overview
    facts: Mapping[str, QueueFacts]
    needs: Sequence[Need]
    circuits: Sequence[CircuitRow]
    letters: int
    notes: Sequence[AuditEntry]
    people: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """The numbers beside the entries of the navigation; `MANY` stands for that or more."""
        broken = sum(circuit.state is not CircuitState.CLOSED for circuit in self.circuits)
        workers = len(self.overview.workers)
        return {
            "overview": len(self.needs),
            "dead": self.letters,
            "people": self.people,
            "breakers": broken,
            "workers": workers,
        }


@dataclass(slots=True)
class FleetStatusReader:
    """Reads the status. What is expensive is read rarely: the facts of the server, and the usual rates of a week."""

    app: App
    clock: Clock
    _last: FleetStatus | None = None
    _read_at: float = 0.0
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _findings: Sequence[Finding] = ()
    _looked_at: float | None = None
    _known: dict[Hashable, tuple[float, Any]] = field(default_factory=dict)
    _backlogs: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)

    async def now(self) -> FleetStatus:
        async with self._reading:  # one caller reads for all that come at the same time
            if self._last is None or self.clock.monotonic() - self._read_at >= _FRESH:
                self._last = await self._read()
                self._read_at = self.clock.monotonic()
            return self._last

    async def recall(self, key: Hashable, seconds: float, ask: Callable[[], Awaitable[T]]) -> T:
        known, now = self._known.get(key), self.clock.monotonic()
        if known is None or now - known[0] >= seconds:
            if len(self._known) >= _KNOWN:
                self._known.pop(next(iter(self._known)))
            known = self._known[key] = (now, await ask())
        found: T = known[1]
        return found

    async def _read(self) -> FleetStatus:
        store = self.app.store
        overview = await self.app.overview()
        now = ms_of(overview.now)
        circuits = await store.circuits.list()
        letters, recent = await store.dead_letters.count(), 0
        if letters:
            page = await store.dead_letters.page(limit=_LETTERS)
            recent = sum(letter.failed_at > now - _HOUR for letter in page.items)
        notes = (await store.audit.page(limit=_LETTERS)).items
        facts = {each.queue: self._facts(each, overview, notes) for each in overview.queues}
        usual = {name: await self._week(facts[name]) for name in suspects(list(facts.values()))}
        found = needs(
            list(facts.values()),
            now=now,
            usual=usual,
            circuits=circuits,
            findings=await self._looked_over(),
            letters=recent,
        )
        return FleetStatus(
            now=now,
            overview=overview,
            facts=facts,
            needs=[await self._dated(need) for need in found],
            circuits=circuits,
            letters=letters,
            notes=notes,
            people=await self._people(overview),
        )

    async def _people(self, overview: Overview) -> int:
        """How many jobs wait for a signal; at most `MANY`."""
        resting = [each.queue for each in overview.queues if each.counts.resting]
        if not resting:
            return 0

        async def ask() -> int:
            return len((await waiting_for_signals(self.app.store, resting, limit=MANY)).items)

        return await self.recall(("people", *resting), _MOMENT, ask)

    def _facts(self, each: QueueOverview, overview: Overview, notes: Sequence[AuditEntry]) -> QueueFacts:
        waiting = each.counts.waiting + each.counts.prioritized
        pause = next((note for note in notes if _stops(note, each.queue)), None) if each.counts.paused else None
        return QueueFacts(
            name=each.queue,
            waiting=waiting,
            running=each.counts.active,
            free=_free(overview.workers, each.queue),
            workers=each.workers,
            paused=each.counts.paused,
            completed=each.completed,
            failed=each.failed,
            wait_p95=each.wait_p95,
            oldest=each.oldest,
            target=each.target_wait,
            stalls=each.stalls,
            growth=self._growth(each.queue, ms_of(overview.now), waiting),
            paused_since=pause.at if pause else None,
            paused_by=pause.who if pause else None,
        )

    def _growth(self, queue: str, now: int, waiting: int) -> float | None:
        """By how many jobs per minute the backlog has grown in the last five minutes, if it was sampled for at least
        one."""
        samples = self._backlogs.setdefault(queue, deque(maxlen=_SAMPLES))
        if not samples or now - samples[-1][0] >= _SAMPLED:
            samples.append((now, waiting))
        first = next((sample for sample in samples if now - sample[0] <= _FIVE_MINUTES), (now, waiting))
        minutes = (now - first[0]) / 60_000
        return (waiting - first[1]) / minutes if minutes >= 1 else None

    async def _week(self, queue: QueueFacts) -> float | None:
        """The usual failure rate in percent, if there is one."""

        async def ask() -> float | None:
            found = await (await known_queue(self.app, queue.name)).metrics("7d")
            return usual_rate(queue, found.completed, found.failed)

        return await self.recall(("week", queue.name), _WEEK, ask)

    async def _dated(self, need: Need) -> Need:
        """Counts only tell the minute in which failures began; the run record of the first one tells the moment."""
        if not isinstance(need, HighFailureRate):
            return need
        queue, minute = need.queue, need.since

        async def ask() -> int:
            runs = (await self.app.store.runs(queue, RunStatus.FAILED, limit=RUNS)).items
            first = min((run.finished_at for run in runs if run.finished_at >= minute), default=minute)
            return first if first < minute + _MINUTE else minute

        return replace(need, since=await self.recall(("began", queue, minute), _WEEK, ask))

    async def _looked_over(self) -> Sequence[Finding]:
        """What is wrong with the server. A file is not checked here: that would read all of it, which is for the
        doctor."""
        if self.app.url.startswith(("sqlite:", "memory:")):
            return ()
        if self._looked_at is None or self.clock.monotonic() - self._looked_at >= _LOOKED_OVER:
            self._looked_at = self.clock.monotonic()
            self._findings = [each for each in judged(await self.app.store.repairs.facts()) if each.code in _SHOWN]
        return self._findings


# Of what a look at the server can find: what may lose jobs now, slows all down, or makes times wrong.
_SHOWN: Final = frozenset({"evicted", "eviction", "memory", "log", "snapshot", "latency", "clock"})


def _free(workers: Sequence[WorkerRecord], queue: str) -> int:
    slots = [worker.queue_slots.get(queue, (0, 0)) for worker in workers]
    return sum(max(0, all_ - used) for all_, used in slots)


def _stops(note: AuditEntry, queue: str) -> bool:
    return note.action == "pause queue" and note.target == queue and note.ended == "done"
