"""Two engines of one process on one file."""

import asyncio
from pathlib import Path

import pytest

from tests.conformance.jobs import claim, settle
from tests.faults.children import LONG, database_of, opened
from tests.faults.ledger import unsound
from toril.model import NewJob, Verdict


@pytest.mark.covers("F101")
async def test_what_one_adds_the_other_notices_and_settles(database: Path) -> None:
    one, other = await opened(database), await opened(database)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        waiting = group.create_task(other.wait(["q"], timeout=LONG))
        await one.add("q", [NewJob(name="n")])
    (job,) = (await claim(other)).jobs
    verdict = await settle(one, job.lease)

    assert waiting.result() == {"q"}
    assert verdict is Verdict.OK
    await one.close()
    await other.close()
    assert unsound(database) == []


@pytest.mark.covers("F101")
async def test_they_write_side_by_side_without_getting_in_each_others_way(database: Path) -> None:
    engines = [await opened(database) for _ in range(4)]

    async def add_many(number: int) -> None:
        for _ in range(50):
            await engines[number].add("q", [NewJob(name="n")])

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(add_many(number))

    assert (await engines[0].counts("q")).waiting == 200
    for engine in engines:
        await engine.close()
    assert unsound(database) == []


async def test_closing_one_leaves_the_other_at_work(database: Path) -> None:
    one, other = await opened(database), await opened(database)
    await one.add("q", [NewJob(name="n")])
    await one.close()
    database_of(other)._seen -= 2  # a second has passed: it makes sure that file and log are still its own

    await other.add("q", [NewJob(name="n")])

    assert (await other.counts("q")).waiting == 2
    await other.close()
