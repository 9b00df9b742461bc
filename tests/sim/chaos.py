"""What befalls processes, connections and the store, while the storm lasts."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal

from tests.sim.clock import EPOCH, stream
from tests.sim.faults import KIND, Fault
from tests.sim.loop import until
from tests.sim.node import Node

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["Chaos"]


class Chaos:
    """Kills, pauses, cuts, restarts and stops, each at its own rate."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = stream(world.plan.seed, "chaos")
        self._restarting = False

    def works(self) -> list[Coroutine[Any, Any, None]]:
        """One for each kind of fault that this seed has."""
        kinds: dict[Fault, Callable[[], Coroutine[Any, Any, None]]] = {
            Fault.KILL: self._kill,
            Fault.PAUSE: self._pause,
            Fault.CUT: self._cut,
            Fault.RESTART: self._restart,
            Fault.STOP: self._stop,
            Fault.SWIZZLE: self._swizzle,
            Fault.WALL_CLOCK: self._step_wall_clock,
            Fault.STORE_CLOCK: self._jump_store_clock,
        }
        mix = self._world.plan.mix
        return [self._again_and_again(mix[kind], kind, act) for kind, act in kinds.items() if mix[kind]]

    async def end(self) -> None:
        """Mend everything: nothing is paused, cut or down any more."""
        world = self._world
        world.storm.end()
        await until(lambda: not self._restarting, 30)
        for node in world.nodes.values():
            node.resume()
        world.journal.note(f"{world.witness.now() - EPOCH} calm")

    async def _again_and_again(self, gap: float, kind: Fault, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / gap))
            if self._world.storm.over:
                return
            self._world.journal.tally[kind] += 1
            await act()

    def _victim(self) -> Node:
        nodes = self._victims()
        return nodes[int(self._chance.random() * len(nodes))]

    def _victims(self) -> list[Node]:
        """All but those that are spared."""
        spared = getattr(self._world.plan, "healthy", ())  # of the other worlds none is
        return [node for name, node in self._world.nodes.items() if name not in spared]

    def _counts(self, kind: str) -> None:
        """Of which kind exactly a fault was."""
        self._world.journal.tally[f"{KIND}{kind}"] += 1

    def _note(self, text: str) -> None:
        self._world.journal.note(f"{self._world.witness.now() - EPOCH} {text}")

    async def _kill(self) -> None:
        victim = self._victim()
        self._note(f"kill {victim.name}")
        self._counts("worker killed" if victim.stop is not None else "other process killed")
        victim.kill()

    async def _pause(self) -> None:
        """One process; sometimes the whole machine, as when a lid is shut."""
        victims = self._victims() if self._chance.random() < 0.2 else [self._victim()]
        seconds = self._chance.uniform(0.2, 2.5) * self._world.plan.terms.lease / 1000
        self._note(f"pause {[victim.name for victim in victims]} for {seconds:.3f} s")
        self._world.journal.tally["whole machine paused"] += len(victims) > 1
        self._counts("whole machine paused" if len(victims) > 1 else "process paused")
        for victim in victims:
            victim.pause()
        await asyncio.sleep(seconds)
        for victim in victims:
            victim.resume()

    async def _cut(self) -> None:
        victim = self._victim()
        way: Literal["request", "reply"] = "request" if self._chance.random() < 0.5 else "reply"
        self._note(f"cut {victim.name}, {way}s are lost")
        self._counts("requests cut off" if way == "request" else "replies cut off")
        self._world.storm.cut(victim.name, way)
        await asyncio.sleep(self._chance.uniform(0.1, 2.0) * self._world.plan.terms.lease / 1000)
        self._world.storm.mend(victim.name)

    async def _swizzle(self) -> None:
        """Connections go one by one, and come back in another order."""
        names = [node.name for node in self._victims()]
        chosen = self._chance.sample(names, self._chance.randint(1, len(names)))
        self._note(f"swizzle {chosen}")
        self._counts("connections cut one by one")
        pause = 0.3 * self._world.plan.terms.lease / 1000
        for name in chosen:
            self._world.storm.cut(name, "request" if self._chance.random() < 0.5 else "reply")
            await asyncio.sleep(self._chance.random() * pause)
        for name in self._chance.sample(chosen, len(chosen)):
            self._world.storm.mend(name)
            await asyncio.sleep(self._chance.random() * pause)

    async def _step_wall_clock(self) -> None:
        """Of one process: nothing may hang on it."""
        victim, ms = self._victim(), self._chance.choice((-7_200_000, -1500, 1500, 7_200_000))
        self._note(f"the clock of {victim.name} steps by {ms} ms")
        self._counts(f"wall clock set {'back' if ms < 0 else 'ahead'} by {'hours' if abs(ms) > 1500 else 'a second'}")
        clock = self._world.clocks.get(victim.name)
        if clock is not None:
            clock.step(ms)

    async def _jump_store_clock(self) -> None:
        """Forward leases run out early, backward they live longer; nobody is to blame for a lease lost by that."""
        ms = int(self._chance.uniform(-1, 1) * self._world.plan.terms.lease)
        self._note(f"the clock of the store jumps by {ms} ms")
        self._counts(f"store's clock set {'back' if ms < 0 else 'ahead'}")
        for node in self._world.nodes.values():
            node.delays += 1
        self._world.store_clock.step(ms)

    async def _stop(self) -> None:
        """As a deployment does; and sometimes a second time, by someone who does not want to wait."""
        victim = self._victim()
        if victim.stop is None or victim.dead or victim.over:
            return
        self._note(f"stop {victim.name}")
        victim.stop()
        twice = self._chance.random() < 0.3
        self._counts("fast shutdown" if twice else "graceful shutdown")
        if twice:
            await asyncio.sleep(self._chance.random())
            victim.stop()

    async def _restart(self) -> None:
        """Every connection breaks; what was committed is there again after a while."""
        store = self._world.store
        self._note("store down")
        self._restarting, store.up, store.epoch = True, False, store.epoch + 1
        long = self._chance.random() < 0.2  # longer than anyone's patience
        self._counts("long store outage" if long else "store restarted")
        await asyncio.sleep(self._chance.uniform(5, 12) if long else self._chance.uniform(0.02, 0.5))
        await store.restart()
        store.up, self._restarting = True, False
        self._note("store up")
