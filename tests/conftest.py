"""Fixtures that every layer shares."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import settings

from tests.kinds import ASKED_FOR, GUARDED, KINDS, KINDS_WITH_STEPS, POSTGRES, REDIS, postgres_of, redis_of
from tests.sim.store import FAULTS
from tests.tiers import THOROUGH_KINDS, is_thorough
from toril.engines.sqlite import SqliteEngine
from toril.engines.sqlite.url import parse
from toril.store.engine import Store
from toril.testing import ManualClock

settings.register_profile("toril", deadline=None)  # a busy machine may take its time over any example
settings.load_profile("toril")


def pytest_configure() -> None:
    """A shell that runs tests in the background has them, and what they start, ignore Ctrl-C: they should not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def clock() -> ManualClock:
    """The store's clock: it moves only by `advance`."""
    return ManualClock()


# Of these kinds each test function of conformance runs one case. The last three run the scripts of redis on another
# server, and take turns: each test function is on one of them. TORIL_ENGINES=valkey, or another, runs all of it.
_ONE_CASE = {"memory", "tls", "redis6", "valkey", "strict"}
_TURNS = ("redis6", "valkey", "strict")
_CONFORMANCE = "tests/conformance/"


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what no run needs, and mark what `make test` does not need."""
    firsts: dict[tuple[str, str], str] = {}  # of a test function and a kind, the case that stands for all
    for item in items:
        kind = _kind_of(item)
        if kind in _ONE_CASE:
            which = (item.nodeid.partition("[")[0], kind)
            firsts[which] = min(firsts.get(which, item.nodeid), item.nodeid)

    def wanted(item: pytest.Item) -> bool:
        kind, function = _kind_of(item), item.nodeid.partition("[")[0]
        if ASKED_FOR or kind not in _ONE_CASE:
            return True
        if not function.startswith(_CONFORMANCE):
            return kind != "tls"
        if kind == "tls" and "test_exchange" not in function:
            return False
        turn = _TURNS[crc32(function.encode()) % len(_TURNS)]
        return firsts[function, kind] == item.nodeid and (kind not in _TURNS or kind == turn)

    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = [item for item in items if wanted(item)]
    for item in items:
        if _kind_of(item) in THOROUGH_KINDS or is_thorough(item.nodeid):
            item.add_marker("thorough")


def _kind_of(item: pytest.Item) -> str | None:
    """Which engine this is a case for."""
    given = getattr(item, "callspec", None)
    names = ("engine", "step_engine", "shared_engine", "timed")
    found = None if given is None else next((given.params[name] for name in names if name in given.params), None)
    return found if isinstance(found, str) else None


def engine_of(kind: str, clock: ManualClock, folder: Path) -> Store:
    """An engine of this kind, on an empty store, not yet opened."""
    if kind in REDIS or kind in GUARDED:
        return redis_of(kind, clock)
    if kind in POSTGRES:
        return postgres_of(kind, clock)
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


@pytest.fixture(params=KINDS)
async def engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Every engine there is."""
    async with opened(request.param, clock, tmp_path) as store:
        yield store


@pytest.fixture(params=KINDS_WITH_STEPS)
async def step_engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Every engine that has durable steps. At the end, nothing in a store may contradict itself."""
    async with opened(request.param, clock, tmp_path) as store:
        yield store
        if isinstance(store, SqliteEngine):
            assert await store._read_now(lambda tx: tx.all(FAULTS)) == []


@pytest.fixture(params=[kind for kind in KINDS if kind != "memory"])
async def shared_engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Every engine that several processes can share."""
    async with opened(request.param, clock, tmp_path) as store:
        yield store


@pytest.fixture
async def memory_engine(clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    """The engine that lives in one process."""
    async with opened("memory", clock, tmp_path) as store:
        yield store


@pytest.fixture(params=["0", "1"], ids=["prompt", "plain"])
def both_kinds_of_asyncio(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Toril's own futures and timers, and with asyncio's alone."""
    monkeypatch.setenv("TORIL_PLAIN_ASYNCIO", request.param)


@pytest.fixture(autouse=True)
async def _no_stray_task() -> AsyncIterator[None]:
    """What a test starts, it also ends."""
    before = asyncio.all_tasks()
    yield
    left = {task for task in asyncio.all_tasks() - before if not task.done()} - {asyncio.current_task()}
    assert not left, f"tasks left running: {left}"
