"""Moves everything in one store to another, batch by batch, while workers run on both.

A batch is exported from the source, imported into the target, and confirmed at the source: three steps, each atomic and
safe to repeat. A move that starts again after a crash finds the batch that was in transit and continues with it.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from toril.errors import InvalidOption, WrongState
from toril.model import (
    BUILDING,
    LOAD,
    ImportOutcome,
    ImportResult,
    JobRef,
    TransferBatch,
    TransferDeadLetter,
    TransferJob,
    TransferPart,
    TransferSchedule,
    run_id,
    scheduled_run,
)
from toril.model.states import State
from toril.runtime.clock import Clock
from toril.store.engine import Store

__all__ = ["Transfer", "TransferPlan", "TransferProgress"]

_PAUSE: Final = 0.2  # seconds between two checks of jobs that are still running
_OFTEN: Final = 0.2  # seconds between two reports of progress
_PATIENCE: Final = BUILDING / 1000 + 60  # seconds within which jobs that are left and not running should become movable
_PAGE: Final = 500
_SHOWN: Final = 5
_UNSTARTED: Final = frozenset({State.WAITING, State.PRIORITIZED, State.DELAYED})


@dataclass(slots=True)
class TransferProgress:
    """The progress of a move: what it has moved, what is left in the source, and how much of that is running there.
    `taken` are jobs that were left out, because the target has one with their id."""

    jobs: int = 0
    letters: int = 0
    schedules: int = 0
    left: int = 0
    running: int = 0
    taken: list[JobRef] = field(default_factory=list)

    def count(self, load: TransferBatch, arrival: ImportResult) -> None:
        self.jobs += sum(isinstance(item, TransferJob) for item in load.items)
        self.letters += sum(isinstance(item, TransferDeadLetter) for item in load.items)
        self.schedules += sum(isinstance(item, TransferSchedule) for item in load.items)
        self.taken += arrival.taken if arrival.outcome is ImportOutcome.STORED else ()


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """What a move would move: for each queue how many jobs, how many of them are running, and how many schedules; dead
    letters; and jobs whose ids both stores have."""

    queues: dict[str, tuple[int, int, int]]
    letters: int
    clashes: tuple[JobRef, ...]

    @property
    def jobs(self) -> int:
        return sum(jobs for jobs, _, _ in self.queues.values())

    @property
    def schedules(self) -> int:
        return sum(schedules for _, _, schedules in self.queues.values())


class Transfer:
    """Moves everything from one open store to another. A second one at the same time does no harm."""

    def __init__(
        self,
        source: Store,
        target: Store,
        clock: Clock,
        *,
        load: int = LOAD,
        tell: Callable[[TransferProgress], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._target = target
        self._clock = clock
        self._limit = load
        self._tell = tell
        self._from = self._to = ""
        self._stale: TransferBatch | None = None
        self._reported_at = 0.0
        self.moving = TransferProgress()

    async def outlook(self) -> TransferPlan:
        """What would be moved; nothing is changed."""
        await self._meet()
        queues = {}
        for queue in await self._source.queues():
            counts = await self._source.counts(queue)
            schedules, runs = await self._schedules(queue)
            queues[queue] = (sum(counts.values()) - runs, counts.active, schedules)
        clashes = [ref async for ref in self._clashes()]
        return TransferPlan(queues, await self._source.dead_letters.count(), tuple(clashes))

    async def move(self) -> TransferProgress:
        """Move everything, until the source is empty. Running jobs are moved once they end, and so are jobs added
        meanwhile."""
        await self._meet()
        await self._take_back()
        async for ref in self._clashes():
            raise _clash((ref,))
        last = self._clock.monotonic()
        while True:
            if await self._round():
                last = self._clock.monotonic()
            elif await self._is_empty():
                break
            else:
                self._still_waits(last)
                await self._look_after()
                await self._clock.sleep(_PAUSE)
        for queue in await self._source.queues():
            await self._carry(TransferPart.LEDGER, queue)
        await self._carry(TransferPart.FACTS)
        return self.moving

    async def _meet(self) -> None:
        self._from, self._to = await self._source.transfers.store_id(), await self._target.transfers.store_id()
        if self._from == self._to:
            raise InvalidOption("FROM and TO are the same store: there is nothing to move")

    async def _take_back(self) -> None:
        """Complete a batch in transit from the target to the source, from an interrupted move in the other
        direction."""
        nowhere = f"nowhere-{self._from}"  # a queue that no store has, so that nothing new is exported
        load = await self._target.transfers.export_batch(
            TransferPart.JOBS, nowhere, to=self._from, mark=self._clock.unique()
        )
        if load is None:
            return
        arrival = await self._source.transfers.import_batch(load, sender=self._to)
        if arrival.outcome is ImportOutcome.CLASH:
            raise _clash(arrival.taken)
        await self._target.transfers.confirm_export(load)

    async def _round(self) -> bool:
        """Move what can be moved now. False: nothing could."""
        before = (self.moving.jobs, self.moving.letters, self.moving.schedules)
        queues = await self._source.queues()
        for queue in queues:
            await self._carry(TransferPart.SETTINGS, queue)
        for queue in queues:
            await self._carry(TransferPart.SCHEDULES, queue)
            await self._carry(TransferPart.JOBS, queue)
        await self._carry(TransferPart.LETTERS)
        return before != (self.moving.jobs, self.moving.letters, self.moving.schedules)

    async def _carry(self, part: TransferPart, queue: str = "") -> None:
        """Move one part in batches; first the one that was in transit."""
        while True:
            load = await self._source.transfers.export_batch(
                part, queue, to=self._to, mark=self._clock.unique(), limit=self._limit
            )
            if load is None:
                return
            arrival = await self._target.transfers.import_batch(load, sender=self._from)
            if arrival.outcome is ImportOutcome.CLASH:
                raise _clash(arrival.taken)
            if arrival.outcome is ImportOutcome.STALE:
                self._check_other(load)
                continue
            await self._source.transfers.confirm_export(load)
            self.moving.count(load, arrival)
            if self._clock.monotonic() - self._reported_at > _OFTEN:
                await self._report()

    def _check_other(self, load: TransferBatch) -> None:
        """A later batch was imported: another process is moving too, or the source has forgotten that it sent the
        batch."""
        if self._stale is not None and (self._stale.number, self._stale.mark) == (load.number, load.mark):
            raise WrongState(
                f"the target has received a later batch than number {load.number} from this source, which seems to "
                "have been restored from an older copy: its contents may already be in the target"
            )
        self._stale = load

    async def _report(self) -> None:
        left = running = 0
        for queue in await self._source.queues():
            counts = await self._source.counts(queue)
            left, running = left + sum(counts.values()), running + counts.active
        self.moving.left, self.moving.running, self._reported_at = left, running, self._clock.monotonic()
        self._tell(self.moving)

    async def _is_empty(self) -> bool:
        await self._report()
        if self.moving.left or await self._source.dead_letters.count():
            return False
        return not any([(await self._schedules(queue))[0] for queue in await self._source.queues()])

    async def _schedules(self, queue: str) -> tuple[int, int]:
        """How many schedules there are, and how many of their next runs are in the queue and come with them."""
        count, runs, cursor = 0, 0, None
        while True:
            page = await self._source.schedules.page(queue, cursor=cursor, limit=_PAGE)
            found = await self._source.jobs(queue, [run_id(view.schedule.id, view.slot) for view in page])
            runs += sum(job is not None and job.started_at is None and job.state in _UNSTARTED for job in found)
            count, cursor = count + len(page), page.cursor
            if cursor is None:
                return count, runs

    async def _look_after(self) -> None:
        """Recover jobs in the source whose workers have died; there may be no worker left to do it."""
        for queue in await self._source.queues():
            await self._source.recover(queue)
            await self._source.prune(queue)

    def _still_waits(self, last: float) -> None:
        if not self.moving.running and self._clock.monotonic() - last > _PATIENCE:
            raise WrongState(
                f"{self.moving.left} jobs cannot be moved out of the source, although none of them is running; check "
                "the source with toril doctor, then move again"
            )

    async def _clashes(self) -> AsyncIterator[JobRef]:
        """Jobs and dead letters that both stores have, before the first of their queue has left. Runs of schedules are
        created again."""
        async for ref in self._letters_of_both():
            if await self._source.transfers.destination(ref.queue) != self._to:
                yield ref
        for queue in await self._source.queues():
            there = await self._target.counts(queue)
            if not sum(there.values()) or await self._source.transfers.destination(queue) == self._to:
                continue
            for state in State:
                async for ids in self._ids(queue, state):
                    for found in await self._target.jobs(queue, ids):
                        if found is not None:
                            yield JobRef(queue, found.id)

    async def _letters_of_both(self) -> AsyncIterator[JobRef]:
        cursor, more = None, bool(await self._target.dead_letters.count())
        while more:
            page = await self._source.dead_letters.page(cursor=cursor, limit=_PAGE)
            for found in await self._target.dead_letters.get([letter.id for letter in page]):
                if found is not None:
                    yield JobRef(found.queue, found.job_id)
            cursor, more = page.cursor, page.cursor is not None

    async def _ids(self, queue: str, state: State) -> AsyncIterator[list[str]]:
        cursor = None
        while True:
            page = await self._source.page(queue, state, cursor=cursor, limit=_PAGE)
            yield [job.id for job in page if scheduled_run(job.id) is None]
            cursor = page.cursor
            if cursor is None:
                return


def _clash(refs: tuple[JobRef, ...]) -> WrongState:
    some = ", ".join(f"{ref.id!r} of queue {ref.queue!r}" for ref in refs[:_SHOWN])
    more = f" and {len(refs) - _SHOWN} more" if len(refs) > _SHOWN else ""
    return WrongState(
        f"both stores have a job {some}{more}, or its dead letter, and they differ: remove or finish the one in the "
        "target (toril job remove QUEUE ID --url TARGET), then move again; nothing from this batch was stored"
    )
