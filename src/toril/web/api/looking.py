"""Looking through the jobs of a state for those that are meant. Each look is bounded, and says where to go on."""

import json
from dataclasses import dataclass
from typing import Any, Final

from toril.job import Job
from toril.model import Page
from toril.policy.masking import masked
from toril.queue import Queue
from toril.states import State

__all__ = ["Wanted", "look"]

_A_PAGE: Final = 200
_AT_MOST: Final = 5_000  # jobs looked through in one request


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Jobs of a state; with this name; with this text in their id, name, error or payload. A text is just a text:
    there are no patterns."""

    state: State
    name: str | None = None
    text: str | None = None

    def fits(self, job: Job[Any]) -> bool:
        if self.name is not None and job.name != self.name:
            return False
        if self.text is None:
            return True
        sought = self.text.casefold()
        return any(sought in text.casefold() for text in (job.id, job.name, job.error or "", _payload(job)))


def _payload(job: Job[Any]) -> str:
    """Without its secrets: what is not shown cannot be found either, letter by letter."""
    return json.dumps(masked(job.data), ensure_ascii=False, default=str)


async def look(queue: Queue, wanted: Wanted, *, cursor: str | None, limit: int) -> "Page[Job[Any]]":
    """A page of those that are meant. It may be short, or empty, and still have a cursor: then there is more to look
    through."""
    everything = wanted.name is None and wanted.text is None
    size = limit if everything else _A_PAGE
    found: list[Job[Any]] = []
    seen = 0
    while True:
        page = await queue.jobs(wanted.state, cursor, min(size, limit - len(found)) if everything else size)
        fitting = [job for job in page.items if wanted.fits(job)]
        if len(found) + len(fitting) > limit:
            # More than asked for: this page is looked through again, in smaller steps.
            if size == 1:
                return Page(tuple(found), cursor)
            size = max(1, size // 4)
            continue
        found += fitting
        seen += len(page.items)
        cursor = page.cursor
        if cursor is None or len(found) >= limit or seen >= _AT_MOST:
            return Page(tuple(found), cursor)
