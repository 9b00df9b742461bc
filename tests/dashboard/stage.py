"""A site that is served from a thread of its own, so that a test's loop and the site's do not hold each other up."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar

from tests.access import ANYONE_MAY_ACT
from tests.dashboard.seed import Seeded, helpdesk, seeded
from toril import App
from toril.web import Access, site
from toril.web.server import HttpServer

__all__ = ["Stage"]

T = TypeVar("T")
Scene = Callable[[str], AbstractAsyncContextManager[Seeded]]
_PATIENCE = 120.0  # seconds; on two busy cores all takes its time


class Stage:
    """A store, an app that works it, and its site."""

    def __init__(self, url: str, scene: Scene = lambda url: seeded(helpdesk(url))) -> None:
        self.url = url
        self._scene = scene
        self.port = 0
        self._seeded: Seeded | None = None
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._up = threading.Event()
        self._failed: BaseException | None = None
        self._stack = AsyncExitStack()
        self._thread = threading.Thread(target=self._serve, name="stage", daemon=True)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def app(self) -> App:
        return self.seeded.app

    @property
    def seeded(self) -> Seeded:
        assert self._seeded is not None
        return self._seeded

    def start(self) -> "Stage":
        self._thread.start()
        assert self._up.wait(_PATIENCE), "the site did not start"
        if self._failed is not None:
            raise self._failed
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_PATIENCE)
        assert not self._thread.is_alive(), "the site did not end"

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Done on the site's loop, to which the app belongs; what came of it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    async def till(self, what: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        """Wait until that is so, as the app sees it."""
        async with asyncio.timeout(_PATIENCE):
            while not await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(what(), self._loop)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def also(self, access: Access) -> str:
        """The same app's site once more, for others; its address."""
        return f"http://127.0.0.1:{self.do(self._site(access))}"

    async def _site(self, access: Access) -> int:
        server = HttpServer(site(self.app, access=access), "127.0.0.1", 0)
        port = await server.start()
        self._stack.push_async_callback(server.close)
        return port

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run())
        except BaseException as error:  # `start` tells it
            self._failed = error
            self._up.set()
        finally:
            self._loop.close()

    async def _run(self) -> None:
        async with self._scene(self.url) as self._seeded, self._stack:
            self.port = await self._site(ANYONE_MAY_ACT)
            self._up.set()
            await self._end.wait()
