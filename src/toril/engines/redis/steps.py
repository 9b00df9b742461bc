"""Durable steps on Redis."""

import json
from collections.abc import Sequence
from typing import Any, Final

from toril.engines.redis.layout import NUMBERS, may_be_id
from toril.engines.redis.records import dump_wait, record_of
from toril.engines.redis.runner import ScriptRunner
from toril.engines.shared import cursor_number
from toril.errors import NotFound, preview, unknown_cursor
from toril.model import (
    Call,
    ControlResult,
    DeliveredSignal,
    JobRow,
    Kept,
    Lease,
    NewSignal,
    Page,
    Refused,
    SignalOutcome,
    SignalRow,
    SignalWait,
    StepAnswer,
    StepReport,
    StepVerdict,
)
from toril.model.states import State
from toril.store.capabilities import StepStore
from toril.store.checked import implements

__all__ = ["RedisSteps"]

_VERDICTS: Final = (StepVerdict.OK, StepVerdict.LOST, StepVerdict.MISSING, StepVerdict.FULL, StepVerdict.CLASH)
_NOWHERE: Final = (SignalOutcome.MISSING, None)  # for an id that can be no job's


@implements(StepStore)
class RedisSteps:
    """Rows in their job's hash, and signals in it or beside the queue."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner

    async def record(
        self, queue: str, reports: Sequence[StepReport], *, call: Call | None = None, now: int | None = None
    ) -> list[StepAnswer]:
        arguments: list[Any] = []
        for each in reports:
            arguments += (
                each.lease.id, each.lease.token, each.key, each.kind.value, each.text, each.took, each.digest or "-",
                "" if each.delay is None else each.delay, "" if each.until is None else each.until,
            )  # fmt: skip
        return [_answered(row) for row in await self._runner.write("record", queue, arguments, call, now)]

    async def page(
        self, queue: str, job_id: str, *, cursor: str | None = None, limit: int = 100, where: Kept = "queue"
    ) -> Page[tuple[str, str]]:
        last = -1 if cursor is None else cursor_number(cursor)
        key = self._runner.job_key(queue, job_id, where)
        if key is None:
            return Page(())
        rows, more = await self._runner.read("steps", queue, [key, limit, last])
        return Page(tuple((key, text) for _, key, text in rows), str(rows[-1][0]) if more == 1 else None)

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
        arguments: list[Any] = [lease.id, lease.token, key, digest or "-"]
        for each in signals:
            arguments += (each.name, each.key or "", dump_wait(each))
        return _answered(await self._runner.write("receive", lease.queue, arguments, call, now))

    async def deliver(
        self, queue: str, signals: Sequence[NewSignal], *, call: Call | None = None, now: int | None = None
    ) -> list[DeliveredSignal]:
        arguments: list[Any] = [queue]
        possible = [each for each in signals if each.job_id is None or may_be_id(each.job_id)]
        for each in possible:
            arguments += (
                each.name, each.key or "", each.job_id or "", each.id or "", each.ttl,
                "1" if each.only_if_waiting else "", each.payload,
            )  # fmt: skip
        answer = iter(await self._runner.write("deliver", queue, arguments, call, now))
        there = set(map(id, possible))
        return [_delivered(next(answer) if id(each) in there else _NOWHERE) for each in signals]

    async def rewind(
        self, queue: str, job_id: str, to: str | None, *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        if not may_be_id(job_id):
            return ControlResult(refused=(Refused(job_id, None),))
        answer = await self._runner.write("rewind", queue, [job_id, to or ""], call, now)
        if answer is None:
            raise NotFound(f"job {job_id} of queue {queue!r} has no step {preview(to)}")
        done, _, refused = answer
        return ControlResult(
            tuple(done), (), tuple(Refused(each, None if word is None else State(word)) for each, word in refused)
        )

    async def resting(
        self, queue: str, *, signal: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[JobRow]:
        score, last = _spot(cursor)
        rows: list[Any] = []
        room = NUMBERS["page"]
        place: list[str] | None = [score, last]
        while place is not None and len(rows) < limit and room > 0:
            found, taken, place = await self._runner.read("resting", queue, [signal or "", limit - len(rows), *place])
            rows, room = rows + found, room - taken
        items = tuple(record_of(queue, row) for row in rows)
        return Page(items, None if place is None else json.dumps(place))

    async def inbox(self, queue: str, job_id: str, *, where: Kept = "queue") -> list[SignalRow]:
        key = self._runner.job_key(queue, job_id, where)
        rows = [] if key is None else await self._runner.read("inbox", queue, [key])
        return [
            SignalRow(number, name, text, at, word or None, key or None) for number, name, key, word, at, text in rows
        ]


def _delivered(row: Sequence[Any]) -> DeliveredSignal:
    outcome, job = row
    return DeliveredSignal(SignalOutcome(outcome), job)


def _spot(cursor: str | None) -> tuple[str, str]:
    """The time and the id at which the page before ended."""
    if cursor is None:
        return "", ""
    try:
        score, last = json.loads(cursor)
        if isinstance(last, str) and isinstance(score, str) and score.isascii() and score.isdigit():
            return score, last
    except (ValueError, TypeError, RecursionError):
        pass
    raise unknown_cursor(cursor)


def _answered(row: Sequence[Any]) -> StepAnswer:
    verdict, now, text, count, size = row
    return StepAnswer(_VERDICTS[verdict], now, text, count, size)
