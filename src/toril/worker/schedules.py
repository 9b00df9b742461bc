"""Schedules in a worker: whoever starts a run creates the next one, and a round makes up for what was missed."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from toril.codec.encoding import encode
from toril.errors import InvalidOption, TorilError
from toril.model import Claimed, Completed, Outcome, Snoozed, scheduled_run
from toril.policy.schedules import RunDecision, decide_run
from toril.runtime.clock import Clock
from toril.schedule import move_on
from toril.store.capabilities import ScheduleStore

__all__ = ["ScheduleRuns"]

_ROUND: Final = 2.0  # seconds between two searches for schedules without a next run
_SELDOM: Final = 30  # rounds between two searches of a queue for which this program declares none
_AT_ONCE: Final = 100
_AGAIN: Final = 1_000  # ms after which a run that waits for the previous one is offered again

_WORDS: Final = {
    RunDecision.MISSED: "its time had passed",
    RunDecision.OVERLAPS: "the previous run had not ended",
}


class ScheduleRuns:
    """Keeps schedules going. Each step succeeds for only one of many callers, so all workers do this."""

    def __init__(self, schedules: ScheduleStore, clock: Clock, failed: Callable[[str, TorilError], None]) -> None:
        self._schedules = schedules
        self._clock = clock
        self._failed = failed

    async def begin(self, job: Claimed) -> Outcome | None:
        """Create the next run before this one starts. Returns an outcome if this run must not start, or not now."""
        found = scheduled_run(job.lease.id)
        if found is None:
            return None
        try:
            return await self._begin(job, *found)
        except TorilError as error:  # the job runs anyway, and the round creates the next one
            self._failed(job.lease.queue, error)
            return None

    async def _begin(self, job: Claimed, schedule: str, slot: int) -> Outcome | None:
        look = await self._schedules.get(job.lease.queue, schedule)
        view = look.view
        if view is None or view.slot != slot:
            return None  # a later attempt, or a run whose schedule has advanced or is gone
        decision = decide_run(view, look.now)
        if decision is RunDecision.WAIT:
            return Snoozed(_AGAIN)
        runs = decision is RunDecision.RUN
        await move_on(self._schedules, view, look.now, started=job.lease.id if runs else None)
        return None if runs else _skipped(_WORDS[decision])

    async def round(self, scheduled: Sequence[str], others: Sequence[str]) -> None:
        """Until cancelled, create next runs that are missing."""
        for number in count(1):
            for queue in scheduled if number % _SELDOM else (*scheduled, *others):
                try:
                    await self.catch_up(queue)
                except TorilError as error:
                    self._failed(queue, error)
            await self._clock.sleep(_ROUND * (0.5 + self._clock.random()))

    async def catch_up(self, queue: str) -> None:
        for view in await self._schedules.overdue(queue, limit=_AT_ONCE):
            look = await self._schedules.get(queue, view.schedule.id)
            try:
                if look.view is not None and look.view.slot == view.slot:
                    await move_on(self._schedules, look.view, look.now)
            except InvalidOption as error:  # invalid times that another program has stored; the others continue
                self._failed(queue, error)


def _skipped(reason: str) -> Completed:
    summary = f"skipped: {reason}"
    return Completed(encode({"skipped": True, "reason": reason}), summary=summary, skipped=f"scheduled run {summary}")
