"""Planted bugs: a simulator that does not find these would not find others.

Here each is found with a seed that is known to find it, and some with seeds that nobody has chosen: `make planted`
looks for all of them in that way.
"""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof import prove
from tests.sim.bugs import BUGS, blind_trials, violation
from tests.sim.mutants import MUTANTS, Unplantable, planted
from tests.sim.mutants_flows import FLOW_MUTANTS
from tests.sim.mutants_scripts import FLEET_BUGS, planted_in
from tests.sim.planted import SEEDS
from tests.sim.world import simulate

SECONDS = 60.0  # of the processor, for each

# Found by rare plans only: those with long jobs, full slots, pauses and late wishes are there for them.
RARE = (
    "anyone_probes",
    "isolation_for_ever",
    "letter_stays",
    "loss_ignored",
    "next_from_anywhere",
    "no_postponing",
    "rest_spins",
    "suspects_forgotten",
    "timeout_cancels",
    "watch_dies",
    "redis: a wish to stop is forgotten",
    "redis: who is late makes a next",
)
TIMES = 3  # of the seeds that are looked at blindly, so many: one might be luck, and another word would miss it


def test_enough_bugs_are_planted_in_every_part() -> None:
    assert len(BUGS) >= 40
    assert len([name for name in BUGS if name.startswith("redis: ")]) >= 20
    assert len({bug.wrong for bug in BUGS.values()}) >= 40


@pytest.mark.parametrize("name", BUGS)
def test_the_code_is_what_a_bug_was_made_for(name: str) -> None:
    with BUGS[name].planted():
        pass


def test_a_bug_that_does_not_fit_the_code_is_an_error() -> None:
    edit = replace(FLEET_BUGS["anyone settles"], right="what no script says")
    with pytest.raises(Unplantable, match=r"leases\.lua no longer says 'what no script says'"), planted_in(edit):
        pass

    owner, _, make = MUTANTS["no_letter"].changes[0]
    moved = replace(MUTANTS["no_letter"], changes=((owner, "_no_such_method", make),))
    with pytest.raises(Unplantable, match="has no _no_such_method"), planted(moved):
        pass

    same = replace(MUTANTS["no_letter"], changes=((owner, "_dead_letter", lambda original: original),))
    with pytest.raises(Unplantable, match="_dead_letter is as it was"), planted(same):
        pass


def test_an_error_is_no_finding_unless_the_bug_is_to_be_found_by_it() -> None:
    def breaks(*_: object) -> None:
        raise TypeError("this bug was made for other code")

    owner, name, _ = MUTANTS["no_letter"].changes[0]
    stale = replace(MUTANTS["no_letter"], changes=((owner, name, lambda _: breaks),))
    bug = replace(BUGS["no_letter"], planted=lambda: planted(stale))
    with bug.planted():
        assert bug.known.run().violations[0].row == "error"

    assert violation(bug, bug.known) is None
    assert violation(replace(bug, row="error"), bug.known) is not None


@pytest.mark.covers("T9")
@pytest.mark.parametrize("name", BUGS)
def test_the_simulator_finds_a_planted_bug(name: str) -> None:
    bug, began = BUGS[name], time.process_time()
    prove("planted bugs", **{name: 0})  # before it is planted: one that cannot be is not caught

    seen = violation(bug, bug.known)

    took = time.process_time() - began
    prove("planted bugs", **{name: int(seen is not None and took < SECONDS)})
    prove("T9", longest=took)
    assert seen is not None, f"{name} ({bug.wrong}) is not found with seed {bug.seed}"
    assert took < SECONDS
    assert seen.row == bug.row
    assert not bug.known.run().violations, "the same seed is clean without it"


@pytest.mark.parametrize("name", RARE)
def test_seeds_that_nobody_has_chosen_find_a_rare_bug_again_and_again(name: str) -> None:
    bug, found = BUGS[name], 0
    for trial in blind_trials(bug, "a fixed word, so that this test ends the same way each time", SEEDS):
        found += violation(bug, trial) is not None
        if found == TIMES:
            return

    pytest.fail(f"{found} of {SEEDS} seeds find {name}")


def test_blind_seeds_are_others_for_each_base_and_not_the_known_ones() -> None:
    bug = BUGS["no_letter"]
    first, second = ({trial.plan.seed for trial in blind_trials(bug, base, 60)} for base in ("one", "two"))

    assert len(first | second) == 120
    assert min(first | second) >= 1_000_000
    assert first == {trial.plan.seed for trial in blind_trials(bug, "one", 60)}


def test_bugs_of_flows_are_found_by_the_rules_of_flows_alone() -> None:
    for mutant in FLOW_MUTANTS.values():
        with planted(mutant):
            assert not simulate(1).violations


def test_a_variable_switches_a_bug_on() -> None:
    replayed = subprocess.run(
        [sys.executable, "-m", "tests.sim.replay", "0"], cwd=Path(__file__).parents[2], capture_output=True, text=True,
        env={**os.environ, "TORIL_MUTANT": "left_active"}, check=False,
    )  # fmt: skip

    assert replayed.returncode == 1
    assert "I1: " in replayed.stdout
