"""An attempt's reports on their way to the store. Progress is written ten times a second at most."""

from collections.abc import Callable
from typing import Any, Final

from toril.calls import Caller
from toril.clock import Clock
from toril.engine import Engine
from toril.job import Job
from toril.model import Claimed, Progress, Report, Verdict

__all__ = ["AttemptReports"]

_INTERVAL: Final = 0.1


class AttemptReports:
    """One attempt's way to the store."""

    __slots__ = ("_caller", "_clock", "_engine", "_job", "_pending", "_queue", "_sent")

    def __init__(
        self, queue: str, engine: Engine, clock: Clock, caller: Caller, job: Callable[[Claimed], Job[Any]]
    ) -> None:
        self._queue = queue
        self._engine = engine
        self._clock = clock
        self._caller = caller
        self._job = job
        self._pending: Progress | None = None
        self._sent: float | None = None

    def job(self, claimed: Claimed) -> Job[Any]:
        return self._job(claimed)

    async def report(self, report: Report) -> Verdict:
        if isinstance(report, Progress):
            now = self._clock.monotonic()
            if self._sent is not None and now - self._sent < _INTERVAL:
                self._pending = report
                return Verdict.OK
            self._sent, self._pending = now, None
        return await self._write(report)

    async def flush(self) -> None:
        """Write the progress that was held back, when the attempt ends."""
        if self._pending is not None:
            await self._write(self._pending)

    async def _write(self, report: Report) -> Verdict:
        (verdict,) = await self._caller.send(lambda call: self._engine.report(self._queue, [report], call=call))
        return verdict
