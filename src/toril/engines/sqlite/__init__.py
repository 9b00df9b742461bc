"""Toril in a SQLite file or in memory: no server, one machine, any number of processes."""

from toril.engines.sqlite.engine import SqliteEngine
from toril.runtime.clock import SYSTEM, Clock

__all__ = ["SqliteEngine", "connect"]


def connect(
    url: str,
    *,
    clock: Clock = SYSTEM,
    prefix: str = "bull",  # noqa: ARG001 - a file is one app's
    dead_letter_queue: str | None = None,
) -> SqliteEngine:
    """The engine for a `sqlite:///` or `memory://` URL, not yet opened. Its dead letters are not in a queue; the name
    is reserved in case the app moves to Redis."""
    engine = SqliteEngine.from_url(url, clock=clock)
    if dead_letter_queue is not None:
        engine.dead_letters.queue = dead_letter_queue
    return engine
