"""Times as people write and read them."""

import re
from datetime import UTC, datetime
from typing import Final

import click

from toril.clock import SYSTEM

__all__ = ["age", "ahead", "duration", "since", "span"]

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_WRITTEN: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d)?\Z", re.ASCII)


def duration(written: str) -> float:
    """`90`, `1.5s`, `10m`, `2h`, `7d`: seconds, where no unit is given."""
    found = _WRITTEN.match(written)
    if found is None:
        raise click.BadParameter(f"{written!r} is not a time such as 90, 1.5s, 10m, 2h or 7d")
    return float(found[1]) * _UNITS[found[2] or "s"]


def span(ms: int) -> str:
    """A length of time in its largest unit."""
    if ms < 1000:
        return f"{max(0, ms)}ms"
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.1f}s"
    for unit, size in (("s", 120), ("m", 7200), ("h", 172_800)):
        if seconds < size:
            return f"{int(seconds / _UNITS[unit])}{unit}"
    return f"{int(seconds / _UNITS['d'])}d"


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
