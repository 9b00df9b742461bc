"""Schedules: what recurs when, and its progress."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from toril.errors import InvalidOption, preview
from toril.model.durations import MAX_DELAY
from toril.model.jobs import NewJob, check_int
from toril.model.names import check_app_name

MIN_EVERY: Final = 100  # ms; use a poller for what has to run more often
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
    """A schedule in the store. `slot` is the time of its current run, the last one created; `count` is how many were
    created; `busy` says that the last run that started has not ended; `over` that there will be no more."""

    queue: str
    schedule: Schedule
    slot: int
    count: int
    paused: bool = False
    busy: bool = False
    over: bool = False

    @property
    def next(self) -> int | None:
        """When it runs next, as far as that is decided."""
        return None if self.paused or self.over else self.slot

    @property
    def begun(self) -> int:
        """How many runs have begun. The next run is created when one begins."""
        return self.count if self.over else self.count - 1


@dataclass(frozen=True, slots=True)
class ScheduleLookup:
    """A schedule, if it exists, with the time by the same clock."""

    now: int
    view: ScheduleRow | None


class Moved(StrEnum):
    """The outcome of a step that expected a schedule to be at a certain run."""

    DONE = "done"
    STALE = "stale"  # it is not, or no longer
    TAKEN = "taken"  # a job for that slot exists already


def run_id(schedule: str, slot: int) -> str:
    """The id of the job that is a schedule's run at this time."""
    return f"repeat:{schedule}:{slot}"


def scheduled_run(job_id: str) -> tuple[str, int] | None:
    """The schedule and time of a job that is a run; None for other jobs."""
    if not job_id.startswith("repeat:"):
        return None
    schedule, _, slot = job_id[len("repeat:") :].rpartition(":")
    return (schedule, int(slot)) if schedule and slot.isdecimal() and slot.isascii() else None
