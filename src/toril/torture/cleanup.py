"""Removes all traces of a torture run from a store that others use."""

from urllib.parse import urlsplit

from toril import App
from toril.errors import TorilError
from toril.runtime.clock import SYSTEM
from toril.torture.app import QUEUES, SCHEDULE, queue_name
from toril.torture.plan import RunSettings

__all__ = ["clean"]

_TRIES = 3


async def clean(app: App, setting: RunSettings) -> None:
    """Remove the queues of the run, and on Redis every key of its prefix."""
    for tries in range(_TRIES):
        try:
            await _obliterate(app, setting)
        except TorilError:
            if tries == _TRIES - 1:
                raise
            await SYSTEM.sleep(1)
        else:
            break
    if urlsplit(setting.url).scheme in {"redis", "rediss", "unix"}:
        await _sweep(setting)


async def _obliterate(app: App, setting: RunSettings) -> None:
    for short in QUEUES:
        queue = queue_name(setting.tag, short)
        await app.store.schedules.remove(queue, SCHEDULE)
        while (await app.store.obliterate(queue, running="remove")).more:
            pass


async def _sweep(setting: RunSettings) -> None:
    """Workers, calls and leaders have keys too, which would expire in an hour."""
    from toril.engines.redis.connection.connection import borrowed  # noqa: PLC0415 - only where the store is Redis
    from toril.engines.redis.connection.topology import Topology  # noqa: PLC0415
    from toril.engines.redis.connection.url import parse  # noqa: PLC0415

    async with borrowed(Topology(parse(setting.url))) as connection:
        cursor = ""
        while cursor != "0":
            cursor, found = await connection.ask("SCAN", cursor or "0", "MATCH", f"{setting.prefix}:*", "COUNT", 1000)
            if found:
                await connection.ask("UNLINK", *found)
