"""Schedules: what recurs when, and how far it has come."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from toril.errors import InvalidOption, preview
from toril.model.durations import MAX_DELAY
from toril.model.jobs import NewJob, check_int
from toril.model.names import check_app_name

MIN_EVERY: Final = 100  # ms: what is to run more often is a poller's work
MAX_TIME: Final = 2**42  # ms: the year 2109


class Overlap(StrEnum):
    """What to do when a run is due and the previous one has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"


class CatchUp(StrEnum):
    """What to do about runs that were missed while no worker ran: run none, one for all, or all within a window."""

    NONE = "none"
    ONE = "one"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A recurring job: `job` is the template of every run. Either `every` or `cron` says when. Times are ms. `owner` is
    the app whose code declares it, and which removes it when it no longer does; None if it was made at run time."""

    id: str
    job: NewJob
    every: int | None = None
    cron: str | None = None
    tz: str = "UTC"
    start: int | None = None
    end: int | None = None
    limit: int | None = None
    offset: int | None = None
    jitter: int = 0
    min_interval: int = 0
    overlap: Overlap = Overlap.ALLOW
    catch_up: CatchUp = CatchUp.ONE
    window: int = 3_600_000
    owner: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise InvalidOption(f"a schedule's id must be a string, not {preview(self.id)}")
        if self.every is None and self.cron is None:
            raise InvalidOption(f"schedule {self.id!r} needs every or cron")
        if self.every is not None and self.cron is not None:
            raise InvalidOption(f"schedule {self.id!r} has both every and cron; give one of them")
        if self.every is not None:
            check_int("every", self.every, MIN_EVERY, MAX_DELAY)
        if self.limit is not None:
            check_int("limit", self.limit, 1, 2**53)
        for name in ("start", "end", "offset"):
            if (value := getattr(self, name)) is not None:
                check_int(name, value, 0, MAX_TIME)
        for name in ("jitter", "min_interval", "window"):
            check_int(name, getattr(self, name), 0, MAX_DELAY)
        if self.owner is not None:
            check_app_name(self.owner)
        if not isinstance(self.job, NewJob):
            raise InvalidOption(f"a schedule's job must be a NewJob, not {preview(self.job)}")
        if self.job.id is not None or self.job.delay or self.job.due is not None or self.job.lifo:
            raise InvalidOption(f"schedule {self.id!r} sets the times and ids of its runs itself; do not give any")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """A schedule as it stands in the store. `slot` is the time of its current run, the latest that was made; `count`
    is how many were made; `busy` says that the run started last has not ended; `over` that no more will come."""

    queue: str
    schedule: Schedule
    slot: int
    count: int
    paused: bool = False
    busy: bool = False
    over: bool = False

    @property
    def next(self) -> int | None:
        """When it runs next, as far as that is fixed."""
        return None if self.paused or self.over else self.slot

    @property
    def begun(self) -> int:
        """How many runs have begun: the next is made when one begins, and stands for the future until then."""
        return self.count if self.over else self.count - 1


@dataclass(frozen=True, slots=True)
class ScheduleLookup:
    """A schedule, if there is one, by the clock that says `now`."""

    now: int
    view: ScheduleRow | None


class Moved(StrEnum):
    """What became of a step that expected a schedule to be at a certain run."""

    DONE = "done"
    STALE = "stale"  # it is not, or not any more
    TAKEN = "taken"  # there is a job of that slot already


def run_id(schedule: str, slot: int) -> str:
    """The id of the job that is a schedule's run at this time."""
    return f"repeat:{schedule}:{slot}"


def scheduled_run(job_id: str) -> tuple[str, int] | None:
    """Whose run a job is, and at what time; None for other jobs."""
    if not job_id.startswith("repeat:"):
        return None
    schedule, _, slot = job_id[len("repeat:") :].rpartition(":")
    return (schedule, int(slot)) if schedule and slot.isdecimal() and slot.isascii() else None
