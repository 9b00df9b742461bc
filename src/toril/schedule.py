"""Schedules: recurring jobs, declared in code or created at run time."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Unpack

from toril.client.options import AddOptions
from toril.context import HandlerOf, RawHandler
from toril.errors import InvalidOption, NotFound, UsageError, WrongState, preview
from toril.job import Job
from toril.model import (
    MAX_DELAY,
    MIN_EVERY,
    CatchUp,
    Moved,
    NewJob,
    Overlap,
    Page,
    Schedule,
    ScheduleRow,
    check_int,
    moment,
    ms_of,
)
from toril.model.durations import Duration, milliseconds
from toril.model.names import check_label
from toril.policy.schedules import check_cron, first, following, upcoming
from toril.records import ScheduleRecord, schedule_record
from toril.runtime.logs import log
from toril.store.capabilities import ScheduleStore

if TYPE_CHECKING:
    from toril.queue import Queue

__all__ = ["Declared", "QueueSchedules", "Timing", "boot", "declare", "move_on"]

T = TypeVar("T")

Overlapping: TypeAlias = Literal["allow", "skip", "queue_one"]
CatchingUp: TypeAlias = Literal["none", "one", "all"]
_TRIES = 32  # how many slots may be taken, and how often other callers may come first


class Timing(AddOptions, total=False):
    """The options of a schedule, for your own annotations; `Queue.schedule` explains each."""

    every: Duration
    cron: str
    tz: str
    start: datetime
    end: datetime
    limit: int
    offset: Duration
    jitter: Duration
    min_interval: Duration
    overlap: Overlapping
    catch_up: CatchingUp
    window: Duration


_TIMING = frozenset(Timing.__annotations__) - frozenset(AddOptions.__annotations__)
_NOT_FOR_RUNS = ("delay", "at", "job_id", "lifo", "dedup", "once", "for_")


@dataclass(frozen=True, slots=True)
class Declared:
    """A schedule in an app's code. Its handler is looked up when the app boots, because it may be declared later."""

    queue: "Queue"
    id: str
    job: Any
    data: Any
    options: Timing

    def made(self, owner: str) -> Schedule | None:
        """The schedule to keep in the store; None if its handler does not run here and now."""
        name = self.job if isinstance(self.job, str) else self.queue.handlers.name_of(self.job)
        entry = self.queue.handlers.find(name)
        if entry is None:
            known = ", ".join(self.queue.handlers.names) or "none"
            raise UsageError(
                f"schedule {self.id!r} runs {name!r}, but queue {self.queue.name!r} has no such handler; it has {known}"
            )
        if entry.handler.runs_if is not None and not entry.handler.runs_if():
            return None
        return schedule_of(self.queue, self.id, self.job, self.data, self.options, owner)


def declare(queue: "Queue", identity: str, job: Any, data: Any, options: Timing) -> Declared:
    """A schedule for the app to keep. Its timing is checked at once."""
    _timing(check_label("a schedule's id", identity), NewJob(name="any"), options)
    return Declared(queue, identity, job, data, options)


async def boot(schedules: ScheduleStore, queues: "Iterable[Queue]", worked: "Sequence[Queue]", *, owner: str) -> None:
    """Bring the schedules in the store in line with the code, for the queues served here: create those that this app
    declares, and remove those that it no longer declares. Other apps' schedules are left alone. All declarations are
    checked."""
    wanted = {queue.name: [each.made(owner) for each in queue.declared.values()] for queue in queues}
    for queue in worked:
        if not queue.handlers.names:
            continue
        # A schedule whose handler does not run here is kept if it exists: it may run elsewhere.
        for removed in await schedules.sync(queue.name, owner, list(queue.declared)):
            log.info("removed schedule %s of queue %s: app %s no longer declares it", removed, queue.name, owner)
        for made in wanted[queue.name]:
            if made is not None:
                await establish(schedules, queue.name, made)


async def establish(schedules: ScheduleStore, queue: str, schedule: Schedule) -> bool:
    """Store this schedule; False if it is stored already. A running job, and timing that has not changed, are left
    alone."""
    taken: int | None = None
    for _ in range(_TRIES):
        look = await schedules.get(queue, schedule.id)
        before = look.view
        if before is not None and before.schedule == schedule:
            return False
        if taken is not None:
            slot = following(schedule, taken, look.now)
        elif before is not None and _same_times(before.schedule, schedule) and not before.over:
            slot = before.slot
        else:
            slot = first(schedule, look.now)
        if slot is None:
            raise InvalidOption(f"schedule {schedule.id!r} ends before its first run; check start and end")
        match await schedules.put(queue, schedule, slot, expects=before.slot if before else None):
            case Moved.DONE:
                if before is not None:
                    _tell_new_owner(queue, before.schedule.owner, schedule)
                return True
            case Moved.TAKEN:
                taken = slot
            case Moved.STALE:
                taken = None
    raise WrongState(f"schedule {schedule.id!r} of queue {queue!r} is being changed by other programs; try again")


def _tell_new_owner(queue: str, before: str | None, schedule: Schedule) -> None:
    """Warn if the schedule changes its owner: two apps that declare it would change it at each boot."""
    if before is not None and schedule.owner is not None and before != schedule.owner:
        log.warning(
            "schedule %s of queue %s was declared by app %s and is now declared by app %s; "
            "if both declare it, change the id of one of them",
            schedule.id,
            queue,
            before,
            schedule.owner,
        )


async def move_on(
    schedules: ScheduleStore,
    view: ScheduleRow,
    now: int,
    *,
    started: str | None = None,
    by: Callable[..., Awaitable[Moved]] | None = None,
) -> Moved:
    """Advance from the current run to the next one that is due."""
    slot = view.slot
    for _ in range(_TRIES):
        to = following(view.schedule, slot, now, view.count)
        if by is None:
            moved = await schedules.advance(view.queue, view.schedule.id, since=view.slot, to=to, started=started)
        else:
            moved = await by(view.queue, view.schedule.id, since=view.slot, to=to)
        if moved is not Moved.TAKEN or to is None:
            return moved
        slot = to
    return Moved.TAKEN


class QueueSchedules:
    """`queue.schedules`: list the schedules in the store, and create, change or remove them at run time."""

    def __init__(self, queue: "Queue") -> None:
        self._queue = queue

    async def put(
        self,
        schedule_id: str,
        job: HandlerOf[T, Any] | RawHandler[Any] | str,
        data: T | None = None,
        **options: Unpack[Timing],
    ) -> ScheduleRecord:
        """Create or change a schedule. Calling it again with the same options changes nothing. Takes the options of
        `Queue.schedule`."""
        check_label("a schedule's id", schedule_id)
        made = schedule_of(self._queue, schedule_id, job, data, options)
        await establish(self._queue.store.schedules, self._queue.name, made)
        return await self.get(schedule_id)

    async def get(self, schedule_id: str) -> ScheduleRecord:
        """Read a schedule. Raises `NotFound` if there is none."""
        return self._read(await self.row(schedule_id))

    async def row(self, schedule_id: str) -> ScheduleRow:
        """The same as the store returns it, in milliseconds; for Toril's own pages and commands."""
        found = (await self._queue.store.schedules.get(self._queue.name, schedule_id)).view
        if found is None:
            raise NotFound(f"there is no schedule {preview(schedule_id)} in queue {self._queue.name!r}")
        return found

    async def list(self, cursor: str | None = None, limit: int = 100) -> Page[ScheduleRecord]:
        """Read a page of schedules, in the order of their ids."""
        page = await self._queue.store.schedules.page(self._queue.name, cursor=cursor, limit=limit)
        return Page(tuple(map(self._read, page)), page.cursor)

    async def upcoming(self, schedule_id: str, count: int = 10) -> Sequence[datetime]:
        """List the times of the next runs."""
        return [moment(slot) for slot in upcoming(await self.row(schedule_id), check_int("count", count, 1, 1000))]

    async def run_now(self, schedule_id: str) -> Job[Any]:
        """Add one job as the schedule would, in addition to its own runs."""
        job = (await self.row(schedule_id)).schedule.job
        queue, store = self._queue, self._queue.store
        (answer,) = await queue.services.call(lambda call: store.add(queue.name, [job], call=call))
        return Job(queue, answer.id, job.name)

    async def pause(self, schedule_id: str) -> None:
        """Stop making runs until `resume`. A job that is already running continues."""
        if not await self._queue.store.schedules.pause(self._queue.name, schedule_id):
            await self.get(schedule_id)

    async def resume(self, schedule_id: str) -> None:
        """Make runs again, starting with the next one that is still to come."""
        schedules = self._queue.store.schedules
        look = await schedules.get(self._queue.name, schedule_id)
        view = look.view or await self.row(schedule_id)
        if view.paused and await move_on(schedules, view, look.now, by=schedules.resume) is Moved.STALE:
            await self.resume(schedule_id)

    async def remove(self, schedule_id: str) -> bool:
        """Remove a schedule and its run that has not started. Returns False if there was none. A job may remove its own
        schedule."""
        return await self._queue.store.schedules.remove(self._queue.name, schedule_id)

    def _read(self, view: ScheduleRow) -> ScheduleRecord:
        job = view.schedule.job
        return schedule_record(view, self._queue.handlers.decode(job.name, job.data))


def schedule_of(
    queue: "Queue", identity: str, job: Any, data: Any, options: Timing, owner: str | None = None
) -> Schedule:
    """The schedule with these options, all of them checked."""
    for name in _NOT_FOR_RUNS:
        if name in options:
            raise InvalidOption(
                f"schedules do not take {name}, because they set the times and ids of their runs themselves"
            )
    rest: Any = {name: value for name, value in options.items() if name not in _TIMING}
    return _timing(identity, queue.new(job, data, **rest).job, options, owner)


def _timing(identity: str, job: NewJob, options: Timing, owner: str | None = None) -> Schedule:
    every, cron, tz = options.get("every"), options.get("cron"), options.get("tz", "UTC")
    least = milliseconds("min_interval", options.get("min_interval", 0))
    expression = None if cron is None else check_cron(cron, tz)
    if expression is None:
        check_cron("* * * * *", tz)
    made = Schedule(
        id=identity,
        job=job,
        every=None if every is None else max(least, milliseconds("every", every, MIN_EVERY, MAX_DELAY)),
        cron=expression,
        tz=tz,
        start=_moment("start", options.get("start")),
        end=_moment("end", options.get("end")),
        limit=options.get("limit"),
        offset=None if "offset" not in options else milliseconds("offset", options["offset"]),
        jitter=milliseconds("jitter", options.get("jitter", 0)),
        min_interval=0 if expression is None else least,
        overlap=_one_of("overlap", options.get("overlap", "allow"), Overlap),
        catch_up=_one_of("catch_up", options.get("catch_up", "one"), CatchUp),
        window=milliseconds("window", options.get("window", 3600)),
        owner=owner,
    )
    _check_jitter(made)
    return made


def _check_jitter(schedule: Schedule) -> None:
    """Raise for jitter that reaches the next time, so that runs could overtake each other."""
    if not schedule.jitter:
        return
    plain = Schedule(id=schedule.id, job=schedule.job, every=schedule.every, cron=schedule.cron, tz=schedule.tz)
    times = upcoming(ScheduleRow(queue="", schedule=plain, slot=first(plain, 0) or 0, count=1), 10)
    shortest = min((later - earlier for earlier, later in pairwise(times)), default=MAX_DELAY)
    if schedule.jitter > shortest:
        raise InvalidOption(
            f"jitter must not exceed the {shortest / 1000:g} s between two runs of schedule {schedule.id!r}; "
            f"got {schedule.jitter / 1000:g} s"
        )


def _moment(what: str, value: datetime | None) -> int | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidOption(f"{what} must be a datetime with a time zone, not {preview(value)}")
    return ms_of(value)


def _one_of(what: str, value: object, known: Any) -> Any:
    try:
        return known(value)
    except ValueError:
        raise InvalidOption(f"{what} must be one of {', '.join(known)}, not {preview(value)}") from None


def _same_times(before: Schedule, after: Schedule) -> bool:
    return all(
        getattr(before, name) == getattr(after, name)
        for name in ("every", "cron", "tz", "start", "offset", "jitter", "min_interval")
    )
