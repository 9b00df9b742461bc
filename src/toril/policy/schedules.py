"""Computes when a schedule runs; cron."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from toril.errors import InvalidOption, preview
from toril.model import CatchUp, Overlap, Schedule, ScheduleRow

__all__ = ["RunDecision", "after", "check_cron", "decide_run", "first", "following", "shift", "upcoming"]


def check_cron(expression: object, tz: object) -> str:
    """The expression in its plain form. Raises for one that never matches."""
    if not isinstance(expression, str):
        raise InvalidOption(f"cron must be a string of five or six fields, not {preview(expression)}")
    text = " ".join(expression.split())
    if after(text, _zone(tz), 0) is None:
        raise InvalidOption(f"cron {preview(expression)} never matches: there is no such date")
    return text


def after(expression: str, tz: str | tzinfo, moment: int) -> int | None:
    """The first time after `moment`, both in ms; None if there is none within fifty years."""
    zone = _zone(tz) if isinstance(tz, str) else tz
    try:
        found = next(CronSim(expression, datetime.fromtimestamp(moment / 1000, zone)), None)
    except CronSimError as error:
        raise InvalidOption(
            f"invalid cron expression {preview(expression)}: {str(error).lower()}; "
            "it must have five fields, or six with seconds first"
        ) from None
    return None if found is None else round(found.timestamp() * 1000)


@lru_cache(maxsize=256)
def _zone(name: object) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)  # type: ignore[arg-type]
    except (ValueError, TypeError, OSError, LookupError):
        raise InvalidOption(f"tz must be the name of a time zone such as Europe/Berlin, not {preview(name)}") from None


_LATE: Final = 60_000  # ms after which a run counts as missed, or half the interval if that is shorter


class RunDecision(StrEnum):
    """What to do with a run that is due."""

    RUN = "run"
    MISSED = "missed"
    OVERLAPS = "overlaps"
    WAIT = "wait"


def shift(schedule: Schedule) -> int:
    """By how many ms jitter shifts the schedule: at least 0 and less than its jitter, always the same."""
    if not schedule.jitter:
        return 0
    digest = hashlib.sha256(schedule.id.encode()).digest()
    return int.from_bytes(digest[:8], "big") % schedule.jitter


def first(schedule: Schedule, now: int) -> int | None:
    """The first run of a schedule created at `now`; None if it ends before."""
    begin = now if schedule.start is None else max(schedule.start, now)
    if schedule.every is None:
        return _before_end(schedule, _cron(schedule, begin - shift(schedule) - 1))
    if schedule.offset is not None:
        begin += (schedule.offset - begin) % schedule.every
    return _before_end(schedule, begin + shift(schedule))


def following(schedule: Schedule, slot: int, now: int, count: int = 0) -> int | None:
    """The run after the one at `slot`, if `count` have been created; None if there is none. Times that have passed by
    `now` are left out, except with `catch_up="all"`, which goes back as far as its window."""
    if schedule.limit is not None and count >= schedule.limit:
        return None
    floor = now - schedule.window if schedule.catch_up is CatchUp.ALL else now + 1
    if schedule.every is not None:
        missed = max(0, -(-(floor - slot - schedule.every) // schedule.every))
        return _before_end(schedule, slot + (missed + 1) * schedule.every)
    earliest = max(_nominal(schedule, slot) + max(1, schedule.min_interval), floor - shift(schedule))
    return _before_end(schedule, _cron(schedule, earliest - 1))


def upcoming(view: ScheduleRow, count: int = 10) -> list[int]:
    """The next runs, as far as they can be computed."""
    return list(islice(_row(view), count))


def decide_run(view: ScheduleRow, now: int) -> RunDecision:
    """Whether the current run should go ahead."""
    schedule, late = view.schedule, now - view.slot
    if schedule.catch_up is CatchUp.ALL and late > schedule.window:
        return RunDecision.MISSED
    if schedule.catch_up is CatchUp.NONE and late > _tolerance(view):
        return RunDecision.MISSED
    if not view.busy or schedule.overlap is Overlap.ALLOW:
        return RunDecision.RUN
    return RunDecision.OVERLAPS if schedule.overlap is Overlap.SKIP else RunDecision.WAIT


def _nominal(schedule: Schedule, slot: int) -> int:
    """The time of the expression to which a run belongs. Runs that another library created have no jitter."""
    nominal = slot - shift(schedule)
    return nominal if after(schedule.cron or "", schedule.tz, nominal - 1) == nominal else slot


def _cron(schedule: Schedule, moment: int) -> int | None:
    """The first run whose time by the expression is after `moment`."""
    found = after(schedule.cron or "", schedule.tz, moment)
    return None if found is None else found + shift(schedule)


def _before_end(schedule: Schedule, slot: int | None) -> int | None:
    return None if slot is None or (schedule.end is not None and slot > schedule.end) else slot


def _tolerance(view: ScheduleRow) -> int:
    coming = following(view.schedule, view.slot, view.slot)
    return _LATE if coming is None else min(_LATE, (coming - view.slot) // 2)


def _row(view: ScheduleRow) -> Iterator[int]:
    slot, count = view.next, view.count
    while slot is not None:
        yield slot
        slot, count = following(view.schedule, slot, slot, count), count + 1
