"""What stands around every page: the navigation with its counts, and which store it is."""

from dataclasses import dataclass
from typing import Any, Final

from toril.store.engine import redacted
from toril.web.fleet_status import Around
from toril.web.words import number

__all__ = ["NAVIGATION", "Entry", "framed"]

_KINDS: Final = {"sqlite": "SQLite", "memory": "SQLite in memory"}
_HOT: Final = frozenset({"overview", "breakers"})  # whose count is bad news


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the navigation; `path` is empty for the overview. `key` is what the pages that belong to it name,
    `role` what one must be to see them."""

    key: str
    path: str
    text: str
    icon: str
    role: str = "read"


NAVIGATION: Final = (
    Entry("overview", "", "Overview", "overview"),
    Entry("dead", "dead", "Dead letters", "dead"),
    Entry("flows", "flows", "Flows", "flow"),
    Entry("schedules", "schedules", "Schedules", "schedule"),
    Entry("groups", "groups", "Groups", "group"),
    Entry("breakers", "breakers", "Breakers", "breaker"),
    Entry("workers", "workers", "Workers", "worker"),
    Entry("audit", "audit", "Audit log", "table", "admin"),
)


def framed(url: str, around: Around | None = None, nav: str = "") -> dict[str, Any]:
    """What base.html shows, on a page that stands under an entry; without counts where the store may be away."""
    counts = {} if around is None else {key: number(count) for key, count in around.counts.items() if count}
    return {"navigation": NAVIGATION, "nav": nav, "counts": counts, "hot": _HOT, "store": _store(url)}


def _store(url: str) -> dict[str, str]:
    """The store's kind and place, as they may be shown."""
    shown = redacted(url)
    scheme, _, rest = shown.partition("://")
    place = rest.rpartition("/")[2] if scheme == "sqlite" else rest.partition("/")[0].rpartition("@")[2]
    return {"kind": _KINDS.get(scheme, "Redis"), "place": place.partition("?")[0]}
