"""Payloads as people may see them: every value can be sent as JSON, and what is named like a secret is covered."""

import math
import re
from typing import Any, Final

__all__ = ["COVER", "UNSHOWN", "masked", "showable"]

_SECRET: Final = re.compile(
    r"password|passwd|passphrase|pwd|secret|token|authorization|credential|(?:api|access|private)[_-]?key|cookie",
    re.IGNORECASE,
)
COVER: Final = "***"
_DEEPEST: Final = 100  # as deep as Toril itself stores a payload
UNSHOWN: Final = "(nested too deeply to be shown)"


def masked(value: Any) -> Any:
    """A showable value with `***` in place of all that stands under a name such as `password` or `api_key`."""
    return _walked(value, 1, cover=True)


def showable(value: Any) -> Any:
    """A copy of any value that was read from JSON, whoever wrote it, that can be encoded again and sent.

    Numbers that JSON does not have become the texts `NaN`, `Infinity` and `-Infinity`. Lists and objects that
    are nested deeper than 100, which Toril itself refuses to store, become `(nested too deeply to be shown)`. What JSON
    has no type for stays as it is.
    """
    return _walked(value, 1, cover=False)


def _walked(value: Any, depth: int, *, cover: bool) -> Any:
    match value:
        case dict() | list() if depth > _DEEPEST:
            return UNSHOWN
        case dict():
            return {
                key: COVER if cover and _SECRET.search(str(key)) else _walked(part, depth + 1, cover=cover)
                for key, part in value.items()
            }
        case list():
            return [_walked(part, depth + 1, cover=cover) for part in value]
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case _:
            return value
