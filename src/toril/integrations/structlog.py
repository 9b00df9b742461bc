"""structlog: what a handler logs says which job it was, and in which attempt. It needs structlog, whose processors
have `merge_contextvars` among them."""

from collections.abc import Awaitable, Callable
from typing import Any

from structlog.contextvars import bound_contextvars

from toril.app import App

__all__ = ["instrument"]


def instrument(app: App) -> None:
    """Bind `queue`, `job_id`, `job_name` and `attempt` around every attempt, on the loop and in threads. A function in
    a process of its own has to bind them itself."""
    app.middleware(_bound)


async def _bound(ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    facts = {"queue": ctx.queue_name, "job_id": ctx.job_id, "job_name": ctx.job_name, "attempt": ctx.attempt}
    with bound_contextvars(**facts):
        return await call_next(ctx)
