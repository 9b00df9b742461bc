"""Plans that broke a promise, as files from which one command runs them again: `python -m tests.sim.replay FILE`.

`tests/seeds/` holds those that were made as small as they can be, and every run of the tests replays them. A test that
fails writes its plan as it is into `.proof/seeds/`, so that it changes nothing in the repository.
"""

import hashlib
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from tests.proof import FIGURES
from tests.sim.circuit_world import run_circuits
from tests.sim.faults import CALM, Fate, Fault, Point
from tests.sim.flow_world import run_flows
from tests.sim.journal import Violation
from tests.sim.plan import AnyPlan, Plan, SmallPlan, StruckCall, Terms
from tests.sim.redis_store import RedisStore
from tests.sim.result import Result
from tests.sim.schedule_world import run_schedules
from tests.sim.script import Kind
from tests.sim.step_world import run_steps
from tests.sim.store import FileStore, MemoryStore, SimStore
from tests.sim.world import simulate
from toril.runtime.clock import Clock

__all__ = ["KINDS", "SEEDS", "STORES", "Kept", "Trial", "assert_clean", "command", "keep", "kept", "shrunk", "write"]

ROOT: Final = Path(__file__).parents[2]
SEEDS: Final = ROOT / "tests" / "seeds"
FAILED: Final = FIGURES.parent / "seeds"
_MOST_TRIES: Final = 300  # plans that are tried to make one small

STORES: Final[dict[str, Callable[[Clock], SimStore]]] = {
    "memory": MemoryStore, "sqlite": FileStore, "redis": RedisStore,
}  # fmt: skip


class _Play(Protocol):
    def __call__(self, seed: int, *, store: Callable[[Clock], SimStore], plan: Any, trace: bool) -> Result: ...


WORLDS: Final[dict[str, _Play]] = {
    "fleet": simulate, "agenda": run_schedules, "flows": run_flows, "circuits": run_circuits,
    "steps": run_steps,
}  # fmt: skip

# Every kind of plan that is drawn from a seed: in which world it runs, and how it is drawn.
KINDS: Final[dict[str, tuple[str, Callable[[int], AnyPlan]]]] = {
    "plain": ("fleet", Plan.draw),
    "grouped": ("fleet", lambda seed: Plan.draw(seed).with_groups()),
    "rough": ("fleet", lambda seed: Plan.draw(seed).with_rough_weather()),
    "lively": ("fleet", Plan.lively),
    "posts": ("fleet", lambda seed: Plan.draw(seed).with_posts()),
    "long": ("fleet", lambda seed: Plan.draw(seed).with_long_jobs()),
    "full": ("fleet", lambda seed: Plan.draw(seed).with_full_slots()),
    "paused": ("fleet", lambda seed: Plan.draw(seed).with_pauses()),
    "wishes": ("fleet", lambda seed: Plan.draw(seed).with_late_wishes()),
    "crowd": ("fleet", Plan.crowd),
    "two-lanes": ("fleet", lambda seed: Plan.draw(seed).with_two_lanes()),
    "agenda": ("agenda", SmallPlan.draw),
    "flows": ("flows", SmallPlan.draw),
    "circuits": ("circuits", SmallPlan.draw),
    "steps": ("steps", SmallPlan.draw),
    "rough-steps": ("steps", lambda seed: SmallPlan.draw(seed).with_rough_weather()),
    "slow-agenda": ("agenda", lambda seed: SmallPlan.draw(seed).with_slow_calls()),
    "slow-circuits": ("circuits", lambda seed: SmallPlan.draw(seed).with_slow_calls()),
}


@dataclass(frozen=True, slots=True)
class Trial:
    """All that decides over a run: a plan, the world that plays it, and the store under it."""

    world: str
    store: str
    plan: AnyPlan

    @classmethod
    def draw(cls, kind: str, seed: int, store: str = "memory") -> "Trial":
        world, drawn = KINDS[kind]
        return cls(world, store, drawn(seed))

    @classmethod
    def of(cls, result: Result) -> "Trial":
        return cls(result.world, result.store, result.plan)

    def run(self, *, trace: bool = False) -> Result:
        return WORLDS[self.world](self.plan.seed, store=STORES[self.store], plan=self.plan, trace=trace)

    @property
    def name(self) -> str:
        """Other plans of the same seed have other names."""
        digest = hashlib.sha256(json.dumps(_plain(self.plan), sort_keys=True).encode()).hexdigest()
        return f"{self.world}-{self.store}-{self.plan.seed}-{digest[:6]}"


@dataclass(frozen=True, slots=True)
class Kept:
    """A trial that broke a promise: which rule of the checker, what was wrong, at which commit, and its trace there.

    Files that were written by hand have no rule or no trace.
    """

    trial: Trial
    wrong: str
    commit: str
    rule: str = ""
    trace: str = ""

    @classmethod
    def of(cls, result: Result) -> "Kept":
        first = result.violations[0] if result.violations else Violation("", "nothing")
        return cls(Trial.of(result), first.text, _commit(), first.row, result.hash)

    @classmethod
    def read(cls, path: Path) -> "Kept":
        found = json.loads(path.read_text("utf-8"))
        world = found["world"]
        trial = Trial(world, found["store"], _plan_of(world, found["plan"]))
        return cls(trial, found["wrong"], found["commit"], found["rule"], found["trace"])

    def document(self) -> dict[str, Any]:
        return {
            "world": self.trial.world, "store": self.trial.store, "rule": self.rule, "wrong": self.wrong,
            "commit": self.commit, "trace": self.trace, "plan": _plain(self.trial.plan),
        }  # fmt: skip

    def __str__(self) -> str:
        return f"{self.rule}: {self.wrong}" if self.rule else self.wrong


def kept() -> dict[str, Kept]:
    """All there are, by the names of their files."""
    return {path.stem: Kept.read(path) for path in sorted(SEEDS.glob("*.json"))}


def _plain(plan: AnyPlan) -> dict[str, Any]:
    """As JSON has it."""
    found = asdict(plan)
    return found | {"healthy": sorted(plan.healthy)} if isinstance(plan, Plan) else found


def _plan_of(world: str, told: dict[str, Any]) -> AnyPlan:
    mix = dict.fromkeys(Fault, 0.0) | {Fault(name): rate for name, rate in told["mix"].items()}
    told = told | {"terms": Terms(**told["terms"]), "mix": mix}
    if world == "fleet":
        weights = {Kind(name): weight for name, weight in told["weights"].items()}
        return Plan(**told | {"weights": weights, "healthy": frozenset(told.get("healthy", ()))})
    fault = told.get("struck_call")
    if fault is not None:
        crash = fault["fate"]["crash"]
        fate = Fate(**fault["fate"] | {"crash": None if crash is None else Point(crash)})
        fault = StruckCall(fault["at"], fate)
    return SmallPlan(**told | {"struck_call": fault})


def _commit() -> str:
    """Of the code that runs; with a mark if it was changed since."""
    try:
        described = ["git", "describe", "--always", "--dirty", "--exclude=*"]
        return subprocess.check_output(described, cwd=ROOT, text=True, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def write(result: Result, folder: Path) -> Path:
    """A file that replays this run."""
    found = Kept.of(result)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.trial.name}.json"
    path.write_text(json.dumps(found.document(), indent=1) + "\n", "utf-8")
    return path


def command(path: Path, mutant: str | None = None) -> str:
    """What runs it again, from the root of the repository; with the planted bug, if there is one."""
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    words = [".venv/bin/python", "-m", "tests.sim.replay", str(shown)]
    if mutant := mutant or os.environ.get("TORIL_MUTANT"):
        words += ["--mutant", mutant]
    return shlex.join(words)


def assert_clean(result: Result) -> None:
    """Fail if the run broke a promise, with the command that runs it again."""
    if result.violations:
        path = write(result, FAILED)
        raise AssertionError(f"{result}\nreplay with  {command(path)}")


def keep(trial: Trial, folder: Path | None = None) -> Path | None:
    """Make a trial small, and keep it in `tests/seeds/` or elsewhere; None if it breaks nothing."""
    result = trial.run()
    if not result.violations:
        return None
    rule = result.violations[0].row

    def breaks(smaller: Trial) -> bool:
        """The same rule: another one would be another bug."""
        violations = smaller.run().violations
        return bool(violations) and violations[0].row == rule

    return write(shrunk(trial, breaks).run(), folder or SEEDS)


def shrunk(trial: Trial, breaks: Callable[[Trial], bool]) -> Trial:
    """The smallest trial that still breaks it: fewer faults, then fewer jobs, then fewer processes, for as long as any
    of it can be left out."""
    tries = 0
    while tries < _MOST_TRIES:
        for plan in _smaller(trial.plan):
            tries += 1
            smaller = replace(trial, plan=plan)
            if breaks(smaller):
                trial = smaller
                break
        else:
            return trial
    return trial


def _smaller(plan: AnyPlan) -> Iterator[AnyPlan]:
    for fault, rate in plan.mix.items():
        if rate:
            yield replace(plan, mix={**plan.mix, fault: 0.0})
    match plan:
        case Plan():
            yield from _smaller_fleets(plan)
        case SmallPlan():
            yield from _smaller_of_small(plan)


def _smaller_fleets(plan: Plan) -> Iterator[Plan]:
    for jobs in (plan.jobs // 2, plan.jobs - 1):
        if plan.producers <= jobs < plan.jobs:
            yield replace(plan, jobs=jobs)
    if plan.workers > 1:
        yield replace(plan, workers=plan.workers - 1)
    if plan.producers > 1:
        yield replace(plan, producers=1)
    calmer: dict[str, Any] = {
        "operator": False, "impatient": False, "clerk": False, "supervised": False, "skew": 0, "farewell": "none",
    }  # fmt: skip
    for name, value in calmer.items():
        if getattr(plan, name) != value:
            yield replace(plan, **{name: value})


def _smaller_of_small(plan: SmallPlan) -> Iterator[SmallPlan]:
    if plan.struck_call is not None and plan.struck_call.fate != CALM:
        yield replace(plan, struck_call=replace(plan.struck_call, fate=CALM))
    for tasks in (plan.tasks // 2, plan.tasks - 1):
        if 1 <= tasks < plan.tasks:
            yield replace(plan, tasks=tasks)
    if plan.workers > 1:
        yield replace(plan, workers=plan.workers - 1)
    if plan.meddler:
        yield replace(plan, meddler=False)
    if plan.skew:
        yield replace(plan, skew=0)
    if plan.storm > 1:
        yield replace(plan, storm=plan.storm / 2)
