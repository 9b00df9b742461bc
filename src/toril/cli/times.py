"""Times as people write and read them."""

from datetime import UTC, datetime

import click

from toril.model.durations import UNITS, seconds_written
from toril.runtime.clock import SYSTEM

__all__ = ["age", "ahead", "duration", "since", "span"]


def duration(written: str) -> float:
    """`90`, `1.5s`, `10m`, `2h`, `7d`: seconds, where no unit is given."""
    seconds = seconds_written(written)
    if seconds is None:
        raise click.BadParameter(f"{written!r} is not a time such as 90, 1.5s, 10m, 2h or 7d")
    return seconds


def span(ms: int) -> str:
    """A length of time in its largest unit."""
    if ms < 1000:
        return f"{max(0, ms)}ms"
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.1f}s"
    for unit, size in (("s", 120), ("m", 7200), ("h", 172_800)):
        if seconds < size:
            return f"{int(seconds / UNITS[unit])}{unit}"
    return f"{int(seconds / UNITS['d'])}d"


def since(seconds: float | None) -> datetime | None:
    """The moment that was so long ago."""
    return None if seconds is None else datetime.fromtimestamp(SYSTEM.now() / 1000 - seconds, UTC)


def age(ms: int | None) -> str:
    return "" if ms is None else f"{span(SYSTEM.now() - ms)} ago"


def ahead(ms: int | None) -> str:
    """When something is due."""
    if ms is None:
        return ""
    left = ms - SYSTEM.now()
    return "due now" if left <= 0 else f"due in {span(left)}"
