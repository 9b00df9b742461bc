"""Toril on Redis, in BullMQ's layout: any number of machines, and Node's producers and workers on the same queues."""

from toril.clock import SYSTEM, Clock
from toril.engines.redis.engine import RedisEngine

__all__ = ["RedisEngine", "connect"]


def connect(url: str, *, clock: Clock = SYSTEM, prefix: str = "bull") -> RedisEngine:
    """The engine for a `redis://`, `rediss://` or `unix://` URL, not yet opened."""
    return RedisEngine.from_url(url, clock=clock, prefix=prefix)
