"""Parses the text of a search box: plain words, and terms for one field such as `error:429`."""

import re
from dataclasses import dataclass
from typing import Any, Final

from toril.policy.search import JobFilter

__all__ = ["SearchTerms", "quoted", "typed"]

_WORD: Final = re.compile(
    r'(?:(?P<place>id|name|error|group|subject|data\.[^\s:="]+)[:=])?(?:"(?P<quoted>[^"]*)"|(?P<plain>\S+))?'
)


@dataclass(frozen=True, slots=True)
class SearchTerms:
    """`id` selects one job; the filter has the other terms."""

    filter: JobFilter
    id: str | None = None

    def body(self) -> dict[str, Any]:
        """The filter as the API takes it."""
        chosen = self.filter
        given = {
            "q": chosen.text, "name": chosen.name, "error": chosen.error, "key": chosen.key, "ending": chosen.ending,
            "group": chosen.group, "subject": chosen.subject,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value is not None}


def typed(text: str, error: str | None = None) -> SearchTerms:
    """Parse a search. `id:`, `name:`, `error:`, `group:`, `subject:` and `data.key:` are for one field each, and the
    last of a kind counts; other words are searched everywhere. `error` is the text of a selected group of errors."""
    found: dict[str, str] = {}
    plain: list[str] = []
    for each in _WORD.finditer(text):
        place = each["place"] or ""
        word = each["quoted"] if each["quoted"] is not None else (each["plain"] or "").strip('"')
        if place.startswith("data."):
            found["key"] = place.removeprefix("data.") + (f"={word}" if word else "")
        elif place and word:
            found[place] = word
        elif word:
            plain.append(word)
    chosen = JobFilter(
        text=" ".join(plain) or None,
        name=found.get("name"),
        error=found.get("error") or error or None,
        key=found.get("key"),
        group=found.get("group"),
        subject=found.get("subject"),
    )
    return SearchTerms(chosen, found.get("id"))


def quoted(place: str, word: str) -> str:
    """The term that searches for a word in one field: `name:send`, `group:"Nordwind AG"`."""
    return f'{place}:"{word}"' if re.search(r"\s", word) else f"{place}:{word}"
