"""Durable steps in SQL: what jobs record of their handlers."""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from toril.codec.steps import load_rest
from toril.engines.shared import cursor_number, cursor_numbers
from toril.engines.sql.calls import recall, remember
from toril.engines.sql.inspector import STORED_JOB, record_of
from toril.engines.sql.metrics import record as count
from toril.engines.sql.recorded import holder, recorded_job, replaces, steps_key
from toril.engines.sql.replay import rewind
from toril.engines.sql.schema import PAGE_BYTES
from toril.engines.sql.signals import deliver, inbox, receive
from toril.engines.sql.statements import query, statements
from toril.engines.sql.transaction import Steps, Transaction
from toril.model import (
    TIMED,
    Call,
    ControlResult,
    DeliveredSignal,
    JobRow,
    Kept,
    Lease,
    NewSignal,
    Page,
    SignalRow,
    SignalWait,
    StepAnswer,
    StepReport,
    StepRow,
    StepVerdict,
)
from toril.policy.metrics import RECORDS
from toril.store.capabilities import StepStore
from toril.store.checked import implements

__all__ = ["SqlSteps"]

_SQL: Final = statements("steps")


class StoredRest(NamedTuple):
    """Why a job rests, and until when."""

    job: int
    until: int
    text: str


_RESTS: Final = query("rests", "by_until", StoredRest)


@implements(StepStore)
class SqlSteps:
    """Steps of the seam."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def record(
        self, queue: str, reports: Sequence[StepReport], *, call: Call | None = None, now: int | None = None
    ) -> list[StepAnswer]:
        return await self._steps.write(partial(record, queue=queue, reports=reports, call=call), now, grows=True)

    async def receive(
        self,
        lease: Lease,
        key: str,
        signals: Sequence[SignalWait],
        *,
        digest: str | None = None,
        call: Call | None = None,
        now: int | None = None,
    ) -> StepAnswer:
        op = partial(receive, lease=lease, key=key, signals=signals, digest=digest, call=call)
        return await self._steps.write(op, now, grows=True)

    async def deliver(
        self, queue: str, signals: Sequence[NewSignal], *, call: Call | None = None, now: int | None = None
    ) -> list[DeliveredSignal]:
        return await self._steps.write(partial(deliver, queue=queue, signals=signals, call=call), now, grows=True)

    async def rewind(
        self, queue: str, job_id: str, to: str | None, *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        return await self._steps.write(partial(rewind, queue=queue, identity=job_id, to=to, call=call), now)

    async def page(
        self, queue: str, job_id: str, *, cursor: str | None = None, limit: int = 100, where: Kept = "queue"
    ) -> Page[tuple[str, str]]:
        after = 0 if cursor is None else cursor_number(cursor)
        return await self._steps.read(
            partial(page, queue=queue, identity=job_id, after=after, limit=limit, where=where)
        )

    async def resting(
        self, queue: str, *, signal: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[JobRow]:
        after = (-1, -1) if cursor is None else cursor_numbers(cursor)
        return await self._steps.read(partial(resting, queue=queue, signal=signal, after=after, limit=limit))

    async def inbox(self, queue: str, job_id: str, *, where: Kept = "queue") -> list[SignalRow]:
        return await self._steps.read(partial(inbox, queue=queue, identity=job_id, where=where))


def record(tx: Transaction, queue: str, reports: Sequence[StepReport], call: Call | None) -> list[StepAnswer]:
    """Write each row whose lease holds, one after the other."""
    before = recall(tx, call)
    if before is not None:
        return [StepAnswer(StepVerdict(verdict), *rest) for verdict, *rest in before]
    found = [_record(tx, queue, each) for each in reports]
    answers, written = [answer for answer, _ in found], sum(wrote for _, wrote in found)
    if written:
        count(tx, tx.queue(queue), {RECORDS: written})
    remember(tx, call, [(each.verdict, each.now, each.row, each.steps, each.bytes) for each in answers])
    return answers


def _record(tx: Transaction, queue: str, report: StepReport) -> tuple[StepAnswer, bool]:
    """What became of a row, and whether it was written."""
    held = holder(tx, queue, report.lease)
    if isinstance(held, StepVerdict):
        return StepAnswer(held, tx.now), False
    key, made = held
    job = recorded_job(tx, key)
    before = job.row(tx, report.key)
    if not replaces(report.kind, before, until=report.until):
        return StepAnswer(StepVerdict.OK, tx.now, before, job.count, job.bytes), False
    until = report.until if report.delay is None else tx.now + report.delay
    row = StepRow(
        report.key,
        report.kind,
        job.seq + 1,
        tx.now,
        report.took,
        report.digest,
        job.reruns,
        made,
        until,
        report.text,
    )
    text = job.put(tx, row, before)
    if text is None:
        return StepAnswer(StepVerdict.FULL, tx.now, None, job.count, job.bytes), False
    job.save(tx, tx.queue(queue))
    answer = StepAnswer(StepVerdict.OK, tx.now, text if report.kind in TIMED else None, job.count, job.bytes)
    return answer, True


def page(tx: Transaction, queue: str, identity: str, after: int, limit: int, where: Kept) -> Page[tuple[str, str]]:
    """The rows of a job, in the order in which they were recorded."""
    key = steps_key(tx, queue, identity, where)
    found = [] if key is None else tx.all(_SQL["page"], (key, after, limit + 1))
    items: list[tuple[str, str]] = []
    room = PAGE_BYTES
    for name, text, seq in found:
        if len(items) == limit or room < 0:
            return Page(tuple(items), str(after))
        items.append((name, text))
        room -= len(text)
        after = seq
    return Page(tuple(items))


def resting(tx: Transaction, queue: str, signal: str | None, after: tuple[int, int], limit: int) -> Page[JobRow]:
    """Jobs that rest, by the time until which they do."""
    row = tx.find(queue)
    items: list[JobRow] = []
    room = PAGE_BYTES
    for rest in () if row is None else tx.each(_RESTS, (row.key, *after)):
        if signal is not None and signal not in _signals_of(rest.text):
            continue
        if len(items) == limit or room < 0:
            return Page(tuple(items), "-".join(map(str, after)))
        found = tx.row(STORED_JOB, (rest.job,))
        if found is not None:
            items.append(record_of(queue, found))
            room -= len(items[-1].data)
        after = (rest.until, rest.job)
    return Page(tuple(items))


def _signals_of(text: str) -> set[str]:
    """The names of the signals that a job rests for."""
    rest = load_rest(text)
    return set() if rest is None else {wait.name for reason in rest.reasons for wait in reason.signals}
