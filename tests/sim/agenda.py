"""A world of recurring jobs and of jobs that only one at a time may be, on the real workers, under the same faults.

It stands beside `world`, whose checks follow each single job: here they look at what schedules and keys come to.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final

from tests.sim.chaos import Chaos
from tests.sim.clock import SimClock, stream
from tests.sim.faults import CALM, Fate, Storm, Weather
from tests.sim.journal import Journal
from tests.sim.line import Line, Watch
from tests.sim.loop import until
from tests.sim.node import Node
from tests.sim.plan import QUEUE, AgendaPlan, StruckCall
from tests.sim.result import Result, played
from tests.sim.station import Home, KeptAside
from tests.sim.store import MemoryStore, SimStore
from tests.sim.tidy import check_keys, check_schedules
from toril.context import JobContext
from toril.errors import EngineUnavailable, TransientError
from toril.events import Events
from toril.model import REMOVE, Dedup
from toril.policy.retry import Fixed, Retry
from toril.queue import Queue, QueueOptions
from toril.runtime.clock import Clock
from toril.runtime.hooks import Hooks
from toril.schedule import boot
from toril.worker.process import WorkerProcess

__all__ = ["Agenda", "is_struck", "keep_agenda"]

_RESTART: Final = 0.15  # seconds until a killed process is started again
_CATCH_UP: Final = 30  # seconds for schedules that are behind when the faults are over
_DEDUPS: Final = (
    Dedup("until-end"), Dedup("until-end"), Dedup("last", mode="keep_last"), Dedup("last", mode="keep_last"),
    Dedup("throttle", ttl=1.5), Dedup("debounce", ttl=1.0, mode="replace"), Dedup("later", mode="reschedule"),
)  # fmt: skip


def keep_agenda(
    seed: int, *, store: Callable[[Clock], SimStore] = MemoryStore, plan: AgendaPlan | None = None, trace: bool = False
) -> Result:
    """Run one seed to its end, on a loop of its own."""
    return played("agenda", Agenda(plan or AgendaPlan.draw(seed), store, trace=trace))


def is_struck(what: str) -> bool:
    """Whether a plan with a single fault counts calls like this one."""
    return what.startswith("schedules") or what in {"exchange", "add", "recover"}


class OneCall:
    """The weather of a plan with a single fault: calm, but for one call of the first worker."""

    patience = 0.1

    def __init__(self, fault: StruckCall) -> None:
        self._fault = fault
        self._calls = 0

    def fate(self, node: str, what: str) -> Fate:
        if node != "w0" or not is_struck(what):
            return CALM
        self._calls += 1
        return self._fault.fate if self._calls - 1 == self._fault.at else CALM


class Agenda:
    """The fleet, its schedules and its keys."""

    def __init__(self, plan: AgendaPlan, store: Callable[[Clock], SimStore], *, trace: bool = False) -> None:
        self.plan = plan
        self.journal = Journal(lines=[] if trace else None)
        clock = SimClock(stream(plan.seed, "store"))
        self.store = store(clock)
        self.witness = Watch(self.journal, self.store, clock)
        self.storm = Storm(stream(plan.seed, "calls"), plan.mix, patience=plan.patience, lateness=self._lateness)
        self.nodes: dict[str, Node] = {}
        self._weather: Weather = self.storm if plan.struck_call is None else OneCall(plan.struck_call)
        self._births: Counter[str] = Counter()
        self._tasks: list[asyncio.Task[None]] = []
        self._group = asyncio.TaskGroup()
        self._added = 0
        self._calm = False
        self._closing = False

    @property
    def _lateness(self) -> float:
        return self.plan.terms.lease / 1000

    async def run(self) -> None:
        await self.store.open()
        async with self._group:
            try:
                await self._live()
            finally:
                self._closing = True
                for node in self.nodes.values():
                    node.kill()
                for task in self._tasks:
                    task.cancel()
        await self.store.close()

    async def _live(self) -> None:
        plan = self.plan
        for n in range(plan.workers):
            self._start(self._keep_alive(f"w{n}", self._work))
        self._start(self._keep_alive("p0", self._produce))
        if plan.meddler:
            self._start(self._keep_alive("op", self._meddle))
        chaos = Chaos(self)  # type: ignore[arg-type]
        for work in chaos.works():
            self._start(work)
        await until(self._is_broken, plan.storm)
        await until(lambda: self._is_broken() or self._added >= plan.tasks, 2 * plan.storm)
        await chaos.end()
        await self._come_to_rest()

    async def _come_to_rest(self) -> None:
        """The faults are over: what was lost is taken back, what is due is run, then all stop."""
        self._calm = True
        for name in ("op", "p0"):
            if name in self.nodes:
                self.nodes[name].kill()
        await until(self._is_broken, 2 * self._lateness + 1)
        line = self._line(Node("healer"), calm=True)
        self.witness.calm_at = self.witness.now()
        dynamic = self._queue(line, SimClock(stream(self.plan.seed, "healer")))
        if any(view.id == "made" for view in (await dynamic.schedules.list()).items):
            await dynamic.schedules.resume("made")
        await until(self._is_broken, 2 * self._lateness + self.plan.rest)
        await self._catch_up()
        self._closing = True
        for node in self.nodes.values():
            if node.stop is not None and not node.dead:
                node.stopping = True
                node.stop()
        await until(lambda: all(node.dead or node.over for node in self.nodes.values()), 30)
        if not self._is_broken():
            await check_schedules(self.journal, self.witness, self.store.view())
            await check_keys(self.journal, self.witness, self.store.view())

    async def _catch_up(self) -> None:
        """Who makes up for every time that was missed, one run after the other, may need longer; but not for ever."""
        for _ in range(_CATCH_UP):
            views = (await self.store.view().schedules.page(QUEUE)).items
            behind = [view for view in views if not view.paused and not view.over and view.slot < self.witness.calm_at]
            if not behind or self._is_broken():
                return
            await asyncio.sleep(1.0)

    def _is_broken(self) -> bool:
        return bool(self.journal.violations)

    # processes

    def _start(self, work: Coroutine[Any, Any, None], context: Context | None = None) -> asyncio.Task[None]:
        task = self._group.create_task(work, context=context)
        self._tasks.append(task)
        return task

    async def _keep_alive(self, name: str, work: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
        while not self._closing and not (self._calm and work != self._work):
            self._births[name] += 1
            node = self.nodes[name] = Node(name if self._births[name] == 1 else f"{name}.{self._births[name]}")
            node.root = self._start(self._live_on(node, work), node.main.context())
            await asyncio.wait({node.root})
            self.journal.tally[f"process {'died' if node.dead else 'ended'}"] += 1
            await asyncio.sleep(_RESTART)

    async def _live_on(self, node: Node, work: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
        try:
            await work(node)
        except EngineUnavailable:
            self.journal.tally["could not start"] += 1
        except Exception as error:
            if not node.dead:
                self.journal.violated("error", f"{node.name} crashed: {error!r} {getattr(error, 'exceptions', '')}")
        finally:
            node.over = True

    def _line(self, node: Node, *, calm: bool = False) -> Line:
        weather = self._weather
        if calm:
            weather = storm = Storm(stream(self.plan.seed, "calm"), self.plan.mix, patience=1.0, lateness=0.0)
            storm.end()
        return Line(
            node, self.store, weather, self.witness, lambda work: self._group.create_task(work, context=Context())
        )

    def _queue(self, line: Line, clock: Clock) -> Queue:
        terms = self.plan.terms
        options = QueueOptions(
            concurrency=terms.slots, lease=terms.lease, renew=terms.lease // 3, max_stalls=terms.max_stalls,
            retry=Retry(2, Fixed(0.3)), keep_completed=REMOVE, keep_failed=REMOVE,
        )  # fmt: skip
        queue = Queue(Home(line.node.name, line, clock), QUEUE, options)

        async def tick(ctx: JobContext[Any]) -> None:
            await clock.sleep(0.05 + clock.random() * 0.4)
            if clock.random() < 0.1:
                raise TransientError("now and then")

        async def task(ctx: JobContext[Any]) -> None:
            self.witness.ran(ctx.data["nonce"])
            await tick(ctx)

        queue.handlers.register_all({"tick": tick, "task": task})
        queue.schedule("each", "tick", every=1, catch_up="all")
        queue.schedule("skips", "tick", every=0.7, overlap="skip")
        queue.schedule("cron", "tick", cron="*/2 * * * * *", catch_up="all", overlap="queue_one")
        return queue

    async def _work(self, node: Node) -> None:
        clock = SimClock(stream(self.plan.seed, node.name), name=node.name, node=node, skew=self.plan.skew)
        line = self._line(node)
        queue = self._queue(line, clock)
        await boot(line.schedules, [queue], [queue], owner="sim")
        process = WorkerProcess(
            [queue], line, clock, Events(), Hooks(), name=node.name, version="simulated",
            owner="sim", schedules=line.schedules, grace=self.plan.terms.grace,
        )  # fmt: skip
        node.stop = process.stop
        await process.run(KeptAside(self._line(node), clock, node), None)

    async def _produce(self, node: Node) -> None:
        """Adds jobs of a few keys, again and again."""
        clock = SimClock(stream(self.plan.seed, node.name), name=node.name, node=node)
        queue = self._queue(self._line(node), clock)
        while self._added < self.plan.tasks:
            await clock.sleep(clock.random() * 0.5)
            self._added += 1
            dedup = _DEDUPS[int(clock.random() * len(_DEDUPS))]
            delay = 0.4 if dedup.mode in {"replace", "reschedule"} else 0
            try:
                await queue.add("task", {"nonce": f"n{self._added}"}, dedup=dedup, delay=delay)
            except EngineUnavailable:
                self.journal.tally["add given up"] += 1
        await clock.sleep(3600)

    async def _meddle(self, node: Node) -> None:
        """Makes, changes, pauses and removes a schedule of its own, and removes runs and jobs by hand."""
        clock = SimClock(stream(self.plan.seed, node.name), name=node.name, node=node)
        queue = self._queue(self._line(node), clock)
        schedules = queue.schedules
        while True:
            await clock.sleep(clock.random() * 0.6)
            try:
                match int(clock.random() * 6):
                    case 0 | 1:
                        data = {"v": int(clock.random() * 3)}
                        await schedules.put("made", "tick", data, every=0.9 if clock.random() < 0.7 else 1.3)
                    case 2:
                        await queue.store.schedules.pause(QUEUE, "made")
                    case 3:
                        if (await queue.store.schedules.get(QUEUE, "made")).view is not None:
                            await schedules.resume("made")
                    case 4:
                        await schedules.remove("made")
                    case _:
                        view = (await queue.store.schedules.get(QUEUE, "skips")).view
                        ids = [f"repeat:skips:{view.slot if view else 0}", *self.witness.some_ids()]
                        await queue.call(lambda call, ids=ids: queue.store.remove(QUEUE, ids, call=call))  # type: ignore[misc]
            except EngineUnavailable:
                self.journal.tally["control given up"] += 1
