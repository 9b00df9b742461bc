"""A real browser at a real site. One browser and one filled store of each kind for a whole test process.

Tests here are coroutines on the session's loop (`pytestmark = BROWSED`). `guest` opens pages in a window of its own:
`page = await guest("/workers")`. What the browser complains of (errors, refused content, dialogs) fails the test.
A test that changes something makes its own jobs; what `seed` has made is for all to look at.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.dashboard.guests import Guest, launched
from tests.dashboard.stage import Stage
from tests.servers import RedisServer


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        found = await launched(playwright)
        yield found
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                await found.close()


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Stage]]:
    """Those that were asked for so far, by their kind of store."""
    found: dict[str, Stage] = {}
    yield found
    for stage in found.values():
        stage.stop()


@pytest.fixture(scope="session")
def redis_of_ours() -> Iterator[RedisServer]:
    """Not the one that other tests empty."""
    server = RedisServer()
    yield server
    server.stop()


def staged(kind: str, stages: dict[str, Stage], folder: Path, redis: RedisServer) -> Stage:
    if kind not in stages:
        url = redis.start().url if kind == "redis" else f"sqlite:///{folder / 'helpdesk.db'}"
        stages[kind] = Stage(url).start()
    return stages[kind]


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.thorough)])
def stage(
    request: pytest.FixtureRequest, redis_of_ours: RedisServer, stages: dict[str, Stage],
    tmp_path_factory: pytest.TempPathFactory,
) -> Stage:  # fmt: skip
    """The helpdesk on each kind of store."""
    return staged(request.param, stages, tmp_path_factory.mktemp("stage"), redis_of_ours)


@pytest.fixture
def one_stage(redis_of_ours: RedisServer, stages: dict[str, Stage], tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The helpdesk on SQLite, for what no store could do differently."""
    return staged("sqlite", stages, tmp_path_factory.mktemp("stage"), redis_of_ours)


@pytest.fixture
def redis_stage(
    redis_of_ours: RedisServer, stages: dict[str, Stage], tmp_path_factory: pytest.TempPathFactory
) -> Stage:
    """The helpdesk on Redis."""
    return staged("redis", stages, tmp_path_factory.mktemp("stage"), redis_of_ours)


@pytest_asyncio.fixture(loop_scope="session")
async def guest(browser: Browser, request: pytest.FixtureRequest) -> AsyncIterator[Guest]:
    """Someone with a browser. Their window is closed after the test, and must have had nothing to complain of."""
    stage: Stage = request.getfixturevalue("stage" if "stage" in request.fixturenames else "one_stage")
    found = Guest(browser, stage.base)
    yield found
    await found.leave()
    assert not found.complaints
