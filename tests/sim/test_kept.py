"""Seeds that once broke a promise are run for ever after; and a failing seed becomes as small as it can be."""

from pathlib import Path

import pytest

from tests.sim.figures import prove_seed
from tests.sim.kept import Kept, keep, kept
from tests.sim.mutants import MUTANTS, planted
from tests.sim.plan import Plan

ALL = kept()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.covers("T3")
def test_no_seed_that_found_a_bug_finds_it_again(name: str) -> None:
    result = ALL[name].run()
    prove_seed(result.tally, result.jobs)

    assert not result.violations, f"{ALL[name].wrong} is back: {result}"


def test_a_failing_seed_is_made_small_and_kept(tmp_path: Path) -> None:
    with planted(MUTANTS["left_active"]):
        path = keep(0, tmp_path)
        assert path is not None
        small = Kept.read(path)
        again = small.run()

    assert "stands in 2 places" in small.wrong
    assert again.violations
    drawn = Plan.draw(0)
    assert small.plan.jobs < drawn.jobs
    assert small.plan.workers == 1
    assert not any(small.plan.mix.values()), "no fault is needed for it"
    assert not small.run().violations, "it is clean without the bug"


def test_a_seed_that_breaks_nothing_is_not_kept(tmp_path: Path) -> None:
    assert keep(1, tmp_path) is None
    assert list(tmp_path.iterdir()) == []
