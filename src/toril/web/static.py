"""The style and the script: in the package, under names that change with what is in them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from starlette.responses import Response

__all__ = ["Asset", "assets", "file"]

_HERE: Final = Path(__file__).parent / "assets"
_FOREVER: Final = "public, max-age=31536000, immutable"
# The script is written in parts that share one scope, and sent as one.
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "app.css": ("app.css",),
    "app.js": ("base.js", "charts.js", "tables.js", "acts.js", "keys.js", "live.js"),
}
_KINDS: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is sent, at `path` under the site's root."""

    path: str
    body: bytes
    kind: str


@cache
def assets() -> Mapping[str, Asset]:
    """All of them, by the names that templates use."""
    return {name: _asset(name, parts) for name, parts in _PARTS.items()}


def file(path: str) -> Response | None:
    """The file at a path; None if there is none. It may be kept for ever, as another would have another path."""
    found = next((asset for asset in assets().values() if path == "/" + asset.path), None)
    if found is None:
        return None
    return Response(found.body, headers={"cache-control": _FOREVER, "content-type": found.kind})


def _asset(name: str, parts: tuple[str, ...]) -> Asset:
    body = b"\n".join((_HERE / part).read_bytes() for part in parts)
    stem, suffix = Path(name).stem, Path(name).suffix
    return Asset(f"assets/{stem}.{hashlib.sha256(body).hexdigest()[:12]}{suffix}", body, _KINDS[suffix])
