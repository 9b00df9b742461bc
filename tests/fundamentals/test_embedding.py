"""An app that runs within another program, which starts and stops it when it likes."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fundamentals.apps import working
from toril import App, JobContext, UsageError


async def ok(ctx: JobContext[Any]) -> Any:
    return ctx.data


@pytest.mark.parametrize("steps", [1, 3, 6])
@pytest.mark.parametrize("how", [App.stop, App.close])
async def test_a_stop_is_heard_however_early_it_comes(tmp_path: Path, how: Callable[[App], Any], steps: int) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    app.queue("q", [ok])
    async with asyncio.timeout(20):
        for _ in range(2):  # the second time there has been a run before
            run = asyncio.create_task(app.run())
            for _ in range(steps):
                await asyncio.sleep(0)
            told = how(app)
            if told is not None:
                await told
            assert await run == 0


async def test_a_stop_of_what_does_not_run_does_not_stop_the_next_run(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    queue = app.queue("q", [ok])
    app.stop()
    async with working(app):
        assert await queue.add_and_wait(ok, 1) == 1
    app.stop()
    async with working(app):
        assert await queue.add_and_wait(ok, 2) == 2


async def test_an_app_without_handlers_says_so_instead_of_running() -> None:
    app = App("memory://")
    app.queue("only for adding")
    with pytest.raises(UsageError, match="no queue of this app has a handler"):
        await app.run(burst=True)


@pytest.mark.parametrize("declare", ["middleware", "on_start", "on_flush", "on_stop", "poller"])
def test_a_hook_that_cannot_be_called_is_refused_where_it_is_declared(declare: str) -> None:
    with pytest.raises(TypeError, match="must be a function, not 5"):
        getattr(App("memory://"), declare)(5)
