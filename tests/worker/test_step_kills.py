"""A handler of six steps with a rest, on every store: its worker dies at each of them, and repeats no recorded one."""

from collections import Counter
from typing import Any

import pytest

from tests.worker.conftest import Timed
from toril import App, JobContext

STEPS = ("one", "two", "three", "four", "five", "six")


@pytest.mark.parametrize("when", ["within", "after"])
async def test_a_worker_dies_at_each_step(timed: Timed, when: str) -> None:
    app = App("memory://")
    done, died = Counter[str](), set[str]()
    tests: list[Any] = []

    def die(here: str) -> None:
        if here not in died:
            died.add(here)
            tests[0].kill_here()

    async def act(name: str) -> str:
        done[name] += 1
        if when == "within":
            die(name)
        return name.upper()

    async def run(ctx: JobContext[None]) -> list[str]:
        found = []
        for name in STEPS:
            found.append(await ctx.step(name, act, name))
            if when == "after":
                die(name)
            if name == "three":
                await ctx.sleep("rest", "1h")
        return found

    queue = app.queue("q", {"run": run}, max_stalls=20)
    async with timed(app) as test:
        tests.append(test)
        job = await queue.add("run", result_ttl="1d")
        await test.after("4h")

        assert await job.result(5) == [name.upper() for name in STEPS]
    assert died == set(STEPS)
    assert set(done.values()) == ({2} if when == "within" else {1}), done
