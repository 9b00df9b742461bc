"""When `toril run` says that it is not ready."""

from typing import Any
from unittest.mock import NonCallableMagicMock

import pytest

from toril.supervisor import Supervisor, SupervisorOptions
from toril.supervisor.probes import HealthMonitor
from toril.testing import ManualClock


@pytest.mark.covers("F40")
async def test_a_process_that_does_not_come_back_is_told_after_a_moment() -> None:
    """A restart takes a moment, and says nothing of the health; a crash loop does."""
    clock = ManualClock()
    supervisor = Supervisor(SupervisorOptions(command=("none",), processes=1), clock)
    supervisor.up.set()
    health = HealthMonitor(supervisor, clock)

    assert health.problems() == []
    clock.advance(4_000)
    assert health.problems() == []
    clock.advance(2_000)
    assert health.problems() == ["0 of 1 worker processes are ready"]
    assert health.document()["status"] == "DEGRADED"


@pytest.mark.covers("R242", "R004")
async def test_a_poller_that_has_died_is_told_with_the_reason() -> None:
    """It does not count as not ready: jobs are run all the same."""
    clock = ManualClock()
    supervisor = Supervisor(SupervisorOptions(command=("none",), processes=1), clock)
    supervisor.up.set()
    health = HealthMonitor(supervisor, clock)
    assert health.document()["pollers"] == "disabled"

    child: Any = NonCallableMagicMock(pid=7, pollers=[], ready=True)
    child.table.ticked = child.table.late = clock.monotonic()
    supervisor.children[0] = child
    inbox = {"name": "inbox", "state": "running", "restarts": 0, "error": None, "died_at": None}
    supervisor._received(child, {"pollers": [inbox]})
    well = health.document()
    died = inbox | {
        "state": "restarting",
        "error": "OSError: the line is cut",
        "died_at": 1_800_000_000_000,
    }
    supervisor._received(child, {"pollers": [died, inbox]})
    ill = health.document()

    assert (well["status"], well["pollers"], well["workers"][0]["pollers"]) == ("OK", "running", [inbox])
    assert (ill["status"], ill["pollers"], ill["workers"][0]["pollers"]) == ("DEGRADED", "restarting", [died, inbox])
    assert ill["message"] == ("poller inbox of worker process 7 died and will be restarted: OSError: the line is cut")
    assert health.problems() == []
