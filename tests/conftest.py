"""Fixtures that every layer shares."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests import servers
from toril.engine import Store
from toril.engines.redis import RedisEngine
from toril.engines.sqlite import SqliteEngine
from toril.engines.sqlite.place import parse
from toril.testing import ManualClock


def pytest_configure() -> None:
    """A shell that runs tests in the background has them, and what they start, ignore Ctrl-C: they should not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def clock() -> ManualClock:
    """The store's clock: it moves only by `advance`."""
    return ManualClock()


REDIS = ["redis", "redis6", "valkey"]  # 7.0 of Debian; 6.2 and Valkey 9 as packages


def engine_of(kind: str, clock: ManualClock, folder: Path) -> Store:
    """An engine of this kind, on an empty store, not yet opened."""
    if kind in REDIS:
        server = servers.running(kind)
        assert server.tell("FLUSHALL") == b"+OK"
        return RedisEngine.from_url(server.url, clock=clock)
    url = "memory://" if kind == "memory" else f"sqlite:///{folder / 'jobs.db'}"
    return SqliteEngine(parse(url), clock=clock)


@asynccontextmanager
async def opened(kind: str, clock: ManualClock, folder: Path) -> AsyncIterator[Store]:
    """An open engine of this kind, on the settable clock."""
    store = engine_of(kind, clock, folder)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


SHARED = ["sqlite", *REDIS]  # engines that several processes can use at once


@pytest.fixture(params=["memory", *SHARED])
async def engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Every engine there is."""
    async with opened(request.param, clock, tmp_path) as store:
        yield store


@pytest.fixture(params=SHARED)
async def shared_engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Every engine that several processes can share."""
    async with opened(request.param, clock, tmp_path) as store:
        yield store


@pytest.fixture
async def memory_engine(clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    """The engine that lives in one process."""
    async with opened("memory", clock, tmp_path) as store:
        yield store


@pytest.fixture(autouse=True)
async def _no_stray_task() -> AsyncIterator[None]:
    """What a test starts, it also ends."""
    before = asyncio.all_tasks()
    yield
    left = {task for task in asyncio.all_tasks() - before if not task.done()} - {asyncio.current_task()}
    assert not left, f"tasks left running: {left}"
