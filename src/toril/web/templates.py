"""The Jinja environment: assets, formats of numbers and times, navigation."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import Response

from toril.store.engine import redacted
from toril.web.access import Role, Who
from toril.web.fleet_status import MANY, FleetStatus
from toril.web.indentation import Unindented

__all__ = [
    "NAVIGATION",
    "NONE",
    "Asset",
    "Links",
    "Name",
    "NavEntry",
    "Words",
    "assets",
    "clock_time",
    "compact",
    "file",
    "framed",
    "iso",
    "number",
    "percent",
    "plural",
    "rate",
    "rendered",
    "size",
    "span",
    "terse",
]

_ASSETS: Final = Path(__file__).parent / "assets"
_FOREVER: Final = "public, max-age=31536000, immutable"
# The script is written in parts that share one scope, and sent as one file.
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "app.css": ("app.css",),
    "app.js": ("base.js", "charts.js", "tables.js", "acts.js", "keys.js", "live.js"),
}
_CONTENT_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent, at `path` under the site's root."""

    path: str
    body: bytes
    kind: str


@cache
def assets() -> Mapping[str, Asset]:
    """All assets, by the names that templates use."""
    return {name: _asset(name, parts) for name, parts in _PARTS.items()}


def file(path: str) -> Response | None:
    """The file at a path; None if there is none. Browsers may cache it forever, because a new version has a new
    path."""
    found = next((asset for asset in assets().values() if path == "/" + asset.path), None)
    if found is None:
        return None
    return Response(found.body, headers={"cache-control": _FOREVER, "content-type": found.kind})


def _asset(name: str, parts: tuple[str, ...]) -> Asset:
    body = b"\n".join((_ASSETS / part).read_bytes() for part in parts)
    stem, suffix = Path(name).stem, Path(name).suffix
    return Asset(f"assets/{stem}.{hashlib.sha256(body).hexdigest()[:12]}{suffix}", body, _CONTENT_TYPES[suffix])


_TEMPLATES: Final = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses relative to the current page, so that the site can be mounted under any prefix."""

    root: str

    @classmethod
    def at(cls, path: str) -> "Links":
        """For the page at a path, which begins with a slash."""
        return cls("../" * (path.count("/") - 1) or "./")

    def __call__(self, *parts: str, **query: object) -> str:
        """`to("queues", name, state="failed")`."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return self.root + "/".join(quote(part, safe="") for part in parts) + ("?" + urlencode(given) if given else "")

    def job(self, queue: str, identity: str, dead_letter: str | None) -> str:
        """The page of a job, or of its dead letter."""
        return self("dead", dead_letter) if dead_letter else self("queues", queue, "jobs", identity)

    def asset(self, name: str) -> str:
        return self.root + assets()[name].path


def rendered(template: str, values: Mapping[str, Any], *, to: Links, who: Who | None, now: int) -> str:
    """The page. In templates, `may("operate")` tells whether the viewer has a role; actions that they may not take are
    not offered."""
    role = Role.READ if who is None else who.role
    more = {"to": to, "who": who, "now": now, "may": lambda name: role >= Role[name.upper()], "role": role.name.lower()}
    return _environment().get_template(template).render({**values, **more})


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        extensions=[Unindented],
        auto_reload=False,
    )
    made.filters.update(
        num=number,
        pct=percent,
        span=span,
        iso=iso,
        clock=clock_time,
        size=size,
        compact=compact,
        rate=rate,
        json=_json,
        text=_text,
        terse=terse,
        plain=_plain,
        shorter=_shorter,
        capitalize_first=lambda text: text[:1].upper() + text[1:],
    )
    made.globals.update(plural=plural, NONE=NONE, path=_path)
    return made


def _path(*parts: str) -> str:
    """The path in the API: `path("queues", name, "jobs", id)`."""
    return "/".join(quote(part, safe="") for part in parts)


def _json(value: Any) -> Markup:
    """A value as indented JSON, with its parts marked for colours. Everything in it is escaped."""
    return Markup(_coloured(value, 0))  # noqa: S704 - made of escaped parts alone


def _text(value: Any) -> str:
    """A value as plain JSON, for attributes and fields."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _shorter(text: str) -> str:
    """The beginning of a long id."""
    return text if len(text) <= _ID else text[:_ID] + "…"


def _plain(text: str) -> str:
    """A JSON text as people read it: a string without its quotes."""
    value = json.loads(text)
    return value if isinstance(value, str) else text


def _coloured(value: Any, depth: int) -> str:
    inner, outer = "  " * (depth + 1), "  " * depth
    match value:
        case dict() if value:
            rows = [
                f"{inner}{_mark('k', json.dumps(str(key), ensure_ascii=False))}: {_coloured(part, depth + 1)}"
                for key, part in value.items()
            ]
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


NONE: Final = "\u2013"  # for unknown or missing values
_ID: Final = 12  # characters of a long id
_JOINT: Final = "\u00a0"  # between a number and its unit, which stay on one line


@dataclass(frozen=True, slots=True)
class Name:
    """A name given by users, or a text from elsewhere: it stands out, as a link or as code. With `until` it is a moment
    (ms) to which the page counts down."""

    text: str
    to: Sequence[str] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    until: int | None = None


Words: TypeAlias = tuple[str | Name, ...]  # a sentence, in parts


def number(value: float | None) -> str:
    """`1,284`."""
    return NONE if value is None else f"{round(value):,}"


def rate(value: float | None) -> str:
    """`1,284`, `4.2` or `0.05` per minute: small values get more digits."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def percent(value: float | None) -> str:
    """`28.4 %`, of a number in percent."""
    return NONE if value is None else f"{value:,.1f}{_JOINT}%"


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count:,}{_JOINT}{one if count == 1 else many or one + 's'}"


def span(ms: float | None) -> str:
    """A duration in its two largest units: `420 ms`, `1.8 s`, `4m 12s`, `2h 06m`."""
    if ms is None:
        return NONE
    seconds = max(0.0, ms / 1000)
    if seconds < 1:
        return f"{round(seconds * 1000)}{_JOINT}ms"
    if seconds < 59.5:
        text = f"{seconds:.1f}".removesuffix(".0") if seconds < 10 else f"{round(seconds)}"
        return f"{text}{_JOINT}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m{_JOINT}{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{_JOINT}{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{_JOINT}{whole % 86_400 // 3600}h"


def terse(ms: float | None) -> str:
    """A duration without empty parts: `5m`, and not `5m 00s`."""
    return span(ms).removesuffix(f"{_JOINT}00s").removesuffix(f"{_JOINT}00m").removesuffix(f"{_JOINT}0h")


def iso(ms: float) -> str:
    """`2026-11-17T14:32:08.120Z`, as a `datetime` attribute has it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock_time(ms: float | None) -> str:
    """`14:32:08`, in UTC."""
    return NONE if ms is None else f"{datetime.fromtimestamp(ms / 1000, UTC):%H:%M:%S}"


def size(count: int) -> str:
    """`310 B`, `1.9 kB`, of bytes."""
    if count < 1000:
        return f"{count}{_JOINT}B"
    return f"{count / 1000:,.1f}{_JOINT}kB" if count < 1_000_000 else f"{count / 1_000_000:,.1f}{_JOINT}MB"


def compact(value: Any, most: int = 160) -> str:
    """A payload on one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else text[: most - 1] + "…"


_STORE_KINDS: Final = {
    "sqlite": "SQLite",
    "memory": "SQLite in memory",
    "postgresql": "PostgreSQL",
    "postgres": "PostgreSQL",
}
_HOT: Final = frozenset({"overview", "breakers"})  # entries whose counts are bad news


@dataclass(frozen=True, slots=True)
class NavEntry:
    """An entry of the navigation; `path` is empty for the overview. Pages refer to it by `key`; `role` is what one
    needs to see them."""

    key: str
    path: str
    text: str
    icon: str
    role: str = "read"


NAVIGATION: Final = (
    NavEntry("overview", "", "Overview", "overview"),
    NavEntry("dead", "dead", "Dead letters", "dead"),
    NavEntry("people", "people", "People", "person"),
    NavEntry("flows", "flows", "Flows", "flow"),
    NavEntry("schedules", "schedules", "Schedules", "schedule"),
    NavEntry("groups", "groups", "Groups", "group"),
    NavEntry("breakers", "breakers", "Breakers", "breaker"),
    NavEntry("workers", "workers", "Workers", "worker"),
    NavEntry("audit", "audit", "Audit log", "table", "admin"),
)


def framed(url: str, around: FleetStatus | None = None, nav: str = "") -> dict[str, Any]:
    """The values of base.html for a page under an entry; without counts if the store may be away."""
    counts = {} if around is None else {key: number(count) for key, count in around.counts.items() if count}
    if around is not None and around.people >= MANY:
        counts["people"] += "+"
    return {"navigation": NAVIGATION, "nav": nav, "counts": counts, "hot": _HOT, "store": _store(url)}


def _store(url: str) -> dict[str, str]:
    """The store's kind and place, as they may be shown."""
    shown = redacted(url)
    scheme, _, rest = shown.partition("://")
    rest = rest.partition("?")[0]
    match scheme:
        case "sqlite":
            place = rest.rpartition("/")[2]
        case "postgresql" | "postgres":
            place = rest.rpartition("@")[2].strip("/")
        case _:
            place = rest.partition("/")[0].rpartition("@")[2]
    return {"kind": _STORE_KINDS.get(scheme, "Redis"), "place": place}
