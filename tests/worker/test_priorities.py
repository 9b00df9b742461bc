"""What a queue says whose jobs are not all of one kind, with a priority or without."""

import logging
from datetime import datetime
from typing import Any

import pytest

from tests.worker.conftest import Timed
from toril import App, JobContext

MIXED = "has jobs with a priority and jobs without"


async def note(ctx: JobContext[int]) -> None:
    """Do nothing."""


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if MIXED in record.getMessage()]


async def test_a_queue_that_mixes_priorities_warns_once(timed: Timed, caplog: pytest.LogCaptureFixture) -> None:
    app = App("memory://")
    queue, other = app.queue("q", [note]), app.queue("other", [note])
    async with timed(app) as test:
        with caplog.at_level(logging.WARNING, "toril"):
            await other.add(note, 0)
            await queue.add(note, 0)
            await queue.add_many([(note, 1), (note, 2)])
            await test.drain()
            assert warnings(caplog) == []
            for number in range(3):
                await queue.add(note, number, priority=5)
                await queue.add(note, number)
                await test.drain()

    (said,) = warnings(caplog)
    assert said.startswith("queue q ")
    assert "priority_first=True" in said


@pytest.mark.parametrize("chosen", [True, False])
async def test_a_queue_that_has_chosen_an_order_does_not_warn(
    chosen: bool, timed: Timed, caplog: pytest.LogCaptureFixture
) -> None:
    app, ran = App("memory://"), list[int]()

    async def work(ctx: JobContext[int]) -> None:
        ran.append(ctx.data)

    queue = app.queue("q", [work], priority_first=chosen)
    async with timed(app) as test:
        with caplog.at_level(logging.WARNING, "toril"):
            await queue.add_many([(work, 0), (work, 1, {"priority": 1}), (work, 2, {"priority": 2})])
            await test.drain()

    assert ran == ([1, 2, 0] if chosen else [0, 1, 2])
    assert warnings(caplog) == []


async def test_a_scanners_own_priority_is_no_mixture(timed: Timed, caplog: pytest.LogCaptureFixture) -> None:
    app, found = App("memory://"), list[datetime]()
    queue = app.queue("q", [note])

    def find(before: datetime) -> list[Any]:
        found.append(before)
        return []

    app.scanner("stuck", every=60, find=find, reset=print, queue=queue)
    async with timed(app) as test:
        with caplog.at_level(logging.WARNING, "toril"):
            await queue.add(note, 1)
            await test.drain()

    assert len(found) == 1
    assert warnings(caplog) == []
