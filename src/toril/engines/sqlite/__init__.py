"""Toril in a file, or in memory: no server, one machine, any number of processes."""

from toril.clock import SYSTEM, Clock
from toril.engines.sqlite.engine import SqliteEngine

__all__ = ["SqliteEngine", "connect"]


def connect(url: str, *, clock: Clock = SYSTEM, prefix: str = "bull") -> SqliteEngine:  # noqa: ARG001 - a file is one app's
    """The engine for a `sqlite:///` or `memory://` URL, not yet opened."""
    return SqliteEngine.from_url(url, clock=clock)
