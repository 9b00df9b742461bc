"""Toril on Redis in BullMQ's layout: many machines, and Node's producers and workers on the same queues."""

from toril.engines.redis.engine import RedisEngine
from toril.runtime.clock import SYSTEM, Clock

__all__ = ["RedisEngine", "connect"]


def connect(
    url: str,
    *,
    clock: Clock = SYSTEM,
    prefix: str = "bull",
    durability: str | None = None,
    dead_letter_queue: str | None = None,
) -> RedisEngine:
    """The engine for a Redis URL, not yet opened."""
    return RedisEngine.from_url(
        url, clock=clock, prefix=prefix, durability=durability, dead_letter_queue=dead_letter_queue
    )
