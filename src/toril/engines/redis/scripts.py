"""The scripts: put together from their parts once, known to the server by their hash.

A line `-- include NAME` stands for the file `lib/NAME.lua`. `K.`, `G.`, `F.` and `N.` name what `layout` knows.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Final

from toril.engines.redis import layout
from toril.model import DEAD_LETTERS, LASTING, REAPER
from toril.model.names import RESERVED_IDS

__all__ = ["Script", "script", "scripts"]

_INCLUDE: Final = re.compile(r"^-- include (\w+)$", re.MULTILINE)
_NAMED: Final = re.compile(r"\b([KGFN])\.(\w+)")
_COMMENT: Final = re.compile(r"^\s*--.*\n", re.MULTILINE)
_TEXTS: Final = {
    "remembered": f"'{layout.NUMBERS['remembered']}'",
    "lasting": f"('{LASTING}')",
    "reaper": f"'{REAPER}'",
    "reserved": f"(':{':'.join(sorted(RESERVED_IDS))}:')",
}
_LISTS: Final = {"record_fields": layout.RECORD_FIELDS, "schedule_fields": layout.SCHEDULE_FIELDS}


@dataclass(frozen=True, slots=True)
class Script:
    """What to run, and the hash under which the server may know it."""

    name: str
    source: str
    sha: str


@cache
def script(name: str, letters: str = DEAD_LETTERS, *, named: bool = False) -> Script:
    """The script `lua/NAME.lua`, ready to be sent, for a store whose dead letters are in this queue; `named` says that
    the user has chosen it. A queue's name has no bracket that could end a text of Lua's."""
    text = _assembled(_read(f"{name}.lua"), set())
    texts = _TEXTS | {"dead_letters": f"[[{letters}]]", "named_letters": str(named).lower()}
    source = _NAMED.sub(partial(_spelled, texts), _COMMENT.sub("", text))
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest())  # noqa: S324 - what Redis calls it by


def scripts() -> list[str]:
    """The names of all there are."""
    found = (files("toril.engines.redis") / "lua").iterdir()
    return sorted(path.name.removesuffix(".lua") for path in found if path.name.endswith(".lua"))


def _read(name: str) -> str:
    return (files("toril.engines.redis") / "lua" / name).read_text("utf-8")


def _assembled(text: str, seen: set[str]) -> str:
    """The text with each of its parts once, where it is first named."""

    def part(found: re.Match[str]) -> str:
        name = found[1]
        if name in seen:
            return ""
        seen.add(name)
        return _assembled(_read(f"lib/{name}.lua"), seen)

    return _INCLUDE.sub(part, text)


def _spelled(texts: Mapping[str, str], found: re.Match[str]) -> str:
    """The layout's text for a name, as Lua writes it; an unknown name is a mistake in the script."""
    kind, name = found[1], found[2]
    match kind:
        case "K":
            return f"'{layout.KEYS[name]}'"
        case "G":
            return f"'{layout.FLEET[name]}'"
        case "F" if name in _LISTS:
            return ", ".join(f"'{layout.FIELDS[field]}'" for field in _LISTS[name])
        case "F":
            return f"'{layout.FIELDS[name]}'"
        case _ if name in texts:
            return texts[name]
        case _:
            return str(layout.NUMBERS[name])
