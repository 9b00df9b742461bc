"""Seeds that broke a promise, made as small as they can be and kept in `tests/seeds/`, to be run for ever after.

.venv/bin/python -m tests.sim.kept 4711            make this seed small, and keep it
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.sim.faults import Fault
from tests.sim.plan import Plan, Terms
from tests.sim.redis_store import RedisStore
from tests.sim.script import Kind
from tests.sim.store import MemoryStore, SimStore
from tests.sim.world import Result, simulate
from toril.clock import Clock

__all__ = ["SEEDS", "Kept", "keep", "kept", "shrunk"]

SEEDS = Path(__file__).parents[1] / "seeds"

STORES: dict[str, Callable[[Clock], SimStore]] = {"memory": MemoryStore, "redis": RedisStore}

Fails = Callable[[Plan], bool]


@dataclass(frozen=True, slots=True)
class Kept:
    """A plan that once broke a promise, and what was wrong."""

    plan: Plan
    wrong: str
    store: str = "memory"

    def run(self) -> Result:
        return simulate(self.plan.seed, plan=self.plan, store=STORES[self.store])

    def document(self) -> dict[str, Any]:
        plan = asdict(self.plan) | {"healthy": sorted(self.plan.healthy)}
        return {"wrong": self.wrong, "store": self.store, "plan": plan}

    @classmethod
    def read(cls, path: Path) -> "Kept":
        found = json.loads(path.read_text("utf-8"))
        told = found["plan"]
        told["healthy"] = frozenset(told.get("healthy", ()))
        told["terms"] = Terms(**told["terms"])
        told["mix"] = dict.fromkeys(Fault, 0.0) | {Fault(name): rate for name, rate in told["mix"].items()}
        told["weights"] = {Kind(name): weight for name, weight in told["weights"].items()}
        return cls(Plan(**told), found["wrong"], found.get("store", "memory"))


def kept() -> dict[str, Kept]:
    """All there are, by the names of their files."""
    return {path.stem: Kept.read(path) for path in sorted(SEEDS.glob("*.json"))}


def shrunk(plan: Plan, fails: Fails) -> Plan:
    """The smallest plan that still fails: fewer faults, then fewer jobs, then fewer processes, for as long as any of it
    can be left out."""
    smaller = next((each for each in _smaller(plan) if fails(each)), None)
    return plan if smaller is None else shrunk(smaller, fails)


def _smaller(plan: Plan) -> Iterator[Plan]:
    for fault, rate in plan.mix.items():
        if rate:
            yield replace(plan, mix={**plan.mix, fault: 0.0})
    for jobs in (plan.jobs // 2, plan.jobs - 1):
        if plan.producers <= jobs < plan.jobs:
            yield replace(plan, jobs=jobs)
    if plan.workers > 1:
        yield replace(plan, workers=plan.workers - 1)
    if plan.producers > 1:
        yield replace(plan, producers=1)
    calmer = {"operator": False, "clerk": False, "supervised": False, "skew": 0, "farewell": "none"}
    for name, value in calmer.items():
        if getattr(plan, name) != value:
            yield replace(plan, **{name: value})  # type: ignore[arg-type]


def keep(seed: int, folder: Path = SEEDS, *, store: str = "memory", plan: Plan | None = None) -> Path | None:
    """Make the plan of a seed small, and keep it; None if it breaks nothing."""

    def fails(plan: Plan) -> bool:
        return bool(Kept(plan, "", store).run().violations)

    plan = plan or Plan.draw(seed)
    if not fails(plan):
        return None
    plan = shrunk(plan, fails)
    wrong = str(Kept(plan, "", store).run().violations[0])
    folder.mkdir(exist_ok=True)
    path = folder / f"fleet-{seed}.json"
    path.write_text(json.dumps(Kept(plan, wrong, store).document(), indent=1) + "\n", "utf-8")
    return path


if __name__ == "__main__":
    for number in map(int, sys.argv[1:]):
        print(keep(number) or f"{number} breaks nothing")
