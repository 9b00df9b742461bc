"""Chooses the store that a URL means, and waits for it to become available."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from toril.errors import EngineFull, EngineRefused, EngineUnavailable, InvalidOption
from toril.runtime.clock import Clock
from toril.runtime.logs import log
from toril.store.engine import Durability, Store, connect

__all__ = ["connected", "is_in_memory", "open_with_patience"]

_FIRST_REST: Final = 0.5  # seconds
_LONGEST_REST: Final = 5.0
_TELL: Final = 30.0  # seconds between two lines in the log


def is_in_memory(url: str) -> bool:
    """Whether the store belongs to one process and disappears with it."""
    return url.startswith("memory:")


def connected(
    url: str, clock: Clock, prefix: str, durability: Durability | None, dead_letter_queue: str | None, *, given: bool
) -> Store:
    """The store, not yet opened. If the URL is not from the code, errors say where it comes from."""
    try:
        return connect(url, clock=clock, prefix=prefix, durability=durability, dead_letter_queue=dead_letter_queue)
    except InvalidOption as error:
        if given:
            raise
        raise InvalidOption(f"TORIL_URL: {error}") from None


async def open_with_patience(
    opening: Callable[[], Awaitable[Any]], clock: Clock, stopped: Callable[[], Awaitable[Any]], *, patient: bool = True
) -> bool:
    """Open a store. If `patient`, wait for one that does not answer yet, and log that now and then; one that refuses
    raises at once. Returns False if `stopped` came first."""
    if not patient:
        await opening()
        return True
    stop = asyncio.ensure_future(stopped())
    try:
        return await _until_open(opening, clock, stop)
    finally:
        stop.cancel()


async def _until_open(opening: Callable[[], Awaitable[Any]], clock: Clock, stop: "asyncio.Future[Any]") -> bool:
    rest, logged_at = _FIRST_REST, None
    while True:
        try:
            if await _before(stop, opening()):
                if logged_at is not None:
                    log.info("connected to the store")
                return True
        except (EngineFull, EngineRefused):
            raise
        except EngineUnavailable as error:
            if logged_at is None or clock.monotonic() - logged_at >= _TELL:
                logged_at = clock.monotonic()
                log.warning("waiting for the store: %s", error)
        if stop.done() or not await _before(stop, clock.sleep(rest * (0.5 + clock.random() / 2))):
            return False
        rest = min(rest * 2, _LONGEST_REST)


async def _before(stop: "asyncio.Future[Any]", wanted: Awaitable[Any]) -> bool:
    """Whether it finished before the stop."""
    doing = asyncio.ensure_future(wanted)
    try:
        await asyncio.wait([doing, stop], return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not doing.done():
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
    if doing.cancelled():
        return False
    doing.result()
    return True
