"""An app for each test."""

from collections.abc import AsyncIterator

import pytest

from toril import App, Queue


@pytest.fixture
async def app() -> AsyncIterator[App]:
    """An open app whose store is in memory."""
    async with App("memory://") as app:
        yield app


@pytest.fixture
def queue(app: App) -> Queue:
    """A queue that nobody works."""
    return app.queue("jobs")


@pytest.fixture(params=["add", "add_many", "new"])
def way(request: pytest.FixtureRequest) -> str:
    """The ways in for a job; `ADDS` has them."""
    return str(request.param)
