"""When `toril run` says that it is not ready."""

import pytest

from toril.supervisor import Plan, Supervisor
from toril.supervisor.health import Vitals
from toril.testing import ManualClock


@pytest.mark.covers("F40")
async def test_a_process_that_does_not_come_back_is_told_after_a_moment() -> None:
    """A restart takes a moment, and says nothing of the health; a crash loop does."""
    clock = ManualClock()
    supervisor = Supervisor(Plan(command=("none",), processes=1), clock)
    supervisor.up.set()
    vitals = Vitals(supervisor, clock)

    assert vitals.problems() == []
    clock.advance(4_000)
    assert vitals.problems() == []
    clock.advance(2_000)
    assert vitals.problems() == ["0 of 1 worker processes are ready"]
    assert vitals.document()["status"] == "DEGRADED"
