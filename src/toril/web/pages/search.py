"""What someone types into a search field: plain text, or parts that say where to look. Pure."""

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Typed", "typed"]

_PART: Final = re.compile(r'(?P<where>id|name|error|data\.[^\s:="]+):(?:"(?P<quoted>[^"]*)"|(?P<plain>\S*))')


@dataclass(frozen=True, slots=True)
class Typed:
    """The parts of a search. `key` is as the filters take it: `user.id` or `user.id=7`."""

    text: str | None = None
    name: str | None = None
    error: str | None = None
    key: str | None = None


def typed(search: str) -> Typed:
    """`error:429 data.org:nordwind late` looks for 429 in the error, for that value under `org`, and for `late`
    anywhere. An id is looked for like any text. Of two parts of one kind the last counts."""
    found: dict[str, str] = {}
    texts = []
    for part in _PART.finditer(search):
        where, value = part["where"], part["quoted"] if part["quoted"] is not None else part["plain"]
        if where.startswith("data."):
            found["key"] = where[len("data.") :] + (f"={value}" if value else "")
        elif where == "id":
            texts.append(value)
        elif value:
            found[where] = value
    texts.append(" ".join(_PART.sub(" ", search).split()))
    return Typed(text=" ".join(filter(None, texts)) or None, **found)
