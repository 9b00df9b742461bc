"""An app on each embedded store, and a worker that runs beside the test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import engine_of
from tests.kinds import GUARDED, KINDS, POSTGRES
from toril import App
from toril.events import EventName
from toril.testing import ManualClock, Memory
from toril.worker import maintenance

Working = Callable[..., AbstractAsyncContextManager[App]]
Timed = Callable[[App], AbstractAsyncContextManager[Memory]]


class Seen:
    """The events of an app as they come, and waiting for them."""

    def __init__(self, app: App, *names: EventName) -> None:
        self.events: list[tuple[str, Any]] = []
        self._news = asyncio.Condition()
        for name in names:
            app.on(name, partial(self._note, name))

    async def _note(self, name: str, event: Any) -> None:
        async with self._news:
            self.events.append((name, event))
            self._news.notify_all()

    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def of(self, name: str) -> list[Any]:
        return [event for known, event in self.events if known == name]

    async def until(self, name: str, count: int = 1) -> Any:
        """The last of `count` events of this name; the test fails if they do not come."""
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(lambda: len(self.of(name)) >= count)
        return self.of(name)[count - 1]


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path / 'jobs.db'}")


# Not on PostgreSQL, whose functions take the server's time.
@pytest.fixture(params=[kind for kind in KINDS if kind not in {*GUARDED, *POSTGRES}])
def timed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timed:
    """What `toril.testing.memory` is, on every engine: the app on an empty store, and time that passes when told to."""
    monkeypatch.setattr(maintenance, "_LAST_HEARTBEAT", 30.0)  # a file on a busy machine can need more than it has

    @asynccontextmanager
    async def on_its_clock(app: App) -> AsyncIterator[Memory]:
        clock = ManualClock()
        test = Memory(app, clock, engine_of(request.param, clock, tmp_path))
        with test.in_place():
            async with app:
                yield test

    return on_its_clock


@asynccontextmanager
async def working(app: App, **options: Any) -> AsyncIterator[App]:
    """The app open for the test, and its workers running beside it until the end."""
    async with app:
        run = asyncio.create_task(app.run(**options))
        try:
            yield app
        finally:
            app.stop()
            await run
