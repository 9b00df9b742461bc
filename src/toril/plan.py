"""What an app declares for its worker processes, known without any of a worker's code."""

import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from toril.clock import Clock
from toril.middleware import Middleware

__all__ = ["GRACE", "Hook", "Plan", "worker_name"]

Hook: TypeAlias = Callable[[], Any]

GRACE: Final = 10.0  # seconds that running jobs are given when a worker stops


class Plan:
    """Hooks, pollers and middleware, in the order in which they were declared."""

    def __init__(self) -> None:
        self.on_start: list[Hook] = []
        self.on_flush: list[Hook] = []
        self.on_stop: list[Hook] = []
        self.pollers: list[Callable[[], Awaitable[Any]]] = []
        self.middleware: list[Middleware] = []


def worker_name(clock: Clock) -> str:
    """Unique and readable: the host, the process, and a few letters more."""
    host = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in socket.gethostname())[:60]
    return f"worker-{host}-{os.getpid()}-{clock.unique()[:6]}"
