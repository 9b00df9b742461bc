"""A world of jobs with durable steps: handlers that play drawn scripts, signals that come early, late and twice, and an
operator who promotes, cancels, rewinds and replays. `step_ledger` holds what must be true: S1 to S11."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from tests.sim.clock import SimClock, stream
from tests.sim.loop import until
from tests.sim.node import Node
from tests.sim.plan import QUEUE, SmallPlan
from tests.sim.remote_store import RemoteStore
from tests.sim.result import Result, played
from tests.sim.small_world import SmallWorld
from tests.sim.step_ledger import Run, StepJob, StepWatch
from tests.sim.store import MemoryStore, SimStore
from toril.context import JobContext, current_step
from toril.errors import EngineUnavailable, PermanentError, StepFailed, TransientError, UsageError
from toril.model import KEEP_ALL, REMOVE, Dedup, GroupLimits, NewSignal, Replay, SetGroups
from toril.model.states import FINISHED, State
from toril.policy.retry import Fixed, Retry
from toril.queue import Queue
from toril.runtime.clock import Clock

__all__ = ["CALLED", "run_steps"]

CALLED: Final = "called"
_SIGNALS: Final = ("s0", "s1")
_DEEPEST: Final = 2
_LAST: Final = ({"do": "step", "name": "last", "slow": 0.02},)  # so that every script has something to record


def run_steps(
    seed: int, *, store: Callable[[Clock], SimStore] = MemoryStore, plan: SmallPlan | None = None, trace: bool = False
) -> Result:
    """Run one seed to its end, on a loop of its own."""
    return played("steps", StepWorld(plan or SmallPlan.draw(seed), store, trace=trace))


def draw_acts(random: Callable[[], float], job: str, depth: int = 0) -> list[dict[str, Any]]:
    """What a handler does, one after the other."""
    many = 1 + int(random() * (4 if depth == 0 else 3))
    return [_draw_act(random, job, depth) for _ in range(many)]


def _draw_act(random: Callable[[], float], job: str, depth: int) -> dict[str, Any]:
    chance = random()
    if chance < 0.3:
        return _draw_step(random)
    if chance < 0.42:
        return {"do": "sleep", "name": "z", "seconds": 0.1 + random() * 1.5}
    if chance < 0.56:
        by_key = depth == 0 and random() < 0.4
        key = f"{job}:{int(random() * 1e9)}" if by_key else None
        timeout = None if random() < 0.4 else 0.2 + random() * 2
        return {"do": "wait", "names": [_signal(random)], "timeout": timeout, "key": key}
    if chance < 0.62:
        return {"do": "wait", "names": list(_SIGNALS), "timeout": 0.2 + random() * 2, "key": None}
    if chance < 0.78 and depth < _DEEPEST:
        branches = [
            [{"do": "work", "seconds": random() * 0.2}, *draw_acts(random, job, depth + 1)]
            for _ in range(2 + int(random() * 2))
        ]
        return {"do": "gather", "branches": branches, "limit": None if random() < 0.7 else 1 + int(random() * 2)}
    if chance < 0.84 and depth == 0:
        return {"do": "pair", "reversed": random() < 0.5, "slow": random() * 0.3}
    if chance < 0.87 and depth == 0:
        return {"do": "beside", "seconds": 0.1 + random(), "slow": random()}
    if chance < 0.9:
        return {"do": "call", "bad": random() < 0.3}
    if chance < 0.93:
        return {"do": "version"}
    if chance < 0.97 and depth == 0:
        return {"do": "swallow", "seconds": 0.1 + random()}
    return {"do": "flaky", "often": 0.5}


def _draw_step(random: Callable[[], float]) -> dict[str, Any]:
    fails = random() < 0.4
    return {
        "do": "step", "name": "abc"[int(random() * 3)], "slow": random() * 0.25, "fails": 0.6 if fails else 0.0,
        "tries": 1 + int(random() * 3) if fails else 1, "delay": 0.0 if random() < 0.3 else random() * 0.8,
        "caught": random() < 0.7,
    }  # fmt: skip


def _signal(random: Callable[[], float]) -> str:
    return _SIGNALS[int(random() * len(_SIGNALS))]


@dataclass
class _Scope:
    """Where names of steps are counted, and the failures that were caught there and before."""

    prefix: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    caught: list[str] = field(default_factory=list)

    def key(self, name: str) -> str:
        self.counts[name] += 1
        number = self.counts[name]
        return f"{self.prefix}{name}" if number == 1 else f"{self.prefix}{name}#{number}"


class _Player:
    """Plays the script of one run, and tells the ledger what it does and sees."""

    def __init__(self, world: "StepWorld", node: Node, clock: SimClock, called: Queue, ctx: JobContext[Any]) -> None:
        self._watch = world.watch
        self._node = node
        self._clock = clock
        self._called = called
        self._ctx = ctx
        self._run: Run = world.watch.run_of(ctx._claimed.lease, ctx.signal)

    async def play(self) -> str:
        try:
            await self._acts(self._ctx.data["acts"], _Scope())
        finally:
            self._run.told_to_rest |= self._ctx.resting
        return self._ctx.job_id

    async def _acts(self, acts: Sequence[dict[str, Any]], scope: _Scope) -> None:
        for act in acts:
            play: Callable[[dict[str, Any], _Scope], Awaitable[None]] = getattr(self, f"_{act['do']}")
            await play(act, scope)

    def _fn(self, key: str, tag: str, act: dict[str, Any], caught: Sequence[str]) -> Callable[[], Awaitable[str]]:
        """The function of a step."""

        async def do() -> str:
            info, cut = current_step(), False
            if info is None or info.key != key:
                self._watch.journal.violated("S2", f"step {key} of {self._run.job.id} runs as {info}")
            self._watch.begins(self._run, key, caught)
            try:
                await self._clock.sleep(act["slow"])
                if self._clock.random() < act.get("fails", 0):
                    reason = f"{tag} try {self._clock.unique()}"
                    self._run.failures[key] = reason
                    raise TransientError(reason)
                return f"{tag}|{self._clock.unique()}"
            except asyncio.CancelledError:
                cut = not (self._node.dead or self._ctx.signal.aborted)
                raise
            finally:
                self._watch.ended(self._run, key, cut=cut)

        return do

    async def _step(self, act: dict[str, Any], scope: _Scope) -> None:
        key = scope.key(act["name"])
        tag = key
        retry = Retry(act["tries"], Fixed(act["delay"])) if act.get("tries", 1) > 1 else None
        try:
            value = await self._ctx.step(act["name"], self._fn(key, tag, act, scope.caught), retry=retry)
        except StepFailed as error:
            self._watch.raised(self._run, key, error.reason)
            if not act["caught"]:
                raise
            scope.caught.append(key)
            self._run.caught.append(key)
            return
        self._watch.returned(self._run, key, value, tag)

    async def _sleep(self, act: dict[str, Any], scope: _Scope) -> None:
        key = scope.key(act["name"])
        await self._ctx.sleep(act["name"], act["seconds"])
        self._watch.slept(self._run, key)

    async def _wait(self, act: dict[str, Any], scope: _Scope) -> None:
        names = act["names"]
        key = scope.key("+".join(names))
        if len(names) == 1:
            payload = await self._ctx.wait_for(names[0], int, timeout=act["timeout"], key=act["key"])
            self._watch.waited(self._run, key, None if payload is None else names[0], payload)
        else:
            found = await self._ctx.wait_for_any(names, timeout=act["timeout"])
            self._watch.waited(self._run, key, *(found or (None, None)))

    async def _gather(self, act: dict[str, Any], scope: _Scope) -> None:
        root = scope.key("gather")
        branches = [
            self._acts(acts, _Scope(f"{root}[{number}]/", caught=list(scope.caught)))
            for number, acts in enumerate(act["branches"])
        ]
        await self._ctx.gather(*branches, limit=act["limit"])

    async def _work(self, act: dict[str, Any], scope: _Scope) -> None:
        """A branch does something outside of steps."""
        del scope
        self._run.at_work += 1
        try:
            await self._clock.sleep(act["seconds"])
        finally:
            self._run.at_work -= 1

    async def _pair(self, act: dict[str, Any], scope: _Scope) -> None:
        """Two of one name, whose numbers are drawn in the order of the text, whichever is awaited first."""
        keys = [scope.key("pair") for _ in range(2)]
        steps: list[Coroutine[Any, Any, Any]] = [
            self._ctx.step("pair", self._fn(key, key, {"slow": act["slow"] * self._clock.random()}, scope.caught))
            for key in keys
        ]
        values: Sequence[Any]
        if self._clock.random() < 0.5:
            values = await asyncio.gather(*steps)
        else:
            second, first = await asyncio.gather(*reversed(steps))
            values = (first, second)
        for key, value in zip(keys, values, strict=True):
            self._watch.returned(self._run, key, value, key)

    async def _beside(self, act: dict[str, Any], scope: _Scope) -> None:
        """A sleep beside a step, without a gather of Toril's."""
        sleep, step = (f"beside{scope.counts['beside']}", f"with{scope.counts['beside']}")
        scope.counts["beside"] += 1
        step_key, sleep_key = scope.key(step), scope.key(sleep)
        _, value = await asyncio.gather(
            self._ctx.sleep(sleep, act["seconds"]),
            self._ctx.step(step, self._fn(step_key, step_key, act, scope.caught)),
        )
        self._watch.slept(self._run, sleep_key)
        self._watch.returned(self._run, step_key, value, step_key)

    async def _call(self, act: dict[str, Any], scope: _Scope) -> None:
        key = scope.key("call")
        try:
            value = await self._ctx.call("call", self._called.new("leaf", {"bad": act["bad"], "tag": key}))
        except StepFailed:
            return
        if act["bad"] or value != key:
            self._watch.journal.violated("S2", f"{key} of {self._run.job.id} returns {value}, of {act}")

    async def _version(self, act: dict[str, Any], scope: _Scope) -> None:
        del act
        key = scope.key("v")
        self._watch.numbered(self._run, key, await self._ctx.version("v", 3))

    async def _swallow(self, act: dict[str, Any], scope: _Scope) -> None:
        """Code that catches everything, even being left to rest."""
        key = scope.key("swallow")
        try:
            await self._ctx.sleep("swallow", act["seconds"])
        except BaseException:
            if not self._ctx.resting or self._node.dead:
                raise
            self._run.told_to_rest = True
            raise _Swallowed from None
        self._watch.slept(self._run, key)

    async def _flaky(self, act: dict[str, Any], scope: _Scope) -> None:
        """The attempt fails, or comes through."""
        del scope
        if self._clock.random() < act["often"]:
            raise TransientError("now and then")


class _Swallowed(Exception):
    """The handler takes its rest for done."""


class StepWorld(SmallWorld):
    """The fleet, whoever sends signals, and an operator."""

    adds_within: ClassVar[float] = 0.4
    meddles_within: ClassVar[float] = 0.4
    refusals: ClassVar[tuple[type[Exception], ...]] = (EngineUnavailable, UsageError)

    def __init__(self, plan: SmallPlan, store: Callable[[Clock], SimStore], *, trace: bool = False) -> None:
        chance = stream(plan.seed, "steps")
        self._keeps = chance.random() < 0.5
        self._grouped = chance.random() < 0.4
        self._sent = 0
        super().__init__(plan, store, trace=trace, watch=StepWatch)
        self.watch.lease = plan.terms.lease

    @property
    def watch(self) -> StepWatch:
        assert isinstance(self.witness, StepWatch)
        return self.witness

    async def _live(self) -> None:
        if self._grouped:
            await self._remote(Node("healer"), calm=True).configure(QUEUE, [SetGroups(GroupLimits(concurrency=1))])
        await super()._live()

    def _queues(self, store: RemoteStore, clock: SimClock) -> list[Queue]:
        keep = KEEP_ALL if self._keeps else REMOVE
        (queue,) = self._declare(store, clock, QUEUE, retry=Retry(4, Fixed(0.3)), keep_completed=keep, keep_failed=keep)
        (called,) = self._declare(store, clock, CALLED, keep_completed=REMOVE, keep_failed=REMOVE)

        async def play(ctx: JobContext[Any]) -> str:
            try:
                return await _Player(self, store.node, clock, called, ctx).play()
            except _Swallowed:
                return "swallowed"

        async def leaf(ctx: JobContext[Any]) -> str:
            await clock.sleep(clock.random() * 0.3)
            if ctx.data["bad"]:
                raise PermanentError("by its script")
            return str(ctx.data["tag"])

        queue.handlers.register_all({"play": play})
        called.handlers.register_all({"leaf": leaf})
        return [queue, called]

    async def _add(self, clock: SimClock, queues: Sequence[Queue]) -> None:
        """A job with a script of its own, and perhaps a signal for it that comes too early."""
        name = f"j{self._added}"
        acts = [*draw_acts(clock.random, name), *_LAST]
        options: dict[str, Any] = {"job_id": name}
        chance = clock.random()
        if chance < 0.25:
            options = {"dedup": Dedup("same", mode="replace"), "delay": 0.3}
        elif self._grouped:
            options["group"] = f"g{int(clock.random() * 2)}"
        await queues[0].add("play", {"acts": acts}, **options)
        for _ in range(int(clock.random() * 4)):
            await clock.sleep(clock.random() * 0.5)
            await self._send(clock, queues[0])

    async def _send(self, clock: SimClock, queue: Queue) -> None:
        """A signal for some job, or by a key that some job waits for."""
        jobs = [job for job in self.watch.jobs.values() if job.end is None or clock.random() < 0.1]
        if not jobs:
            return
        job = jobs[int(clock.random() * len(jobs))]
        waits = [wait for reason in job.reasons or () for wait in reason.signals]
        wait = waits[int(clock.random() * len(waits))] if waits and clock.random() < 0.6 else None
        name = _signal(clock.random) if wait is None else wait.name
        key = None if wait is None else wait.key
        self._sent += 1
        payload = f'"unfit {self._sent}"' if clock.random() < 0.1 else str(self._sent)
        identity = f"id{int(clock.random() * 12)}" if clock.random() < 0.4 else None
        signal = NewSignal(
            name=name, payload=payload, job_id=job.id if key is None else None, key=key, id=identity, ttl=60_000
        )
        await queue.services.call(lambda call: queue.store.steps.deliver(QUEUE, [signal], call=call))

    async def _meddle(self, clock: SimClock, queues: Sequence[Queue]) -> None:
        """What people do by hand."""
        queue = queues[0]
        store, send = queue.store, queue.services.call
        await self._send(clock, queue)
        jobs = list(self.watch.jobs.values())
        if not jobs:
            return
        job = jobs[int(clock.random() * len(jobs))]
        chance = clock.random()
        if chance < 0.25:
            await send(lambda call: store.promote(QUEUE, [job.id], call=call))
        elif chance < 0.5:
            keys = [None, *sorted(job.rows)]
            to = keys[int(clock.random() * len(keys))]
            await send(lambda call: store.steps.rewind(QUEUE, job.id, to, call=call))
        elif chance < 0.6:
            await send(lambda call: store.cancel(QUEUE, [job.id], reason="enough", call=call))
        elif chance < 0.65:
            await send(lambda call: store.drain(QUEUE, states=frozenset({State.DELAYED}), call=call))
        elif chance < 0.7:
            await send(lambda call: store.remove(QUEUE, [job.id], call=call))
        elif chance < 0.85:
            await send(lambda call: store.retry(QUEUE, [job.id], call=call))
        else:
            await self._replay(queue)

    async def _replay(self, queue: Queue) -> None:
        store = queue.store
        letters = (await store.dead_letters.page(limit=3)).items
        replays = [Replay(letter.id) for letter in letters if letter.queue == QUEUE]
        if replays:
            await queue.services.call(lambda call: store.dead_letters.replay(QUEUE, replays, call=call))

    async def _finish(self) -> None:
        """All that can run does, until each job has ended or rests for a signal. Then these get one, and so on."""
        store = self._remote(Node("healer"), calm=True)
        bound = 20 * self._lateness + 60
        while not self._is_broken() and not self._all_ended():
            if not await until(lambda: self._is_broken() or not self._unsettled(), bound):
                left = self._unsettled()
                row = "S7" if any(job.group is not None for job in left) else "S4"
                self.journal.violated(row, f"stuck {bound:.0f} s after the last fault: {left}")
                return
            for job in list(self.watch.jobs.values()):
                for reason in job.reasons or ():
                    await self._answer(store, job.id, reason.signals[0])

    def _unsettled(self) -> list[StepJob]:
        """Those that have not ended, and do not rest for a signal alone."""
        alive = [job for job in self.watch.jobs.values() if job.end is None]
        late = self.watch.now() + 3_600_000
        return [job for job in alive if job.reasons is None or job.for_children or (job.until or late) < late]

    async def _answer(self, store: RemoteStore, job: str, wait: Any) -> None:
        self._sent += 1
        to = {"job_id": job} if wait.key is None else {"key": wait.key}
        signal = NewSignal(name=wait.name, payload=str(self._sent), **to)
        await store.steps.deliver(QUEUE, [signal])

    def _all_ended(self) -> bool:
        return all(job.end is not None for job in self.watch.jobs.values())

    async def _check(self) -> None:
        """All have ended. Once they are removed, nothing is left of their steps (S10)."""
        store = self.store.view()
        counts = await store.counts(QUEUE)
        if any(counts.of(state) for state in State if state not in FINISHED) or counts.resting:
            self.journal.violated("S10", f"all have ended, and the queue has {counts}")
        for state in FINISHED:
            ids = [row.id for row in (await store.page(QUEUE, state, limit=1000)).items]
            if ids:
                await store.remove(QUEUE, ids)
        letters = [letter.id for letter in (await store.dead_letters.page(limit=100)).items]
        if letters:
            await store.dead_letters.discard(letters)
        for text in (*self.store.contradictions(), *self.store.left_of_steps()):
            self.journal.violated("S10", text)
