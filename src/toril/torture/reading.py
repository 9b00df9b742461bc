"""The two witnesses of a run: what is in the store, and what the ledgers say."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toril import App
from toril.model import JobRecord
from toril.model.states import FINISHED, State
from toril.torture.ledger import lines
from toril.torture.work import QUEUES, queue_name

__all__ = ["ENDED", "Stored", "acknowledged", "open_jobs", "refs_in", "stored"]

ENDED: Final = FINISHED
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Stored:
    """A job as it lies in the store."""

    ref: str
    queue: str
    nonce: str
    record: JobRecord

    @property
    def ended(self) -> bool:
        return self.record.state in ENDED

    @property
    def fence(self) -> str | None:
        """Of the run whose end was accepted, as its handler returned it."""
        return self.record.result if self.record.state is State.COMPLETED else None


async def stored(app: App, tag: str) -> AsyncIterator[Stored]:
    """Every job of the run, in whatever state; `queue` is its short name."""
    for short in QUEUES:
        name = queue_name(tag, short)
        for state in State:
            cursor: str | None = None
            while True:
                page = await app.store.page(name, state, cursor=cursor, limit=_PAGE)
                for record in page:
                    yield Stored(f"{name}/{record.id}", short, _nonce(record), record)
                cursor = page.cursor
                if cursor is None:
                    break


def _nonce(record: JobRecord) -> str:
    data: Any = json.loads(record.data)
    return str(data["nonce"])


async def open_jobs(app: App, tag: str) -> int:
    """How many have not ended, the next run of the schedule aside."""
    total = 0
    for short in QUEUES:
        if short != "ticks":
            counts = await app.store.counts(queue_name(tag, short))
            total += sum(counts.of(state) for state in State if state not in ENDED)
    return total


async def refs_in(url: str, tag: str) -> set[str]:
    """The jobs of the run in another store than its own."""
    async with App(url) as app:
        return {job.ref async for job in stored(app, tag)}


def acknowledged(folder: Path) -> set[str]:
    """The jobs of which a producer was told that they are kept."""
    return {f"{line.facts[1]}/{line.facts[2]}" for line in lines(folder, "p*.log") if line.word == "ack"}
