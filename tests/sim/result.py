"""One run of a plan in any of the worlds, and what came of it."""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from tests.sim.faults import Storm
from tests.sim.journal import Journal, Violation
from tests.sim.loop import Deadlock, run
from tests.sim.plan import AnyPlan
from tests.sim.store import SimStore
from toril.runtime.logs import log

__all__ = ["Result", "played"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a plan. `world` and `store` are the names by which `kept` knows them."""

    world: str
    store: str
    plan: AnyPlan
    hash: str
    violations: tuple[Violation, ...]
    tally: Counter[str]
    tail: tuple[str, ...]
    lines: tuple[str, ...] = ()
    jobs: int = 0
    effects: int = 0
    seconds: float = 0.0

    @property
    def seed(self) -> int:
        return self.plan.seed

    def __str__(self) -> str:
        found = "\n  ".join(str(violation) for violation in self.violations[:5])
        last = "\n  ".join(self.tail)
        return f"seed {self.seed} of world {self.world} on store {self.store} violated\n  {found}\nlast steps\n  {last}"


class _World(Protocol):
    journal: Journal
    storm: Storm
    store: SimStore

    @property
    def plan(self) -> AnyPlan: ...

    async def run(self) -> None: ...


def played(name: str, world: _World) -> Result:
    """Run a world to its end, on a loop of its own."""
    journal = world.journal
    log.disabled = True  # what workers complain of is what the simulation is made of
    try:
        run(world.run())
    except Deadlock as error:
        journal.violated("I15", str(error))
    except Exception as error:
        journal.violated("error", repr(error))
    finally:
        log.disabled = False
    return Result(
        world=name, store=world.store.name, plan=world.plan, hash=journal.hash, violations=tuple(journal.violations),
        tally=journal.tally + world.storm.tally, tail=tuple(journal.tail), lines=tuple(journal.lines or ()),
    )  # fmt: skip
