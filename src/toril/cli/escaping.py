"""Escapes text that comes from jobs, so that it cannot control a terminal or forge a line."""

import json
from typing import Any

__all__ = ["as_json", "compact", "plain"]


def plain(text: object) -> str:
    r"""The text on one line, with everything that is not printable escaped, as in `\x1b`."""
    line = str(text)
    return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def compact(value: Any, most: int = 200) -> str:
    """A value from a job, as short JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    return plain(text if len(text) <= most else text[: most - 1] + "…")


def as_json(document: dict[str, Any]) -> str:
    """A document on one line, in ASCII."""
    # JSON may hold a bare DEL, and some terminals act on it.
    return json.dumps(document, ensure_ascii=True, default=str).replace("\x7f", "\\u007f")
