"""A world of recurring jobs and of jobs that only one at a time may be: it looks at what schedules and keys come to."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from tests.sim.clock import SimClock, stream
from tests.sim.faults import CALM, Fate
from tests.sim.loop import until
from tests.sim.node import Node
from tests.sim.plan import QUEUE, SmallPlan, StruckCall
from tests.sim.remote_store import RemoteStore
from tests.sim.result import Result, played
from tests.sim.small_world import SmallWorld
from tests.sim.store import MemoryStore, SimStore
from tests.sim.tidy import check_keys, check_schedules
from toril.context import JobContext
from toril.errors import EngineUnavailable, NotFound, TransientError
from toril.model import REMOVE, Dedup
from toril.policy.retry import Fixed, Retry
from toril.queue import Queue
from toril.runtime.clock import Clock
from toril.schedule import boot

__all__ = ["ScheduleWorld", "is_struck", "run_schedules"]

_CATCH_UP: Final = 30  # seconds for schedules that are behind when the faults are over
_DEDUPS: Final = (
    Dedup("until-end"), Dedup("until-end"), Dedup("last", mode="keep_last"), Dedup("last", mode="keep_last"),
    Dedup("throttle", ttl=1.5), Dedup("debounce", ttl=1.0, mode="replace"), Dedup("later", mode="reschedule"),
)  # fmt: skip


def run_schedules(
    seed: int, *, store: Callable[[Clock], SimStore] = MemoryStore, plan: SmallPlan | None = None, trace: bool = False
) -> Result:
    """Run one seed to its end, on a loop of its own."""
    return played("agenda", ScheduleWorld(plan or SmallPlan.draw(seed), store, trace=trace))


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


class ScheduleWorld(SmallWorld):
    """The fleet, its schedules and its keys."""

    # a removal whose answer was lost may reach the store after the next change, which then finds no schedule
    refusals: ClassVar[tuple[type[Exception], ...]] = (EngineUnavailable, NotFound)

    def __init__(self, plan: SmallPlan, store: Callable[[Clock], SimStore], *, trace: bool = False) -> None:
        super().__init__(plan, store, trace=trace)
        if plan.struck_call is not None:
            self._weather = OneCall(plan.struck_call)

    def _queues(self, store: RemoteStore, clock: SimClock) -> list[Queue]:
        queues = self._declare(
            store, clock, QUEUE, retry=Retry(2, Fixed(0.3)), keep_completed=REMOVE, keep_failed=REMOVE
        )
        queue = queues[0]

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
        return queues

    async def _boot(self, store: RemoteStore, queues: Sequence[Queue]) -> None:
        await boot(store.schedules, queues, queues, owner="sim")

    async def _add(self, clock: SimClock, queues: Sequence[Queue]) -> None:
        """A job of one of a few keys."""
        dedup = _DEDUPS[int(clock.random() * len(_DEDUPS))]
        delay = 0.4 if dedup.mode in {"replace", "reschedule"} else 0
        await queues[0].add("task", {"nonce": f"n{self._added}"}, dedup=dedup, delay=delay)

    async def _meddle(self, clock: SimClock, queues: Sequence[Queue]) -> None:
        """Make, change, pause or remove a schedule, or remove runs and jobs."""
        queue = queues[0]
        match int(clock.random() * 6):
            case 0 | 1:
                data = {"v": int(clock.random() * 3)}
                await queue.schedules.put("made", "tick", data, every=0.9 if clock.random() < 0.7 else 1.3)
            case 2:
                await queue.store.schedules.pause(QUEUE, "made")
            case 3:
                if (await queue.store.schedules.get(QUEUE, "made")).view is not None:
                    await queue.schedules.resume("made")
            case 4:
                await queue.schedules.remove("made")
            case _:
                view = (await queue.store.schedules.get(QUEUE, "skips")).view
                ids = [f"repeat:skips:{view.slot if view else 0}", *self.witness.some_ids()]
                await queue.services.call(lambda call: queue.store.remove(QUEUE, ids, call=call))

    async def _finish(self) -> None:
        """What was lost is recovered, what is due is run."""
        store = self._remote(Node("healer"), calm=True)
        self.witness.calm_at = self.witness.now()
        dynamic = self._queues(store, SimClock(stream(self.plan.seed, "healer")))[0]
        if any(view.id == "made" for view in (await dynamic.schedules.list()).items):
            await dynamic.schedules.resume("made")
        await until(self._is_broken, 2 * self._lateness + self.plan.rest)
        await self._catch_up()

    async def _catch_up(self) -> None:
        """Who makes up for every time that was missed, one run after the other, may need longer; but not for ever."""
        for _ in range(_CATCH_UP):
            views = (await self.store.view().schedules.page(QUEUE)).items
            behind = [view for view in views if not view.paused and not view.over and view.slot < self.witness.calm_at]
            if not behind or self._is_broken():
                return
            await asyncio.sleep(1.0)

    async def _check(self) -> None:
        await check_schedules(self.journal, self.witness, self.store.view())
        await check_keys(self.journal, self.witness, self.store.view())
