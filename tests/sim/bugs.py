"""All bugs that are planted, as one list: what is wrong, where it shows, and how it is switched on.

`TORIL_MUTANT=name` plants one for a whole run of the tests in this folder, or of `tests.sim.replay`.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.sim.journal import Violation
from tests.sim.kept import Trial
from tests.sim.mutants import MUTANTS, Mutant, planted
from tests.sim.mutants_circuits import CIRCUIT_BUGS, CIRCUIT_MUTANTS
from tests.sim.mutants_flows import FLOW_MUTANTS, GROUP_MUTANTS
from tests.sim.mutants_posts import POST_MUTANTS
from tests.sim.mutants_scripts import FLEET_BUGS, FLOW_BUGS, Edit, planted_in
from tests.sim.mutants_steps import STEP_BUGS, STEP_MUTANTS
from tests.sim.mutants_time import SCRIPT_BUGS, TIME_MUTANTS
from tests.sim.mutants_worker import WORKER_MUTANTS

__all__ = ["BUGS", "Bug", "blind_trials", "chosen", "violation"]

_FLEETS: Final = ("plain", "long", "full", "paused", "wishes", "rough")
_AGENDAS: Final = ("agenda", "slow-agenda")
_CIRCUITS: Final = ("circuits", "slow-circuits")
_STEPS: Final = ("steps", "rough-steps")
_FRESH: Final = 1_000_000  # below are the seeds that the tests know
_ERROR: Final = "error"  # the row of whatever was raised and should not have been


@dataclass(frozen=True, slots=True)
class Bug:
    """`seed` is known to find it, in a plan of the first of `kinds`, by the check of `row`."""

    name: str
    wrong: str
    planted: Callable[[], AbstractContextManager[None]]
    kinds: tuple[str, ...]
    store: str
    seed: int
    row: str

    @property
    def known(self) -> Trial:
        return Trial.draw(self.kinds[0], self.seed, self.store)


def _in_python(mutants: dict[str, Mutant], *kinds: str) -> Iterator[Bug]:
    for name, mutant in mutants.items():
        yield Bug(name, mutant.wrong, partial(planted, mutant), kinds, "memory", mutant.seed, mutant.row)


def _in_scripts(edits: dict[str, Edit], *kinds: str) -> Iterator[Bug]:
    for wrong, edit in edits.items():
        yield Bug(f"redis: {wrong}", wrong, partial(planted_in, edit), kinds, "redis", edit.seed, edit.row)


BUGS: dict[str, Bug] = {
    bug.name: bug
    for bugs in (
        _in_python(MUTANTS, *_FLEETS),
        _in_python(WORKER_MUTANTS, *_FLEETS),
        _in_python(TIME_MUTANTS, *_AGENDAS),
        _in_python(FLOW_MUTANTS, "flows"),
        _in_python(GROUP_MUTANTS, "grouped"),
        _in_python(CIRCUIT_MUTANTS, *_CIRCUITS),
        _in_python(POST_MUTANTS, "posts"),
        _in_python(STEP_MUTANTS, *_STEPS),
        _in_scripts(FLEET_BUGS, *_FLEETS),
        _in_scripts(SCRIPT_BUGS, *_AGENDAS),
        _in_scripts(FLOW_BUGS, "flows"),
        _in_scripts(CIRCUIT_BUGS, *_CIRCUITS),
        _in_scripts(STEP_BUGS, *_STEPS),
    )
    for bug in bugs
}


def violation(bug: Bug, trial: Trial) -> Violation | None:
    """What the checks say of this run with the bug in it. An error counts for bugs only that are to be found by one: a
    bug that no longer fits the code that it is planted in would raise errors too."""
    with bug.planted():
        violations = trial.run().violations
    return next((each for each in violations if each.row != _ERROR or bug.row == _ERROR), None)


def blind_trials(bug: Bug, base: str, most: int) -> Iterator[Trial]:
    """Seeds that nobody has chosen, of the kinds of plan in turn that are drawn for this part of Toril."""
    chance = random.Random(f"{base} {bug.name}")
    for number in range(most):
        kind = bug.kinds[number % len(bug.kinds)]
        yield Trial.draw(kind, chance.randrange(_FRESH, 10**12), bug.store)


def chosen() -> AbstractContextManager[None]:
    """The bug that the environment asks for, if any."""
    name = os.environ.get("TORIL_MUTANT")
    if not name:
        return nullcontext()
    assert name in BUGS, f"TORIL_MUTANT={name!r} is no bug that can be planted; there are {', '.join(BUGS)}"
    return BUGS[name].planted()
