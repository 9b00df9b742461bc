"""structlog: adds the job and the attempt to everything that a handler logs.

It needs structlog, with `merge_contextvars` among its processors.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from structlog.contextvars import bound_contextvars

from toril.app import App

__all__ = ["instrument"]


def instrument(app: App) -> None:
    """Bind `queue`, `job_id`, `job_name` and `attempt` around every attempt, on the event loop and in threads. A
    function with `executor="process"` has to bind them itself."""
    app.middleware(_bound)


async def _bound(ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    facts = {"queue": ctx.queue_name, "job_id": ctx.job_id, "job_name": ctx.job_name, "attempt": ctx.attempt}
    with bound_contextvars(**facts):
        return await call_next(ctx)
