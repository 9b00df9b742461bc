"""A store in memory says what it is, and what is lost with it."""

import pytest

from tests.conformance.jobs import claim, settle
from toril.engines.sqlite import connect
from toril.model import KEEP_ALL, JobOptions, NewJob


@pytest.mark.covers("F109")
def test_a_store_in_memory_says_that_it_is_one() -> None:
    assert repr(connect("memory://")) == "<Toril store in memory: its jobs are gone when this process ends>"


@pytest.mark.covers("F109")
async def test_closing_it_with_unfinished_jobs_warns_of_their_number() -> None:
    engine = connect("memory://")
    await engine.open()
    await engine.add("a", [NewJob(name="n")] * 3)
    await engine.add("b", [NewJob(name="n", delay=1000), NewJob(name="n", priority=1)])
    await claim(engine, 1, queue="a")

    with pytest.warns(RuntimeWarning, match="5 unfinished jobs were lost when the in-memory store was closed"):
        await engine.close()


@pytest.mark.covers("F109")
async def test_closing_it_with_finished_jobs_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    engine = connect("memory://")
    await engine.open()
    await engine.add("q", [NewJob(name="n", options=JobOptions(keep_completed=KEEP_ALL))])
    await settle(engine, (await claim(engine)).jobs[0].lease)

    await engine.close()

    assert not recwarn.list


@pytest.mark.covers("F109")
async def test_a_filter_that_makes_errors_of_warnings_does_not_keep_it_open() -> None:
    engine = connect("memory://")
    await engine.open()
    await engine.add("q", [NewJob(name="n")])

    await engine.close()

    assert not (await engine.health()).ok
