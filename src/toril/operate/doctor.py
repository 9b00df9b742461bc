"""Checks a store for faults and repairs them.

It looks twice, some time apart, before it reports anything: next to busy workers, a single look may catch a moment that
has passed by the next.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from toril.errors import EngineUnusable, InvalidOption, unknown_cursor
from toril.model import (
    AUTO_REPAIRED,
    BEYOND_REPAIR,
    Fault,
    FaultKind,
    Finding,
    Moved,
    Page,
    Repaired,
    RepairOutcome,
    ScheduleRow,
    Severity,
    run_id,
)
from toril.model.states import FINISHED
from toril.policy.doctor import ScanOrder, cursor_of, finding_of, judged
from toril.policy.schedules import following
from toril.runtime.clock import Clock
from toril.schedule import move_on
from toril.store.engine import Store

__all__ = ["AutoRepair", "Doctor"]

_BETWEEN: Final = 1.0  # seconds between the two looks
_SCHEDULES: Final = 100  # per look
_FEW_SCHEDULES: Final = 20  # per look when someone is waiting: each costs a query
_SUSPECTS: Final = 100  # suspected faults after which a part ends


class Doctor:
    """The doctor of one store. It only reads until it is told to repair."""

    def __init__(self, store: Store, clock: Clock, *, between: float = _BETWEEN) -> None:
        self._store = store
        self._clock = clock
        self._between = between

    async def findings(self, queues: Sequence[str] | None = None) -> list[Finding]:
        """Everything that is wrong with the store, and with these queues or all, worst first."""
        names = await self._store.queues() if queues is None else queues
        found = judged(await self._store.repairs.facts())
        return _worst_first([*found, *map(finding_of, await self.faults(names))])

    async def part(
        self, queues: Sequence[str] | None = None, *, cursor: str | None = None, patience: float, quick: bool
    ) -> Page[Finding]:
        """As much of that as can be checked in this many seconds. The first part includes problems of the server or
        file. A file is not read for damage and, if `quick`, nothing is counted."""
        until = self._clock.monotonic() + patience
        names = await self._store.queues() if queues is None else queues
        found = judged(await self._store.repairs.facts(quick=True), counted=not quick) if cursor is None else []
        suspected: list[Fault] = []
        async with aclosing(self.looks(names, cursor=cursor, quick=quick)) as looks:
            async for look in looks:
                suspected += look
                cursor = look.cursor
                if len(suspected) >= _SUSPECTS or self._clock.monotonic() > until:
                    break
        faults = await self.confirmed(suspected)
        return Page(tuple(_worst_first([*found, *map(finding_of, faults)])), cursor)

    async def faults(self, queues: Sequence[str]) -> list[Fault]:
        """The faults of these queues, and of what belongs to the fleet."""
        suspected: list[Fault] = []
        async with aclosing(self.looks(queues)) as looks:
            async for look in looks:
                suspected += look
        return await self.confirmed(suspected)

    async def confirmed(self, suspected: Sequence[Fault]) -> list[Fault]:
        """Those that still exist some time later."""
        left = list(dict.fromkeys(suspected))
        if not left:
            return []
        await self._clock.sleep(self._between)
        return await self._there(left)

    async def repair(self, findings: Sequence[Finding]) -> list[Repaired]:
        """Repair what can be repaired. Each repair checks again in its own step, so it is safe next to workers, and an
        outdated list of findings does no harm."""
        faults = [finding.fault for finding in findings if finding.fault is not None]
        repaired = dict(zip(faults, await self.repair_faults(faults), strict=True))
        left = set(await self._there(faults))
        return [
            Repaired(finding, _outcome(finding.fault, repaired, left))
            for finding in findings
            if finding.fault is not None
        ]

    async def repair_faults(self, faults: Sequence[Fault]) -> list[bool]:
        """Repair these; False for those that no longer existed."""
        answers: dict[Fault, bool] = {}
        for fault in faults:
            if fault.kind is FaultKind.SCHEDULE:
                answers[fault] = await self._go_on(fault)
        others = [fault for fault in faults if fault not in answers]
        answers |= dict(zip(others, await self._store.repairs.repair(others, mode="repair"), strict=True))
        return [answers[fault] for fault in faults]

    async def looks(
        self, queues: Sequence[str], *, cursor: str | None = None, quick: bool = False
    ) -> AsyncGenerator[Page[Fault], None]:
        """Possible faults, in bounded looks, each with the cursor with which another scan can continue after it."""
        course = ScanOrder(queues, ["schedules"], ["layout"])
        spot = course.first(cursor)
        if not isinstance(spot.at, str | None):
            raise unknown_cursor(cursor)
        while spot.queue:
            found, at = await self._idle(spot.queue, spot.at, _FEW_SCHEDULES if quick else _SCHEDULES)
            spot = course.after(spot, at) or spot
            yield Page(found, cursor_of(spot))
        async with aclosing(self._store.repairs.scan(queues, cursor=spot.at, quick=quick)) as looks:
            async for look in looks:
                yield Page(look.items, look.cursor and cursor_of(course.after(spot, look.cursor)))

    async def _idle(self, queue: str, cursor: str | None, most: int) -> tuple[tuple[Fault, ...], str | None]:
        """Which of a page of a queue's schedules have no next run, and the cursor of the next page."""
        try:
            page = await self._store.schedules.page(queue, cursor=cursor, limit=most)
        except EngineUnusable as error:
            place = f"schedules of {queue}"
            return (Fault(kind=FaultKind.FOREIGN, queue=queue, subject=str(error), place=place),), None
        found = list[Fault]()
        for view in page.items:
            try:
                if await self._is_idle(view):
                    found.append(_of_schedule(view))
            except InvalidOption as error:  # invalid times that another program has stored
                subject, place = f"schedule {view.schedule.id!r} is invalid: {error}", f"schedules of {queue}"
                found.append(Fault(kind=FaultKind.FOREIGN, queue=queue, subject=subject, place=place))
        return tuple(found), page.cursor

    async def _there(self, faults: Sequence[Fault]) -> list[Fault]:
        """Those of them that exist."""
        others = [fault for fault in faults if fault.kind not in {FaultKind.SCHEDULE, *BEYOND_REPAIR}]
        there = dict(zip(others, await self._store.repairs.repair(others, mode="look"), strict=True))
        there |= {fault: True for fault in faults if fault.kind is FaultKind.FOREIGN}  # these do not pass by themselves
        for fault in faults:
            if fault.kind is FaultKind.UNREADABLE:
                there[fault] = await self._is_unreadable(fault)
            elif fault.kind is FaultKind.SCHEDULE:
                view = (await self._store.schedules.get(fault.queue, fault.subject)).view
                # A schedule that has advanced since is not stuck, even if another of its runs has just ended.
                there[fault] = view is not None and _of_schedule(view) == fault and await self._is_idle(view)
        return [fault for fault in faults if there[fault]]

    async def _is_unreadable(self, fault: Fault) -> bool:
        """Whether that job still exists, has not ended, and cannot be read."""
        try:
            (job,) = await self._store.jobs(fault.queue, [fault.subject])
        except EngineUnusable:  # another key belongs to another program; a job's options never change
            return True
        return job is not None and job.unreadable is not None and job.state not in FINISHED

    async def _is_idle(self, view: ScheduleRow) -> bool:
        """Whether a schedule should have a next run, and has none."""
        if view.next is None:
            return False
        (run,) = await self._store.jobs(view.queue, [run_id(view.schedule.id, view.slot)])
        if run is not None and run.state not in FINISHED:
            return False
        look = await self._store.schedules.get(view.queue, view.schedule.id)
        if look.view is None or look.view.slot != view.slot:
            return False  # it advanced between the two reads
        return view.slot > look.now or following(view.schedule, view.slot, look.now, view.count) is not None

    async def _go_on(self, fault: Fault) -> bool:
        """Create the missing run: the one at its time if that is in the future, else the next."""
        schedules = self._store.schedules
        look = await schedules.get(fault.queue, fault.subject)
        view = look.view
        if view is None or _of_schedule(view) != fault or not await self._is_idle(view):
            return False
        if view.slot > look.now:
            moved = await schedules.advance(fault.queue, fault.subject, since=view.slot, to=view.slot)
            if moved is not Moved.TAKEN:
                return moved is Moved.DONE
        return await move_on(schedules, view, look.now) is Moved.DONE


class AutoRepair:
    """Repairs what needs no confirmation, in a few looks per round, and continues from there in the next."""

    def __init__(self, doctor: Doctor, looks: int) -> None:
        self._doctor = doctor
        self._looks = looks
        self._walk: AsyncGenerator[Page[Fault], None] | None = None

    async def close(self) -> None:
        """Leave the scan where it is."""
        walk, self._walk = self._walk, None
        if walk is not None:
            await walk.aclose()

    async def round(self, queues: Sequence[str]) -> list[Fault]:
        """Continue the scan, and repair. Returns what was repaired."""
        suspected: list[Fault] = []
        for _ in range(self._looks):
            if self._walk is None:
                self._walk = self._doctor.looks(queues)
            found = await anext(self._walk, None)
            if found is None:
                self._walk = None
                break
            suspected += [fault for fault in found if fault.kind in AUTO_REPAIRED]
        faults = await self._doctor.confirmed(suspected)
        repaired = await self._doctor.repair_faults(faults)
        return [fault for fault, done in zip(faults, repaired, strict=True) if done]


def _worst_first(findings: Sequence[Finding]) -> list[Finding]:
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def _of_schedule(view: ScheduleRow) -> Fault:
    """The fault of a schedule. It names the run after which none follows."""
    return Fault(
        kind=FaultKind.SCHEDULE,
        queue=view.queue,
        subject=view.schedule.id,
        place=f"run {run_id(view.schedule.id, view.slot)}",
    )


def _outcome(fault: Fault, repaired: dict[Fault, bool], left: set[Fault]) -> RepairOutcome:
    if fault in left:
        return RepairOutcome.FAILED
    return RepairOutcome.REPAIRED if repaired[fault] else RepairOutcome.GONE
