"""Starlette and FastAPI: the app's lifespan, queues as dependencies, and the dashboard below a path."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.applications import Starlette
from starlette.requests import HTTPConnection

from toril.app import App
from toril.queue import Queue

if TYPE_CHECKING:
    from toril.web.access import Access

__all__ = ["lifespan", "mount", "queue_of"]

# Accepts FastAPI's class too; what it yields is the site's state.
Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(app: App, own: Lifespan | None = None) -> Callable[[Any], AbstractAsyncContextManager[Any]]:
    """A lifespan that opens the app, for `FastAPI(lifespan=lifespan(jobs))`.

    Your own lifespan, `own`, runs inside it and can use the app before and after; what it yields is the site's state.
    """

    @asynccontextmanager
    async def opened(web: Starlette) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(app)
            yield None if own is None else await stack.enter_async_context(own(web))

    return opened


def queue_of(
    app: App, name: str, *, about: Callable[[HTTPConnection], Mapping[str, Any]] | None = None
) -> Callable[[HTTPConnection], Awaitable[Queue]]:
    """A dependency that returns a declared queue: `Annotated[Queue, Depends(queue_of(jobs, "mail"))]`.

    `about` returns metadata of a request, which is added to every job that the request adds.
    """
    queue = app.queues[name]  # an undeclared name raises when the program starts

    async def found(connection: HTTPConnection) -> Queue:
        return queue if about is None else queue.scoped(**about(connection))

    return found


def mount(
    web: Starlette, app: App, path: str, *, access: "Access", hosts: Sequence[str] = (), proxies: Sequence[str] = ()
) -> None:
    """Serve the app's dashboard and HTTP API below a path of your site; see `toril.web.site`."""
    from toril.web import site  # noqa: PLC0415 - who serves no pages does without what they need

    web.mount(path, site(app, access=access, hosts=hosts, proxies=proxies), name="toril")
