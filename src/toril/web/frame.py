"""What stands around every page: the navigation with its counts, and how the store is. Read at most once in a while."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from toril.app import App
from toril.clock import Clock
from toril.engine import redacted
from toril.model import CircuitState
from toril.web.words import number

__all__ = ["Entry", "Frame"]

_FRESH: Final = 2.0  # seconds that the counts may be old
_KINDS: Final = {"sqlite": "SQLite", "memory": "SQLite in memory"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the navigation; `path` is empty for the overview. `key` is what the pages that belong to it name."""

    key: str
    path: str
    text: str
    icon: str


NAVIGATION: Final = (
    Entry("overview", "", "Overview", "overview"),
    Entry("dead", "dead", "Dead letters", "dead"),
    Entry("flows", "flows", "Flows", "flow"),
    Entry("schedules", "schedules", "Schedules", "schedule"),
    Entry("groups", "groups", "Groups", "group"),
    Entry("breakers", "breakers", "Breakers", "breaker"),
    Entry("workers", "workers", "Workers", "worker"),
)


class Frame:
    """The same for all who look; what one page has read serves the others for a moment."""

    def __init__(self, app: App, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._counts: Mapping[str, int] = {}
        self._read_at = -_FRESH

    async def values(self, nav: str) -> dict[str, Any]:
        """What base.html shows, on a page that stands under an entry."""
        if self._clock.monotonic() - self._read_at >= _FRESH:
            self._counts = await self._read()
            self._read_at = self._clock.monotonic()
        return self.bare(nav) | {"counts": {key: number(count) for key, count in self._counts.items() if count}}

    def bare(self, nav: str = "") -> dict[str, Any]:
        """Without what has to be read: the store may be away."""
        return {"navigation": NAVIGATION, "nav": nav, "counts": {}, "hot": _HOT, "store": _store(self._app.url)}

    async def _read(self) -> dict[str, int]:
        store = self._app.store
        circuits = await store.circuits()
        return {
            "dead": await store.count_letters(),
            "breakers": sum(circuit.state is not CircuitState.CLOSED for circuit in circuits),
            "workers": len(await store.workers()),
        }


_HOT: Final = frozenset({"overview", "breakers"})  # whose count is bad news


def _store(url: str) -> dict[str, str]:
    """The store's kind and place, as they may be shown."""
    shown = redacted(url)
    scheme, _, rest = shown.partition("://")
    place = rest.rpartition("/")[2] if scheme == "sqlite" else urlsplit(shown).netloc.rpartition("@")[2]
    return {"kind": _KINDS.get(scheme, "Redis"), "place": place.partition("?")[0]}
