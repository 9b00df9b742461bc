"""Which endpoint a path and a method mean."""

from collections.abc import Mapping, Sequence

from toril.web.endpoint import Endpoint
from toril.web.paths import plain
from toril.web.problems import Problem

__all__ = ["Table"]

_Parts = tuple[str, ...]


class Table:
    """Paths part by part: `{name}` stands for any one part. A part that is written out goes before one that is not."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._rows: dict[_Parts, dict[str, Endpoint]] = {}
        for endpoint in endpoints:
            self._rows.setdefault(_parts(endpoint.path), {})[endpoint.method] = endpoint
        self._order = sorted(self._rows, key=lambda parts: [part.startswith("{") for part in parts])

    def find(self, method: str, path: str) -> tuple[Endpoint, Mapping[str, str]]:
        """The endpoint, and what its path's names stand for; a Problem if there is none."""
        given = _parts(path)
        for pattern in self._order:
            if len(pattern) == len(given) and all(_fits(*pair) for pair in zip(pattern, given, strict=True)):
                methods = self._rows[pattern]
                endpoint = methods.get("GET" if method == "HEAD" else method)
                if endpoint is None:
                    raise Problem(405, "method", f"{method} is not for this path", headers={"allow": _allow(methods)})
                return endpoint, _meant(pattern, given)
        raise Problem(404, "not_found", "there is nothing here")


def _parts(path: str) -> _Parts:
    return tuple(path.split("/"))


def _fits(pattern: str, part: str) -> bool:
    return bool(part) if pattern.startswith("{") else pattern == part


def _meant(pattern: _Parts, given: _Parts) -> dict[str, str]:
    pairs = zip(pattern, given, strict=True)
    return {name[1:-1]: plain(part) for name, part in pairs if name.startswith("{")}


def _allow(methods: Mapping[str, Endpoint]) -> str:
    return ", ".join(sorted(set(methods) | ({"HEAD"} if "GET" in methods else set())))
