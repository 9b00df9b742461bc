"""Fixtures that every layer shares."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from zlib import crc32

import pytest

from tests.kinds import ASKED_FOR, GUARDED, REDIS, redis_of
from toril.engine import Store
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


# Of what costs more than it tells every run has one case of each test; and of the last three, which run the scripts of
# redis, each test is on one. TORIL_ENGINES=valkey, or another, runs all of it.
_PARTS = {
    "memory": "tests/conformance/",  # the same engine as sqlite, without a file
    "tls": "tests/conformance/test_exchange",
    "redis6": "tests/conformance/",
    "valkey": "tests/conformance/",
    "strict": "tests/conformance/",
}
_TURNS = ("redis6", "valkey", "strict")
_WHOLE_ELSEWHERE = {"memory", "redis6", "valkey"}  # only conformance has so many cases


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of some kinds of engine only a part of conformance; or what was asked for."""
    firsts: dict[tuple[str, str | None], str] = {}  # of a test function and a kind, the case that stands for all
    for item in items:
        kind = _kind_of(item)
        if _PARTS.get(kind or "", "nothing") in item.nodeid:
            which = (item.nodeid.partition("[")[0], kind)
            firsts[which] = min(firsts.get(which, item.nodeid), item.nodeid)

    def wanted(item: pytest.Item) -> bool:
        kind = _kind_of(item)
        if ASKED_FOR:
            return kind is None or kind in ASKED_FOR
        if kind not in _PARTS or (kind in _WHOLE_ELSEWHERE and _PARTS[kind] not in item.nodeid):
            return kind not in GUARDED
        function = item.nodeid.partition("[")[0]
        turn = _TURNS[crc32(function.encode()) % len(_TURNS)]
        return firsts.get((function, kind)) == item.nodeid and (kind not in _TURNS or kind == turn)

    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = [item for item in items if wanted(item)]


def _kind_of(item: pytest.Item) -> str | None:
    """Which engine this is a case for."""
    given = getattr(item, "callspec", None)
    names = ("engine", "shared_engine")
    return None if given is None else next((given.params[name] for name in names if name in given.params), None)


def engine_of(kind: str, clock: ManualClock, folder: Path) -> Store:
    """An engine of this kind, on an empty store, not yet opened."""
    if kind in REDIS or kind in GUARDED:
        return redis_of(kind, clock)
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


@pytest.fixture(params=["memory", *SHARED, *GUARDED])
async def engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Every engine there is."""
    async with opened(request.param, clock, tmp_path) as store:
        yield store


@pytest.fixture(params=[*SHARED, *GUARDED])
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
