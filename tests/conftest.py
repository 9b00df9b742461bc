"""Fixtures that every layer shares."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toril.engine import Store
from toril.engines.sqlite import SqliteEngine
from toril.engines.sqlite.place import parse
from toril.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """The store's clock: it moves only by `advance`."""
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Every engine there is, opened, on the settable clock."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    store = SqliteEngine(parse(url), clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(autouse=True)
async def _no_stray_task() -> AsyncIterator[None]:
    """What a test starts, it also ends."""
    before = asyncio.all_tasks()
    yield
    left = {task for task in asyncio.all_tasks() - before if not task.done()} - {asyncio.current_task()}
    assert not left, f"tasks left running: {left}"
