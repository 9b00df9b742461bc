"""Entries of the audit log as text, and where a walk over them goes on."""

import json
import re
from dataclasses import asdict
from typing import Final

from toril.errors import InvalidOption, shown
from toril.model import Audited

__all__ = ["dump", "load", "place_of"]

_PLACE: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})\Z", re.ASCII)


def dump(entry: Audited) -> str:
    return json.dumps(asdict(entry))


def load(text: str, at: int) -> Audited:
    """An entry; `at` is when it was written, where it does not say that itself."""
    fields = json.loads(text)
    return Audited(**{**fields, "at": fields["at"] or at})


def place_of(cursor: str) -> tuple[int, int]:
    """The entry before which a page begins."""
    found = _PLACE.match(cursor) if isinstance(cursor, str) else None
    if found is None:
        raise InvalidOption(f"{shown(cursor)} is not a cursor that was given out")
    return int(found[1]), int(found[2])
