"""The events of a queue as they happen, and the history of one job."""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from toril.model import EventPage, EventRow
from toril.runtime.clock import SYSTEM, Clock
from toril.store.engine import Store

__all__ = ["Gap", "Happening", "follow", "history", "recent"]

_PAUSE: Final = 0.5  # seconds between two checks of a quiet queue
_A_LOOK: Final = 1000


@dataclass(frozen=True, slots=True)
class Gap:
    """Some events were trimmed before you read them: a queue keeps about the last 10,000. The next ones follow `at`."""

    at: str


Happening: TypeAlias = EventRow | Gap


async def follow(store: Store, queue: str, after: str | None, *, clock: Clock = SYSTEM) -> AsyncIterator[Happening]:
    """All events after a position, `event.at`; without one, from now on. It does not end by itself."""
    place = (await recent(store, queue, None, 0)).last if after is None else after
    while True:
        look = await store.events(queue, after=place, limit=_A_LOOK)
        if look.gap:
            yield Gap(place)
        for event in look.items:
            yield event
        place = look.last
        if not look.items:
            await clock.sleep(_PAUSE)


async def history(store: Store, queue: str, job_id: str) -> list[EventRow]:
    """What is still known to have happened to one job, oldest first."""
    found: list[EventRow] = []
    place: str | None = None
    while True:
        look = await store.events(queue, after=place, limit=_A_LOOK, of=job_id)
        found += look.items
        if look.last in {place, "0"}:
            return found
        place = look.last


async def recent(store: Store, queue: str, after: str | None, count: int) -> EventPage:
    """The last `count` events after a position, and where to continue."""
    found: deque[EventRow] = deque(maxlen=count)
    place = after
    while True:
        look = await store.events(queue, after=place, limit=_A_LOOK)
        found.extend(look.items)
        place = look.last
        if not look.items:
            return EventPage(tuple(found), place)
