"""Masks secrets in payloads and error texts."""

import math
import re
from typing import Any, Final

from toril.model import MAX_REASON_BYTES

__all__ = ["COVER", "UNSHOWN", "masked", "redacted", "showable"]

_SECRET: Final = re.compile(
    r"password|passwd|passphrase|pwd|secret|token|authorization|credential|(?:api|access|private)[_-]?key|cookie",
    re.IGNORECASE,
)
COVER: Final = "***"
_DEEPEST: Final = 100  # as deep as Toril itself stores a payload
UNSHOWN: Final = "(nested too deeply to be shown)"


def masked(value: Any) -> Any:
    """A showable value with `***` in place of everything under a name such as `password` or `api_key`."""
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


_NAMES: Final = r"passw(?:or)?d|passphrase|pwd|secret|(?:api|access|private)[ _-]?key"
_WORD: Final = rf"(?:{_NAMES}|token|authorization|cookie)[\w-]{{0,32}}"
_QUOTED: Final = r"'[^']{0,4096}'?|\"[^\"]{0,4096}\"?"
_BARE: Final = r"[^\s,;&)}\]]+"
_URL: Final = re.compile(r"\b([A-Za-z][\w+.-]{0,30})://([^\s'\"<>]+)")
_WEB: Final = frozenset({"http", "https", "ws", "wss"})
_FORMS: Final = (
    (re.compile(r"(\w://)[^/\s@]{1,1024}@"), r"\1***@"),
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}(?:\.[\w-]*){2,4}"), "***"),  # a JWT: Base64 of JSON begins like this
    (re.compile(r"\b(bearer|basic)(\s{1,4})[\w.~+/=-]{6,}", re.IGNORECASE), r"\1\2***"),
)
_LED: Final = re.compile(rf"{_NAMES}|token|authorization|cookie", re.IGNORECASE)
_NAMED: Final = (
    (re.compile(rf"({_WORD}['\"]?\s{{0,4}}=\s{{0,4}})(?:{_QUOTED}|{_BARE})", re.IGNORECASE), r"\1***"),
    (re.compile(rf"({_WORD}['\"]\s{{0,4}}:\s{{0,4}})(?:{_QUOTED}|{_BARE})", re.IGNORECASE), r"\1***"),
    (re.compile(rf"({_WORD}\s{{0,4}}:\s{{0,4}})(?:{_QUOTED})", re.IGNORECASE), r"\1***"),
    (re.compile(rf"((?:{_NAMES})[\w-]{{0,32}}\s{{0,4}}:\s{{0,4}}+)(?!\*\*\*){_BARE}", re.IGNORECASE), r"\1***"),
    # "unexpected token: name" should stay readable; a secret token is long, or its name says more.
    (re.compile(rf"([\w-]token\s{{0,4}}:\s{{0,4}}+)(?!\*\*\*){_BARE}", re.IGNORECASE), r"\1***"),
    (re.compile(r"(token\s{0,4}:\s{0,4})[\w.~+/=-]{16,}", re.IGNORECASE), r"\1***"),
    # A header goes to the end of its line.
    (re.compile(r"((?:authorization|cookie)\s{0,4}:\s{0,4}+)(?!\*\*\*|bearer\s|basic\s)[^\r\n'\"]+", re.IGNORECASE),
     r"\1***"),
)  # fmt: skip


def redacted(text: str) -> str:
    """The text with passwords, tokens and user information in URLs replaced by asterisks."""
    text = _URL.sub(_without_password, text[:MAX_REASON_BYTES])  # no more is kept anyway
    for pattern, instead in (*_FORMS, *_NAMED) if _LED.search(text) else _FORMS:
        text = pattern.sub(instead, text)
    return text


def _without_password(found: re.Match[str]) -> str:
    """A URL without what stands before its last `@`: a password may have a `/` or an `@`, and so may a path. A path is
    taken for one where there is only a host before it, or a host and a port."""
    scheme, rest = found[1], found[2]
    before, at, after = rest.rpartition("@")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    _, colon, port = authority.partition(":")
    is_path = "@" not in authority and (
        not colon or authority.startswith("[") or (scheme.lower() in _WEB and port.isdecimal())
    )
    return found[0] if not at or not before or is_path else f"{scheme}://***@{after}"
