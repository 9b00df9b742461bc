"""The read side of the Redis engine."""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from typing import Any, Final

from toril.engines.redis.flows import family_of
from toril.engines.redis.groups import group_standing
from toril.engines.redis.layout import FIELDS, FLEET, KEYS, NUMBERS, event_place, may_be_id, stream_id
from toril.engines.redis.options import load_failure, load_traces, moment, number
from toril.engines.redis.records import (
    counts_of,
    event_of,
    record_of,
    run_of,
    settings_of,
    worker_of,
)
from toril.engines.redis.runner import ScriptRunner
from toril.errors import InvalidOption, preview, unknown_cursor
from toril.model import (
    USAGE_SAMPLE,
    AttemptFailure,
    Counts,
    Declarations,
    EventPage,
    JobBlockers,
    JobRow,
    Kept,
    Limits,
    Page,
    Precedence,
    QueueSummary,
    RunRow,
    RunStatus,
    Usage,
    WorkerRow,
    per_ms,
)
from toril.model.states import State
from toril.policy.attempts import all_errors, load_errors
from toril.runtime.clock import SYSTEM
from toril.store.checked import implements
from toril.store.engine import Inspector

__all__ = ["RedisInspector"]

_END: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"[0-9]{1,19}\Z")
_ID: Final = NUMBERS["record"]  # the index of the id in a row, after the fields
_ANCHORS: Final = 3  # ids with which a page of a list finds its position again
_A_GLANCE: Final = 0.05  # seconds that one call spends looking for them
_LOOK_AROUND: Final = 60.0  # seconds between two searches for queues that other programs created


@implements(Inspector)
class RedisInspector:
    """Reads that each see a queue at one moment."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner
        self._others: frozenset[str] = frozenset()
        self._seen_so_far: frozenset[str] = frozenset()
        self._scan = "0"  # the cursor of the search; "0" when it is complete
        self._looked_at: float | None = None
        self._looking = False

    async def queues(self) -> list[str]:
        """Toril's own queues from a set; those that only BullMQ created are searched for now and then."""
        self._runner.check_open()
        due = self._looked_at is None or SYSTEM.monotonic() - self._looked_at > _LOOK_AROUND
        if due and not self._looking:
            self._looking = True
            try:
                await self._look_around()
            finally:
                self._looking = False
        known = {*self._others, *await self._runner.client.ask("SMEMBERS", self._runner.fleet + FLEET["queues"])}
        names = sorted(known - {self._runner.dead_letter_queue})
        there = (
            await self._runner.read("existing_queues", "", [self._runner.base(name) for name in names]) if names else []
        )
        return [name for name, found in zip(names, there, strict=True) if found]

    async def _look_around(self) -> None:
        """Continue the scan of the keys for a short while: if there are millions, several calls share one scan."""
        until = SYSTEM.monotonic() + _A_GLANCE
        prefix, suffix = f"{self._runner.address.prefix}:", ":" + KEYS["meta"]
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", prefix) + "*" + suffix
        while True:
            self._scan, keys = await self._runner.client.ask("SCAN", self._scan, "MATCH", pattern, "COUNT", 1000)
            names = [key[len(prefix) : -len(suffix)] for key in keys]
            self._seen_so_far |= {name for name in names if name and ":" not in name}
            self._others |= self._seen_so_far
            if self._scan == "0":
                self._others, self._seen_so_far = self._seen_so_far, frozenset()
                self._looked_at = SYSTEM.monotonic()
                return
            if SYSTEM.monotonic() > until:
                return

    async def queue(self, queue: str) -> QueueSummary:
        row = await self._runner.read("queue", queue)
        return QueueSummary(
            name=queue,
            counts=counts_of(row[:9]),
            settings=settings_of(row[8:16]),
            completed_total=number(row[16]),
            failed_total=number(row[17]),
            cancelled_total=row[18],
        )

    async def counts(self, queue: str) -> Counts:
        return (await self.queue(queue)).counts

    async def usage(self, queue: str) -> Usage:
        own, jobs, sampled, size = await self._runner.read("usage", queue, [USAGE_SAMPLE])
        return Usage(bytes=own + size, jobs=jobs, sampled=sampled)

    async def jobs(self, queue: str, ids: Sequence[str]) -> list[JobRow | None]:
        possible = [identity for identity in ids if may_be_id(identity)]
        rows = await self._runner.read("jobs", queue, possible) if possible else []
        found = {identity: row for identity, row in zip(possible, rows, strict=True) if row is not None}
        return [record_of(queue, found[identity]) if identity in found else None for identity in ids]

    async def page(self, queue: str, state: State, *, cursor: str | None = None, limit: int = 50) -> Page[JobRow]:
        place = _place(state, cursor)
        rows: list[Any] = []
        room = NUMBERS["page"]
        while True:  # in steps that block the server only briefly
            most = min(limit + 1 - len(rows), NUMBERS["looks"])
            ceiling, found, size = await self._runner.read("page", queue, [state.value, most, *place])
            rows, room = rows + found, room - size
            if len(rows) > limit or room < 0 or (len(found) < most and size <= NUMBERS["look"]):
                break
            place = [ceiling, *_after(rows)]
        shown_rows = rows[:limit]
        items = tuple(record_of(queue, row) for _, _, row in shown_rows)
        more = room < 0 or len(rows) > limit
        return Page(items, _cursor([state.value, ceiling, *_after(shown_rows)]) if more else None)

    async def logs(
        self, queue: str, job_id: str, *, cursor: str | None = None, limit: int = 100, where: Kept = "queue"
    ) -> Page[str]:
        key = self._runner.job_key(queue, job_id, where)
        first = _number(cursor, 0)
        self._runner.check_open()
        if key is None:
            return Page(())
        lines = await self._runner.client.ask("LRANGE", key + KEYS["logs"], first, first + limit)
        return Page(tuple(lines[:limit]), str(first + limit) if len(lines) > limit else None)

    async def errors(self, queue: str, job_id: str, *, where: Kept = "queue") -> tuple[AttemptFailure, ...]:
        key = self._runner.job_key(queue, job_id, where)
        self._runner.check_open()
        if key is None:
            return ()
        names = ("errors", "reason", "kind", "trace", "attempts_made", "attempts_made_old", "finished_at")
        found = await self._runner.client.ask("HMGET", key, *(FIELDS[name] for name in names))
        text, reason, kind, traces, made, made_before, finished = found
        return all_errors(
            load_errors(text),
            load_failure(reason, kind, traces),
            made=number(made_before if made is None else made),
            at=None if finished is None else moment(finished),
            traces=load_traces(traces),
        )

    async def events(
        self, queue: str, *, after: str | None = None, limit: int = 100, of: str | None = None
    ) -> EventPage:
        seen = None if after is None else _number(after, 0)
        start = "" if seen is None else stream_id(seen)
        entries, gap, last = await self._runner.read("events", queue, [start, limit, of or ""])
        items = tuple(event for entry in entries if (event := event_of(entry)) is not None)
        return EventPage(items, str(event_place(last) if last else seen or 0), gap=gap == 1)

    async def workers(self, queue: str | None = None, *, now: int | None = None) -> list[WorkerRow]:
        found = [worker_of(row) for row in await self._runner.read("workers", "", (), now)]
        return sorted(
            (worker for worker in found if queue is None or queue in worker.queues), key=lambda worker: worker.id
        )

    async def declarations(self, queue: str, *, now: int | None = None) -> Declarations:
        rows = await self._runner.read("declared", "", [queue], now)
        return Declarations.of((text, workers, at) for text, workers, at in rows)

    async def runs(self, queue: str, ending: RunStatus, *, cursor: str | None = None, limit: int = 20) -> Page[RunRow]:
        before = "" if cursor is None else _number(cursor, 0)
        rows = await self._runner.read("runs", queue, [ending.value, before, limit + 1])
        after = str(rows[limit - 1][0]) if len(rows) > limit else None
        return Page(tuple(run_of(ending, row) for row in rows[:limit]), after)

    async def explain(self, queue: str, job_id: str, limits: Limits, *, now: int | None = None) -> JobBlockers:
        rate = limits.rate
        of_rate = ["", "", ""] if rate is None else [rate.max, per_ms(rate), rate.window]
        first = "1" if limits.precedence is Precedence.PRIORITY_FIRST else ""
        row = await self._runner.read("explain", queue, [job_id, first, *of_rate], now)
        at, ahead, running, till, children, group, alone = row
        return JobBlockers(
            now=at,
            ahead=ahead,
            running=tuple(running),
            rate_till=till,
            family=family_of(self._runner.address.prefix, children),
            group=group_standing(group),
            alone=alone == 1,
        )


def _number(cursor: object, default: int) -> int:
    """A cursor that is a number."""
    if cursor is None:
        return default
    if isinstance(cursor, str) and _NUMBER.match(cursor) and cursor.isascii() and int(cursor) <= _END:
        return int(cursor)
    raise unknown_cursor(cursor)


def _after(rows: Sequence[Any]) -> list[Any]:
    """The cursor after these rows: a score and an id, or ids in a list."""
    phase, score, record = rows[-1]
    if phase == "l":
        return [phase, score, *(row[_ID] for each, _, row in reversed(rows[-_ANCHORS:]) if each == "l")]
    return [phase, score, record[_ID]]


def _cursor(place: list[Any]) -> str:
    text = json.dumps(place)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _place(state: State, cursor: object) -> list[Any]:
    """A cursor as arguments of a script."""
    if cursor is None:
        return ["", "", "", ""]
    try:
        text = base64.b64decode(str(cursor) + "=" * (-len(str(cursor)) % 4), altchars=b"-_", validate=True)
        match json.loads(text):
            case [state.value, int() as ceiling, "s" | "l" | "p" as phase, str() as score, *ids] if all(
                isinstance(each, str) for each in ids
            ):
                return [ceiling, phase, score, *ids]
            case _:
                pass
    except (ValueError, binascii.Error):
        pass
    raise InvalidOption(f"cursor {preview(cursor)} is not from a page of {state} jobs")
