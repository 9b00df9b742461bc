"""Templates: what they are given beside a page's own values, and the words they use."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from toril.web import words
from toril.web.access import Role, Who
from toril.web.static import assets

__all__ = ["Links", "rendered"]

_HERE: Final = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses relative to the page that they stand on, so that the site can be mounted under any prefix."""

    root: str

    @classmethod
    def at(cls, path: str) -> "Links":
        """For the page at a path, which begins with a slash."""
        return cls("../" * (path.count("/") - 1) or "./")

    def __call__(self, *parts: str, **query: object) -> str:
        """`to("queues", name, state="failed")`."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return self.root + "/".join(quote(part, safe="") for part in parts) + ("?" + urlencode(given) if given else "")

    def asset(self, name: str) -> str:
        return self.root + assets()[name].path


def rendered(template: str, values: Mapping[str, Any], *, to: Links, who: Who | None, now: int) -> str:
    """The page. `may("operate")` tells whether whoever looks has a role; what they may not do is not offered."""
    role = Role.READ if who is None else who.role
    more = {"to": to, "who": who, "now": now, "may": lambda name: role >= Role[name.upper()], "role": role.name.lower()}
    return _environment().get_template(template).render({**values, **more})


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        num=words.number, pct=words.percent, span=words.span, iso=words.iso, clock=words.clock_time, size=words.size,
        compact=words.compact, rate=words.rate, json=_json, text=_text, terse=words.terse,
        capitalize_first=lambda text: text[:1].upper() + text[1:],
    )  # fmt: skip
    made.globals.update(plural=words.plural, NONE=words.NONE, path=_path)
    return made


def _path(*parts: str) -> str:
    """Where the API has a thing: `path("queues", name, "jobs", id)`."""
    return "/".join(quote(part, safe="") for part in parts)


def _json(value: Any) -> Markup:
    """A value as indented JSON, with its parts marked for their colours. Everything in it is escaped."""
    return Markup(_coloured(value, 0))  # noqa: S704 - made of escaped parts alone


def _text(value: Any) -> str:
    """A value as plain JSON, for attributes and fields."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _coloured(value: Any, depth: int) -> str:
    inner, outer = "  " * (depth + 1), "  " * depth
    match value:
        case dict() if value:
            rows = [f"{inner}{_mark('k', json.dumps(str(key), ensure_ascii=False))}: {_coloured(part, depth + 1)}"
                    for key, part in value.items()]  # fmt: skip
            return "{\n" + ",\n".join(rows) + f"\n{outer}}}"
        case list() if value:
            return "[\n" + ",\n".join(inner + _coloured(part, depth + 1) for part in value) + f"\n{outer}]"
        case "***":
            return _mark("m", "hidden")
        case str():
            return _mark("s", json.dumps(value, ensure_ascii=False))
        case _:
            return _mark("d", json.dumps(value, ensure_ascii=False, default=str))


def _mark(kind: str, text: str) -> str:
    return f'<span class="{kind}">{escape(text)}</span>'
