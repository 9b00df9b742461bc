"""Stores that lose calls or let workers die, for tests."""

import asyncio
import inspect
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from toril.errors import EngineUnavailable, InvalidOption, preview
from toril.model import (
    Added,
    AddOutcome,
    Cancelled,
    Claim,
    Completed,
    Exchange,
    Failed,
    FlowNode,
    Lease,
    NewJob,
    Rested,
    Retried,
    Settlement,
    StepAnswer,
    StepReport,
    Verdict,
)
from toril.store.capabilities import FlowStore, StepStore
from toril.store.engine import Engine, Store

__all__ = ["CALLS", "Death", "FlakyStore", "Killed", "Place", "WatchedStore"]

_NEVER = {"open", "close", "health", "twin"}
CALLS = {name for name, _ in inspect.getmembers(Engine, inspect.isfunction) if not name.startswith("_")} - _NEVER
_FLAKY_PARTS: Final = frozenset({"steps", "flows"})


class FlakyStore:
    """A store that fails a share of its calls with `EngineUnavailable`.

    Half of these did not take effect; the other half did, and only their answer was lost. The same seed fails the same
    calls.
    """

    def __init__(self, store: Store, *, rate: float = 0.2, seed: int = 0) -> None:
        if not 0 <= rate < 1:
            raise InvalidOption(f"rate must be at least 0 and below 1, not {preview(rate)}")
        self._store = store
        self._rate = rate
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self.lost = 0

    def twin(self) -> "FlakyStore":
        return self

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in _FLAKY_PARTS:
            return _FlakyPart(found, self._call)
        return partial(self._call, found) if name in CALLS else found

    async def _call(self, method: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        chance = self._random.random()
        if chance < self._rate / 2:
            raise self._lose("request")
        answer = await method(*args, **options)
        if chance < self._rate:
            raise self._lose("answer")
        return answer

    def _lose(self, what: str) -> EngineUnavailable:
        self.lost += 1
        return EngineUnavailable(f"the {what} was lost, as the test asked for")


class _FlakyPart:
    """The steps or the flows of such a store."""

    def __init__(self, part: object, call: Callable[..., Any]) -> None:
        self._part = part
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, getattr(self._part, name))


# Where a worker can be killed: before the handler begins, after it has returned, after its end is stored; before and
# after what a durable step returned is stored.
Place: TypeAlias = Literal["claimed", "returned", "settled", "step", "stepped"]

_NEW: Final = {AddOutcome.ADDED, AddOutcome.REPLACED}


class Killed(BaseException):
    """Ends the handler in which a test has killed the worker."""


@dataclass(frozen=True, slots=True)
class Death:
    """Where to kill a worker, and with which job; None means any."""

    place: Place
    name: str | None = None
    queue: str | None = None
    id: str | None = None

    def takes(self, place: Place, lease: Lease, name: str) -> bool:
        return place == self.place and all(
            meant is None or meant == found
            for meant, found in ((self.name, name), (self.queue, lease.queue), (self.id, lease.id))
        )


class WatchedStore:
    """A store that calls `stored` with each new job, and `ended` with each attempt that has failed."""

    def __init__(
        self,
        store: Store,
        *,
        stored: Callable[[str, NewJob, str], None],
        ended: Callable[[Lease, Failed | Retried], None],
    ) -> None:
        self._store = store
        self._stored = stored
        self._ended = ended
        self._names: dict[tuple[str, str], str] = {}
        self.death: Death | None = None
        self.victim: Lease | None = None
        self.die: Callable[[], None] = lambda: None
        self.dead: asyncio.Event | None = None  # set when the killed worker is gone
        self._stepped: set[tuple[str, str]] = set()  # jobs that have recorded something
        self.ended_steps: dict[tuple[str, str], list[tuple[str, str]]] = {}  # what they had recorded when they ended

    def twin(self) -> "WatchedStore":
        return self

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self.living(found) if name in CALLS else found

    def living(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The same method, for as long as the worker lives."""

        async def call(*args: Any, **options: Any) -> Any:
            await self._if_alive()
            return await method(*args, **options)

        return call

    async def _if_alive(self) -> None:
        """Block the calls of a dead worker; a loop that waits for them lets others run."""
        await asyncio.sleep(0)
        if self.dead is not None:
            await self.dead.wait()
            raise EngineUnavailable("this worker was killed by the test")

    async def add(self, queue: str, jobs: Sequence[NewJob], **options: Any) -> list[Added]:
        await self._if_alive()
        answers = await self._store.add(queue, jobs, **options)
        self._note([(queue, job) for job in jobs], answers)
        return answers

    @property
    def flows(self) -> "_WatchedFlows":
        return _WatchedFlows(self, self._store.flows)

    @property
    def steps(self) -> "_WatchedSteps":
        return _WatchedSteps(self, self._store.steps)

    async def record(self, queue: str, reports: Sequence[StepReport], **options: Any) -> list[StepAnswer]:
        """Called when durable steps are recorded."""
        await self._if_alive()
        leases = [report.lease for report in reports]
        self._stepped |= {(lease.queue, lease.id) for lease in leases}
        await self._perhaps_die("step", leases)
        answers = await self._store.steps.record(queue, reports, **options)
        await self._perhaps_die("stepped", leases)
        return answers

    async def receive(self, lease: Lease, *args: Any, **options: Any) -> StepAnswer:
        """Called when a durable step looks for signals."""
        await self._if_alive()
        self._stepped.add((lease.queue, lease.id))
        return await self._store.steps.receive(lease, *args, **options)

    async def add_flow(self, nodes: Sequence[FlowNode], **options: Any) -> list[Added]:
        """Called when flows are added."""
        await self._if_alive()
        answers = await self._store.flows.add(nodes, **options)
        self._note([(node.queue, node.job) for node in nodes], answers)
        return answers

    def _note(self, jobs: Sequence[tuple[str, NewJob]], answers: Sequence[Added]) -> None:
        for (queue, job), answer in zip(jobs, answers, strict=True):
            if answer.outcome in _NEW:
                self._stored(queue, job, answer.id)

    async def exchange(self, queue: str, batch: Sequence[Settlement], claim: Claim, **options: Any) -> Exchange:
        await self._if_alive()
        leases = [settlement.lease for settlement in batch]
        await self._perhaps_die("returned", leases)
        await self._remember_steps(batch)
        answer = await self._store.exchange(queue, batch, claim, **options)
        self._names |= {(queue, job.lease.id): job.name for job in answer.jobs}
        await self._perhaps_die("settled", leases)
        await self._perhaps_die("claimed", [job.lease for job in answer.jobs])
        for settlement, verdict in zip(batch, answer.verdicts, strict=True):
            if verdict is Verdict.OK and isinstance(settlement.outcome, Failed | Retried):
                self._ended(settlement.lease, settlement.outcome)
        return answer

    async def _remember_steps(self, batch: Sequence[Settlement]) -> None:
        """What jobs have recorded goes with them if they are not kept."""
        for lease, outcome in ((settlement.lease, settlement.outcome) for settlement in batch):
            job = lease.queue, lease.id
            if isinstance(outcome, Rested):
                self._stepped.add(job)
            elif job in self._stepped and isinstance(outcome, Completed | Failed | Cancelled):
                self.ended_steps[job] = await self._rows(*job)

    async def _rows(self, queue: str, job_id: str) -> list[tuple[str, str]]:
        rows: list[tuple[str, str]] = []
        cursor: str | None = None
        while True:
            page = await self._store.steps.page(queue, job_id, cursor=cursor)
            rows += page.items
            cursor = page.cursor
            if cursor is None:
                return rows

    async def _perhaps_die(self, place: Place, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if self.death is not None and self.death.takes(place, lease, self.name_of(lease)):
                self.victim = lease
                self.kill()
                await self._if_alive()

    def name_of(self, lease: Lease) -> str:
        """The name of a job that was claimed here."""
        return self._names.get((lease.queue, lease.id), "")

    def kill(self) -> None:
        """Drop everything that the running worker sends from now on."""
        self.death, self.dead = None, asyncio.Event()
        self.die()

    def revive(self) -> None:
        """Serve calls again, for the next worker."""
        if self.dead is not None:
            self.dead.set()
            self.dead = None


class _WatchedFlows:
    """The flows of a watched store, which reports what is added."""

    def __init__(self, store: WatchedStore, flows: FlowStore) -> None:
        self._flows = flows
        self.add = store.add_flow

    def __getattr__(self, name: str) -> Any:
        return getattr(self._flows, name)


class _WatchedSteps:
    """The durable steps of a watched store."""

    def __init__(self, store: WatchedStore, steps: StepStore) -> None:
        self._store = store
        self._steps = steps
        self.record = store.record
        self.receive = store.receive

    def __getattr__(self, name: str) -> Any:
        return self._store.living(getattr(self._steps, name))
