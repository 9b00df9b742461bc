"""What someone has typed into a search: plain words, and words for one place, as `error:429`. Pure."""

import re
from dataclasses import dataclass
from typing import Any, Final

from toril.policy.search import JobFilter

__all__ = ["Typed", "typed"]

_WORD: Final = re.compile(r'(?:(id|name|error|data\.[^\s:=]+)[:=])?("[^"]*"|\S+)')


@dataclass(frozen=True, slots=True)
class Typed:
    """`id` names one job; the filter is for all else."""

    filter: JobFilter
    id: str | None = None

    def body(self) -> dict[str, Any]:
        """The filter as the API takes it."""
        given = {"q": self.filter.text, "name": self.filter.name, "error": self.filter.error, "key": self.filter.key}
        return {name: value for name, value in given.items() if value is not None}


def typed(text: str, error: str | None = None) -> Typed:
    """`id:`, `name:`, `error:` and `data.key:` are for one place each, and the last of a kind counts; what is left is
    looked for everywhere. `error` is that of the group of errors that was chosen."""
    found: dict[str, str] = {}
    plain: list[str] = []
    for place, word in _WORD.findall(text):
        word = word.strip('"')  # noqa: PLW2901 - the same word, without the quotes that kept it together
        if place.startswith("data."):
            found["key"] = f"{place.removeprefix('data.')}={word}"
        elif place:
            found[place] = word
        else:
            plain.append(word)
    chosen = JobFilter(
        text=" ".join(plain) or None, name=found.get("name"), error=found.get("error") or error or None,
        key=found.get("key"),
    )  # fmt: skip
    return Typed(chosen, found.get("id"))
