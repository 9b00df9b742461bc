"""The words that the tests of durable steps are written in."""

from collections.abc import Sequence
from typing import Any, Final

from tests.conformance.jobs import add, claim_one, job, new_job, settle
from toril.codec.steps import dump_calls, dump_waits, load_step
from toril.engines.redis import RedisEngine
from toril.engines.redis.layout import FIELDS
from toril.engines.sql.engine import SqlEngine
from toril.engines.sql.transaction import Transaction, keys_of
from toril.model import (
    Call,
    Claimed,
    Failure,
    FlowNode,
    JobRef,
    JobRow,
    Kept,
    Lease,
    OnFailure,
    RecordedSteps,
    Rest,
    Rested,
    SignalWait,
    StepAnswer,
    StepKind,
    StepReport,
    StepRow,
    StepVerdict,
    Verdict,
)
from toril.store.capabilities import StepStore
from toril.store.engine import Store

__all__ = [
    "WHY",
    "all_rows",
    "at_rest",
    "called",
    "child",
    "plant_row",
    "recorded",
    "report",
    "resting",
    "row",
    "rows_of",
    "running",
    "sleep",
    "steps_of",
    "wait",
    "with_steps",
    "write",
]

WHY: Final = Failure("no such user", "LookupError", "Traceback: here")


def steps_of(engine: Store) -> StepStore:
    """The steps of a store."""
    return engine.steps


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


async def with_steps(engine: Store, *keys: str, text: str = "1", **given: Any) -> Claimed:
    """A running job that has recorded these."""
    claimed = await running(engine, **given)
    for key in keys:
        await write(engine, claimed.lease, key, text=text)
    return claimed


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
        case SqlEngine():

            def plant(tx: Transaction) -> None:
                number = keys_of(tx, tx.queue(queue), [job_id])[job_id]
                assert tx.run("UPDATE steps SET row = ? WHERE job = ? AND name = ?", (text, number, key)) == 1

            await engine._write(plant, None)
        case RedisEngine():
            base = engine._runner.base(queue)
            assert await engine._runner.client.ask("HSET", base + job_id, FIELDS["step"] + key, text) == 0
        case _:
            raise AssertionError(f"nobody has said how to plant a row in {engine!r}")


def sleep(key: str = "s", delay: int = 1_000, **given: Any) -> Rest:
    """A sleep."""
    return Rest(key=key, kind=StepKind.SLEEP, delay=None if given.get("recorded") else delay, **given)


def wait(*names: str, key: str = "w", delay: int | None = None, by: str | None = None, recorded: bool = False) -> Rest:
    """A wait for signals of these names, sent to the job itself or by a key."""
    signals = tuple(SignalWait(name, by) for name in names)
    return Rest(
        key=key, kind=StepKind.WAIT, text=dump_waits(signals), delay=delay, signals=signals, recorded=recorded
    )  # fmt: skip


def called(*jobs: JobRef, key: str = "c") -> Rest:
    """A wait for jobs that this one has called."""
    return Rest(key=key, kind=StepKind.CALLED, text=dump_calls(jobs))


def child(name: str, parent: str, *, queue: str = "q", on_failure: OnFailure = OnFailure.IGNORE) -> FlowNode:
    """A child in the queue `c`."""
    return FlowNode(queue="c", job=new_job(name, id=name), parent=JobRef(queue, parent), on_failure=on_failure)


async def resting(engine: Store, lease: Lease, *rests: Rest, children: Sequence[FlowNode] = ()) -> JobRow:
    """Have a running job rest, and read it."""
    assert await settle(engine, lease, Rested(tuple(children), 1 if children else 0, rests)) is Verdict.OK
    return await job(engine, lease.id, queue=lease.queue)


async def at_rest(engine: Store, queue: str = "q", **given: Any) -> list[str]:
    """The ids of the jobs that rest."""
    found: list[str] = []
    cursor = None
    while True:
        page = await steps_of(engine).resting(queue, cursor=cursor, **given)
        found += [each.id for each in page]
        cursor = page.cursor
        if cursor is None:
            return found
