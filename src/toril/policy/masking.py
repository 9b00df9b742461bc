"""Payloads as people may see them: what is named like a secret is covered, and what is long is cut."""

import re
from typing import Any, Final

__all__ = ["COVER", "masked"]

_SECRET: Final = re.compile(
    r"password|passwd|passphrase|pwd|secret|token|authorization|credential|(?:api|access|private)[_-]?key|cookie",
    re.IGNORECASE,
)
COVER: Final = "***"


def masked(value: Any) -> Any:
    """The value with `***` in place of all that stands under a name such as `password` or `api_key`."""
    match value:
        case dict():
            return {key: COVER if _SECRET.search(str(key)) else masked(part) for key, part in value.items()}
        case list():
            return [masked(part) for part in value]
        case _:
            return value
