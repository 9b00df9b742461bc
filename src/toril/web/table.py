"""Which endpoint, or which page, a path and a method mean."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from toril.web.paths import plain
from toril.web.problems import Problem

__all__ = ["Table"]

_Parts = tuple[str, ...]


class _Placed(Protocol):
    """What can stand in a table."""

    @property
    def path(self) -> str: ...

    @property
    def method(self) -> str: ...


T = TypeVar("T", bound=_Placed)


class Table(Generic[T]):
    """Paths part by part: `{name}` stands for any one part. A part that is written out goes before one that is not."""

    def __init__(self, rows: Sequence[T]) -> None:
        self._rows: dict[_Parts, dict[str, T]] = {}
        for row in rows:
            self._rows.setdefault(_parts(row.path), {})[row.method] = row
        self._order = sorted(self._rows, key=lambda parts: [part.startswith("{") for part in parts])

    def find(self, method: str, path: str) -> tuple[T, Mapping[str, str]]:
        """The row, and what its path's names stand for; a Problem if there is none."""
        given = _parts(path)
        for pattern in self._order:
            if len(pattern) == len(given) and all(_fits(*pair) for pair in zip(pattern, given, strict=True)):
                methods = self._rows[pattern]
                found = methods.get("GET" if method == "HEAD" else method)
                if found is None:
                    raise Problem(405, "method", f"{method} is not for this path", headers={"allow": _allow(methods)})
                return found, _meant(pattern, given)
        raise Problem(404, "not_found", "there is nothing here")


def _parts(path: str) -> _Parts:
    return tuple(path.split("/"))


def _fits(pattern: str, part: str) -> bool:
    return bool(part) if pattern.startswith("{") else pattern == part


def _meant(pattern: _Parts, given: _Parts) -> dict[str, str]:
    pairs = zip(pattern, given, strict=True)
    return {name[1:-1]: plain(part) for name, part in pairs if name.startswith("{")}


def _allow(methods: Mapping[str, Any]) -> str:
    return ", ".join(sorted(set(methods) | ({"HEAD"} if "GET" in methods else set())))
