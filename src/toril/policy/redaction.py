"""What looks like a secret in an error's text is not kept. Every pattern is bounded: a text cannot make it slow."""

import re
from typing import Final

from toril.model import MAX_REASON_BYTES

__all__ = ["redacted"]

_WORD: Final = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|authorization|cookie)[\w-]{0,32}"
)
_QUOTED: Final = r"'[^']{0,4096}'?|\"[^\"]{0,4096}\"?"
_PATTERNS: Final = (
    (re.compile(r"(\w://)[^/\s@]{1,1024}@"), r"\1***@"),
    (re.compile(r"\b(bearer|basic)(\s{1,4})[\w.~+/=-]{6,}", re.IGNORECASE), r"\1\2***"),
    (re.compile(rf"({_WORD}['\"]?\s{{0,4}}=\s{{0,4}})(?:{_QUOTED}|[^\s,;&)}}\]]+)", re.IGNORECASE), r"\1***"),
    # With a colon only where something is quoted: "unexpected token: name" should stay readable.
    (re.compile(rf"({_WORD}['\"]\s{{0,4}}:\s{{0,4}})(?:{_QUOTED}|[^\s,;&)}}\]]+)", re.IGNORECASE), r"\1***"),
    (re.compile(rf"({_WORD}\s{{0,4}}:\s{{0,4}})(?:{_QUOTED})", re.IGNORECASE), r"\1***"),
)


def redacted(text: str) -> str:
    """The text with passwords, tokens and what stands before the `@` of a URL replaced by asterisks."""
    text = text[:MAX_REASON_BYTES]  # more is not kept anyway
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text
