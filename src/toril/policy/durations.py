"""Lengths of time as people write them."""

import re
from typing import Final

__all__ = ["UNITS", "seconds_of"]

UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_WRITTEN: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d)?\Z", re.ASCII)


def seconds_of(written: str) -> float | None:
    """`90`, `1.5s`, `10m`, `2h`, `7d`: seconds, where no unit is given. None if it is no such text."""
    found = _WRITTEN.match(written)
    return None if found is None else float(found[1]) * UNITS[found[2] or "s"]
