"""Toril in a schema of a PostgreSQL database, beside the tables of your application or in a database of its own."""

from toril.engines.postgres.engine import PostgresEngine
from toril.runtime.clock import SYSTEM, Clock

__all__ = ["PostgresEngine", "connect"]


def connect(
    url: str,
    *,
    clock: Clock = SYSTEM,
    prefix: str = "bull",  # noqa: ARG001 - a schema is one app's
    dead_letter_queue: str | None = None,
) -> PostgresEngine:
    """The engine for a `postgresql://` URL, not yet opened. Its dead letters are not in a queue; the name is reserved
    in case the app moves to Redis."""
    engine = PostgresEngine.from_url(url, clock=clock)
    if dead_letter_queue is not None:
        engine.dead_letters.queue = dead_letter_queue
    return engine
