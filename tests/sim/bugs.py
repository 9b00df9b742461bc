"""All bugs that are planted, as one list: what is wrong, where it shows, and how it is switched on.

`TORIL_MUTANT=name` plants one for a whole run of the tests in this folder, or of `tests.sim.replay`.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from tests.sim.agenda import keep_agenda
from tests.sim.circuits import break_circuits
from tests.sim.journal import Violation
from tests.sim.loom import weave
from tests.sim.mutants import MUTANTS, Mutant, planted
from tests.sim.mutants_circuits import CIRCUIT_BUGS, CIRCUIT_MUTANTS
from tests.sim.mutants_flows import FLOW_MUTANTS, GROUP_MUTANTS
from tests.sim.mutants_posts import POST_MUTANTS
from tests.sim.mutants_scripts import FLEET_BUGS, FLOW_BUGS, Edit, planted_in
from tests.sim.mutants_time import SCRIPT_BUGS, TIME_MUTANTS
from tests.sim.mutants_worker import WORKER_MUTANTS
from tests.sim.plan import GROUPED, POSTED
from tests.sim.redis_store import RedisStore
from tests.sim.world import simulate

__all__ = ["BUGS", "Bug", "chosen", "found"]

World = Callable[[int], Sequence[Violation]]


@dataclass(frozen=True, slots=True)
class Bug:
    """`world` runs one seed and says what was violated; `seed` is known to find it, by the check of `row`."""

    name: str
    wrong: str
    world: World
    planted: Callable[[], AbstractContextManager[None]]
    seed: int
    row: str | None
    first: int = 0


def _seen(run: Callable[..., object], seed: int, **options: object) -> Sequence[Violation]:
    try:
        result = run(seed, **options)
    except ExceptionGroup as error:
        return [Violation("error", repr(error))]  # an answer that makes no sense
    violations: Sequence[Violation] = result.violations  # type: ignore[attr-defined]
    return violations


_FLEET: World = partial(_seen, simulate)
_AGENDA: World = partial(_seen, keep_agenda)
_FLOWS: World = partial(_seen, weave)
_CIRCUITS: World = partial(_seen, break_circuits)


def _in_python(mutants: dict[str, Mutant], world: World, first: int = 0) -> Iterator[Bug]:
    for name, mutant in mutants.items():
        yield Bug(name, mutant.wrong, world, partial(planted, mutant), mutant.seed or first, mutant.row, first)


def _in_scripts(edits: dict[str, Edit], run: Callable[..., object]) -> Iterator[Bug]:
    for wrong, edit in edits.items():
        plant = partial(planted_in, edit.file, edit.right, edit.wrong)
        name = f"redis: {wrong}"
        yield Bug(name, wrong, partial(_seen, run, store=RedisStore), plant, edit.seed, edit.row)


BUGS: dict[str, Bug] = {
    bug.name: bug
    for bugs in (
        _in_python(MUTANTS, _FLEET),
        _in_python(WORKER_MUTANTS, _FLEET),
        _in_python(TIME_MUTANTS, _AGENDA),
        _in_python(FLOW_MUTANTS, _FLOWS),
        _in_python(GROUP_MUTANTS, _FLEET, GROUPED),
        _in_python(CIRCUIT_MUTANTS, _CIRCUITS),
        _in_python(POST_MUTANTS, _FLEET, POSTED),
        _in_scripts(FLEET_BUGS, simulate),
        _in_scripts(SCRIPT_BUGS, keep_agenda),
        _in_scripts(FLOW_BUGS, weave),
        _in_scripts(CIRCUIT_BUGS, break_circuits),
    )
    for bug in bugs
}


def found(bug: Bug, most: int) -> tuple[int, Sequence[Violation]] | None:
    """The seed that is known for it, or else the first of so many; and what it found."""
    with bug.planted():
        for seed in (bug.seed, *range(bug.first, bug.first + most)):
            violations = bug.world(seed)
            if violations:
                return seed, violations
    return None


def chosen() -> AbstractContextManager[None]:
    """The bug that the environment asks for, if any."""
    name = os.environ.get("TORIL_MUTANT")
    if not name:
        return nullcontext()
    assert name in BUGS, f"TORIL_MUTANT={name!r} is no bug that can be planted; there are {', '.join(BUGS)}"
    return BUGS[name].planted()
