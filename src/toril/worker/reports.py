"""An attempt's reports on their way to the store. Progress is written ten times a second at most."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from toril.calls import Caller
from toril.clock import Clock, Timer
from toril.engine import Engine
from toril.errors import EngineUnavailable, TorilError
from toril.job import Job
from toril.logs import log, outages
from toril.model import (
    Checkpoint,
    Child,
    Claimed,
    Family,
    FlowNode,
    JobRef,
    LogLine,
    Progress,
    Report,
    Rewrite,
    Verdict,
)
from toril.protocols import Flows

__all__ = ["AttemptReports"]

_INTERVAL: Final = 0.1


class AttemptReports:
    """One attempt's way to the store. Progress that comes too fast is held back, and the last of it written soon."""

    __slots__ = (
        "_caller",
        "_clock",
        "_engine",
        "_flows",
        "_job",
        "_pending",
        "_progressed",
        "_queue",
        "_sent",
        "_timer",
        "_turns",
        "_writing",
    )

    def __init__(
        self, queue: str, engine: Engine, clock: Clock, caller: Caller, job: Callable[[Claimed], Job[Any]],
        progressed: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._queue = queue
        self._engine = engine
        self._flows: Flows = engine  # type: ignore[assignment]
        self._clock = clock
        self._caller = caller
        self._job = job
        self._progressed = progressed
        self._pending: Progress | None = None
        self._sent: float | None = None
        self._timer: Timer | None = None
        self._turns = 0
        self._writing: asyncio.Task[None] | None = None

    def job(self, claimed: Claimed) -> Job[Any]:
        return self._job(claimed)

    async def report(self, report: Report) -> Verdict:
        """Progress and log lines are told as well as can be: a store that is away fails no job for them. Data and
        checkpoints are what a retry builds on, and are written or refused."""
        match report:
            case Progress():
                return await self._progress(report)
            case LogLine():
                return await self._try_to_write(report)
            case Rewrite() | Checkpoint():
                return await self._write(report)

    async def family(self, claimed: Claimed) -> Family:
        return await self._caller.send(lambda _: self._flows.family(_ref(claimed)))

    async def children(self, claimed: Claimed) -> list[Child]:
        found: list[Child] = []
        cursor: str | None = None
        while True:
            after = cursor
            page = await self._caller.send(
                lambda _, after=after: self._flows.children(_ref(claimed), cursor=after, limit=1000)  # type: ignore[misc]
            )
            found += page.items
            cursor = page.cursor
            if cursor is None:
                return found

    async def add_children(self, claimed: Claimed, nodes: Sequence[FlowNode]) -> Verdict:
        return await self._caller.send(lambda call: self._flows.add_children(claimed.lease, nodes, call=call))

    def turn(self) -> int:
        self._turns += 1
        return self._turns - 1

    async def _progress(self, report: Progress) -> Verdict:
        now = self._clock.monotonic()
        if self._sent is None or now - self._sent >= _INTERVAL:
            self._sent, self._pending = now, None
            return await self._try_to_write(report)
        self._pending = report
        if self._timer is None:
            self._timer = self._clock.later(self._sent + _INTERVAL - now, self._catch_up)
        return Verdict.OK

    async def flush(self) -> None:
        """The attempt ends: write the progress that was held back."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await self._write_pending()

    def _catch_up(self) -> None:
        self._timer = None
        if self._pending is not None and (self._writing is None or self._writing.done()):
            self._sent = self._clock.monotonic()
            self._writing = asyncio.ensure_future(self._write_pending())

    async def _write_pending(self) -> None:
        report, self._pending = self._pending, None
        if report is not None:
            await self._try_to_write(report)

    async def _try_to_write(self, report: Progress | LogLine) -> Verdict:
        try:
            return await self._write(report)
        except EngineUnavailable as error:
            outages.tell(str(error))
            return Verdict.OK
        except TorilError as error:
            log.warning("a %s of job %s is not written: %s", type(report).__name__, report.lease.id, error)
            return Verdict.OK

    async def _write(self, report: Report) -> Verdict:
        (verdict,) = await self._caller.send(lambda call: self._engine.report(self._queue, [report], call=call))
        if isinstance(report, Progress) and verdict is Verdict.OK:
            self._progressed(report.value)
        return verdict


def _ref(claimed: Claimed) -> JobRef:
    return JobRef(claimed.lease.queue, claimed.lease.id)
