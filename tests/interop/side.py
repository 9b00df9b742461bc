"""Toril's side: apps on the server that Node uses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from toril import App, JobContext, Queue

Handlers = Mapping[str, Callable[..., Any]]

KEPT: Mapping[str, Any] = {"keep_completed": True, "keep_failed": True}  # so that the other side can read it


class Toril:
    """Opens queues, and works them, each with an app of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    @asynccontextmanager
    async def queue(self, name: str, handlers: Handlers | None = None, **options: Any) -> AsyncIterator[Queue]:
        """A queue to add to and to look at."""
        app = App(self.url)
        queue = app.queue(name, handlers, **{**KEPT, **options})
        async with app:
            yield queue

    @asynccontextmanager
    async def working(self, name: str, handlers: Handlers | None = None, **options: Any) -> AsyncIterator[Queue]:
        """A queue whose jobs are run until the block ends; without handlers, `echo` returns its data."""
        app = App(self.url)
        queue = app.queue(name, handlers or {"echo": echo}, **{**KEPT, **options})
        async with running(app):
            yield queue


@asynccontextmanager
async def running(app: App) -> AsyncIterator[None]:
    """The app's workers work until the block ends."""
    ready = asyncio.Event()
    app.on_start(ready.set)
    async with app, asyncio.TaskGroup() as group:
        worker = group.create_task(app.run())
        waiting = group.create_task(ready.wait())
        await asyncio.wait({worker, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if worker.done():
            waiting.cancel()
            worker.result()
        try:
            yield
        finally:
            app.stop()


async def echo(ctx: JobContext[Any]) -> Any:
    return ctx.data


class Steps:
    """Handlers that tell what ran, and one that waits to be let go."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.most = 0
        self._now = 0
        self._go = asyncio.Event()
        self._started: asyncio.Queue[str] = asyncio.Queue()

    async def note(self, ctx: JobContext[Any]) -> Any:
        """Remember the job's id, and return its data."""
        self.ran.append(ctx.job_id)
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0)  # let another start beside it, if that is allowed
        self._now -= 1
        return ctx.data

    async def hold(self, ctx: JobContext[Any]) -> Any:
        """Run until `let_go`."""
        self.ran.append(ctx.job_id)
        self._started.put_nowait(ctx.job_id)
        await self._go.wait()
        return ctx.data

    async def started(self) -> str:
        """The next job that `hold` has begun."""
        async with asyncio.timeout(15):
            return await self._started.get()

    def let_go(self) -> None:
        self._go.set()
