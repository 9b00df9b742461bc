"""One handler of six steps with a rest and a signal, whose worker is killed at one of its awaits, or at one call to the
store."""

from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from tests.sim.clock import SimClock
from tests.sim.faults import CALM, Fate, Point
from tests.sim.loop import until
from tests.sim.node import Node
from tests.sim.plan import QUEUE, SmallPlan
from tests.sim.remote_store import RemoteStore
from tests.sim.small_world import SmallWorld
from tests.sim.step_ledger import StepWatch
from tests.sim.store import SimStore
from toril.context import JobContext, current_step
from toril.model import KEEP_ALL, NewSignal
from toril.queue import Queue
from toril.runtime.clock import Clock

__all__ = ["KillWorld"]

_RIGHT: Final = '["ONE","TWO","THREE","FOUR",7,"FIVE","SIX"]'
_KEYS: Final = ("one", "two", "three", "four", "five", "six")
_WAITS: Final = frozenset({"wait", "finished", "health"})  # calls that change nothing


class _DyingAtAwait:
    """Runs a handler, and counts its awaits: at one of them its process is killed."""

    def __init__(self, handler: Awaitable[Any], awaits: Callable[[], None]) -> None:
        self._handler = handler
        self._awaits = awaits

    def __await__(self) -> Generator[Any, Any, Any]:
        waiting = self._handler.__await__()
        error: BaseException | None = None
        while True:
            try:
                found = next(waiting) if error is None else waiting.throw(error)
            except StopIteration as done:
                return done.value
            self._awaits()
            error = None
            try:
                yield found
            except BaseException as raised:
                error = raised


class KillWorld(SmallWorld):
    """One job, one worker at a time, and one death at most."""

    adds_within: ClassVar[float] = 0.01

    def __init__(
        self, store: Callable[[Clock], SimStore], *, at_await: int = 0, at_call: int = 0, point: Point | None = None
    ) -> None:
        super().__init__(replace(SmallPlan.calm(), tasks=1, storm=0.1), store, watch=StepWatch)
        self.watch.lease = self.plan.terms.lease
        self.awaits = 0
        self.calls = 0
        self.began = Counter[str]()
        self.deaths = 0
        self._at_await = at_await
        self._at_call = at_call
        self._point = point
        self._weather = self
        self.patience = 0.1

    @property
    def watch(self) -> StepWatch:
        assert isinstance(self.witness, StepWatch)
        return self.witness

    def fate(self, node: str, what: str) -> Fate:
        """What becomes of a call."""
        if not node.startswith("w") or what in _WAITS:
            return CALM
        self.calls += 1
        if self._point is None or self.calls != self._at_call:
            return CALM
        self.deaths += 1
        return Fate(crash=self._point)

    def _awaited(self, node: Node) -> None:
        self.awaits += 1
        if self.awaits == self._at_await:
            self.deaths += 1
            node.kill()

    def _queues(self, store: RemoteStore, clock: SimClock) -> list[Queue]:
        (queue,) = self._declare(store, clock, QUEUE, keep_completed=KEEP_ALL, keep_failed=KEEP_ALL)

        async def act(ctx: JobContext[None], name: str) -> str:
            info, run = current_step(), self.watch.run_of(ctx._claimed.lease, ctx.signal)
            assert info is not None
            self.watch.begins(run, info.key, ())
            if info.key in run.job.rows:
                self.journal.violated("S1", f"step {info.key} begins, and its row is in the store")
            self.began[info.key] += 1
            try:
                await clock.sleep(0.01)
                await clock.sleep(0.01)
                return name.upper()
            finally:
                self.watch.ended(run, info.key, cut=False)

        async def handler(ctx: JobContext[None]) -> Any:
            found: list[Any] = [await ctx.step("one", act, ctx, "one")]
            found += await ctx.gather(*(ctx.step(name, act, ctx, name) for name in ("two", "three")))
            await ctx.sleep("rest", 1)
            found.append(await ctx.step("four", act, ctx, "four"))
            found.append(await ctx.wait_for("go", int, timeout=3600))
            return found + [await ctx.step(name, act, ctx, name) for name in ("five", "six")]

        async def play(ctx: JobContext[None]) -> Any:
            return await _DyingAtAwait(handler(ctx), lambda: self._awaited(store.node))

        queue.handlers.register_all({"play": play})
        return [queue]

    async def _add(self, clock: SimClock, queues: Sequence[Queue]) -> None:
        del clock
        await queues[0].add("play", job_id="j")

    async def _meddle(self, clock: SimClock, queues: Sequence[Queue]) -> None:
        """Nobody does anything by hand."""

    async def _finish(self) -> None:
        """The signal comes when the job rests for it; then it ends."""
        await until(lambda: self._is_broken() or self._rests_for_signal(), 60)
        store = self._remote(Node("clerk"), calm=True)
        await store.steps.deliver(QUEUE, [NewSignal(name="go", payload="7", job_id="j", id="once")])
        await until(lambda: self._is_broken() or self.watch.jobs["j"].end is not None, 60)

    def _rests_for_signal(self) -> bool:
        return any(reason.signals for reason in self.watch.jobs["j"].reasons or ())

    async def _check(self) -> None:
        (job,) = await self.store.view().jobs(QUEUE, ["j"])
        if job is None or job.result != _RIGHT:
            self.journal.violated("S2", f"the job has come to {job}")
        again = sum(self.began.values()) - len(_KEYS)
        if self.began.keys() != set(_KEYS) or again > 2 * self.deaths or max(self.began.values()) > 1 + self.deaths:
            self.journal.violated("S1", f"after {self.deaths} deaths the steps began {dict(self.began)} times")
