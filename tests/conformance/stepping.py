"""The words that the tests of durable steps are written in."""

from collections.abc import Sequence
from typing import Any, Final

from tests.conformance.claims import add, claim_one, new_job
from toril.codec.steps import load_step
from toril.engines.sql.transaction import Transaction, keys_of
from toril.engines.sqlite import SqliteEngine
from toril.model import (
    Call,
    Claimed,
    Failure,
    Kept,
    Lease,
    RecordedSteps,
    StepAnswer,
    StepKind,
    StepReport,
    StepRow,
    StepVerdict,
)
from toril.store.capabilities import StepStore
from toril.store.engine import Store

__all__ = [
    "WHY",
    "all_rows",
    "plant_row",
    "recorded",
    "report",
    "row",
    "rows_of",
    "running",
    "steps_of",
    "write",
]

WHY: Final = Failure("no such user", "LookupError", "Traceback: here")


def steps_of(engine: Store) -> StepStore:
    """The steps of a store."""
    found: StepStore = getattr(engine, "steps")  # noqa: B009 - until each store has them
    return found


async def running(engine: Store, name: str = "n", *, queue: str = "q", **given: Any) -> Claimed:
    """A new job, claimed."""
    await add(engine, new_job(name, **given), queue=queue)
    return await claim_one(engine, queue=queue)


def report(lease: Lease, key: str = "a", kind: str = "d", text: str = "1", **given: Any) -> StepReport:
    """One row to record."""
    return StepReport(lease, key, StepKind(kind), text, **given)


async def recorded(engine: Store, *reports: StepReport, call: Call | None = None) -> list[StepAnswer]:
    """Record these, of one queue."""
    return await steps_of(engine).record(reports[0].lease.queue, reports, call=call)


async def write(engine: Store, lease: Lease, key: str = "a", kind: str = "d", text: str = "1", **given: Any) -> StepRow:
    """Record one row, which must be written, and read it."""
    (answer,) = await recorded(engine, report(lease, key, kind, text, **given))
    assert answer.verdict is StepVerdict.OK
    found = await row(engine, lease.id, key, queue=lease.queue)
    assert found is not None
    return found


async def all_rows(
    engine: Store, job_id: str, *, queue: str = "q", where: Kept = "queue", limit: int = 100
) -> dict[str, str]:
    """All rows of a job, key and text, page by page."""
    found: list[tuple[str, str]] = []
    cursor = None
    while True:
        page = await steps_of(engine).page(queue, job_id, cursor=cursor, limit=limit, where=where)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            break
    assert len(dict(found)) == len(found)
    return dict(found)


async def row(engine: Store, job_id: str, key: str, *, queue: str = "q") -> StepRow | None:
    """One row of a job."""
    text = (await all_rows(engine, job_id, queue=queue)).get(key)
    return None if text is None else load_step(key, text)


def rows_of(job: Claimed) -> Sequence[str]:
    """The keys that came with a claim."""
    return sorted((job.steps or RecordedSteps()).rows)


async def plant_row(engine: Store, job_id: str, key: str, text: str, *, queue: str = "q") -> None:
    """Put another text of as many bytes into a row that is there, as another version might."""
    match engine:
        case SqliteEngine():

            def plant(tx: Transaction) -> None:
                number = keys_of(tx, tx.queue(queue), [job_id])[job_id]
                assert tx.run("UPDATE steps SET row = ? WHERE job = ? AND name = ?", (text, number, key)) == 1

            await engine._write(plant, None)
        case _:
            raise AssertionError(f"nobody has said how to plant a row in {engine!r}")
