"""The hooks, pollers and middleware of an app."""

import os
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from toril.errors import preview
from toril.model import JobRef
from toril.runtime.clock import Clock
from toril.runtime.logs import log

__all__ = [
    "GRACE",
    "HANG_TIMEOUT",
    "Hook",
    "Hooks",
    "Middleware",
    "Poller",
    "Spent",
    "StepChecks",
    "app_name",
    "compose",
    "function",
    "last",
    "worker_name",
]

Next: TypeAlias = Callable[[Any], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Any, Next], Awaitable[Any]]


def compose(middleware: Sequence[Middleware], innermost: Next) -> Next:
    """Nest middleware; the one declared first is the outermost."""
    call = innermost
    for each in reversed(middleware):
        call = partial(_around, each, call)
    return call


async def _around(middleware: Middleware, call: Next, ctx: Any) -> Any:
    return await middleware(ctx, call)


F = TypeVar("F", bound=Callable[..., Any])

Hook: TypeAlias = Callable[[], Any]
# Called when a burst has nothing left to do, with the monotonic time of the next job: whether to continue.
Spent: TypeAlias = Callable[[float | None], Awaitable[bool]]

GRACE: Final = 10.0  # seconds that running jobs get when a worker stops
HANG_TIMEOUT: Final = 300.0  # seconds that an event loop may be blocked before other workers get its jobs


@dataclass(frozen=True, slots=True)
class Poller:
    """A function that runs beside the workers. With a `lease`, it runs in one process of the fleet, which leads for
    that many seconds at a time."""

    name: str
    fn: Callable[[], Awaitable[Any]]
    lease: float | None = None


class StepChecks(Protocol):
    """What a test checks of handlers with durable steps."""

    replay_each: bool  # whether a handler is called again after each row that it records

    def differs(self, job: JobRef, error: Exception) -> None:
        """A handler does not do the same each time it is called. May be called from any thread."""


class Hooks:
    """Hooks, pollers and middleware, in the order in which they were declared."""

    def __init__(self) -> None:
        self.on_start: list[Hook] = []
        self.on_flush: list[Hook] = []
        self.on_stop: list[Hook] = []
        self.pollers: list[Poller] = []
        self.middleware: list[Middleware] = []
        self.spent: Spent | None = None
        self.step_checks: StepChecks | None = None


def worker_name(clock: Clock) -> str:
    """A unique and readable name: the host, the process, and a few random letters."""
    host = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in socket.gethostname())[:60]
    return f"worker-{host}-{os.getpid()}-{clock.unique()[:6]}"


def app_name(module: str) -> str:
    """The name of an app created in this module; in a script, the name of the script."""
    if module != "__main__":
        return module
    main = sys.modules[module]
    if main.__spec__ is not None:  # python -m
        return main.__spec__.name.removesuffix(".__main__")
    script = Path(getattr(main, "__file__", None) or module).stem
    return script if script.isprintable() else module


def function(what: str, fn: F) -> F:
    """The function that was declared as a hook; raises for anything else."""
    if callable(fn):
        return fn
    raise TypeError(f"{what} must be a function, not {preview(fn)}")


async def last(hook: Hook) -> None:
    """Call a hook of the shutdown. If it fails, the others still run."""
    try:
        answer = hook()
        if isinstance(answer, Awaitable):
            await answer
    except (Exception, SystemExit):
        log.exception("on_stop failed")
