"""The words that these tests are written in."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.conformance.dumps import dump
from toril import App, Queue

__all__ = ["ADDS", "Add", "drained", "unchanged", "working"]

Add = Callable[..., Awaitable[Any]]


async def _add(queue: Queue, job: Any, data: Any = None, **options: Any) -> Any:
    return await queue.add(job, data, **options)


async def _add_many(queue: Queue, job: Any, data: Any = None, **options: Any) -> Any:
    """The bad job stands between good ones, so that a batch that is stored in part would be seen."""
    await queue.add_many([("good", 1), (job, data, options), ("good", 2)])


async def _new(queue: Queue, job: Any, data: Any = None, **options: Any) -> Any:
    return queue.new(job, data, **options)


# Every way in for a job. All check alike.
ADDS: dict[str, Add] = {"add": _add, "add_many": _add_many, "new": _new}


async def drained(app: App) -> None:
    """Work until there is nothing left to do."""
    assert await app.run(burst=True) == 0


@asynccontextmanager
async def working(app: App, **options: Any) -> AsyncIterator[None]:
    """A worker at work, which is stopped in the end."""
    started = asyncio.Event()
    app.on("worker_started", lambda _: started.set())
    task = asyncio.create_task(app.run(**options))
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        yield
    finally:
        app.stop()
        await task


@asynccontextmanager
async def unchanged(app: App) -> AsyncIterator[None]:
    """Whatever happens within leaves the store as it was. Only that it was answered is remembered."""
    before = await dump(app.store)
    yield
    after = await dump(app.store)
    assert {name: rows for name, rows in after.items() if name != "calls"} == {
        name: rows for name, rows in before.items() if name != "calls"
    }
