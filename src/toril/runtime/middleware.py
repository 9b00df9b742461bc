"""Functions around every handler: each gets the context and what comes next."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

__all__ = ["Middleware", "compose"]

Next: TypeAlias = Callable[[Any], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Any, Next], Awaitable[Any]]


def compose(middleware: Sequence[Middleware], innermost: Next) -> Next:
    """The first one declared is the outermost."""
    call = innermost
    for each in reversed(middleware):
        call = partial(_around, each, call)
    return call


async def _around(middleware: Middleware, call: Next, ctx: Any) -> Any:
    return await middleware(ctx, call)
