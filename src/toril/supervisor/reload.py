"""Replaces worker processes when a source file of the application changes, for development."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from toril.runtime.clock import SYSTEM
from toril.runtime.logs import log
from toril.supervisor.supervisor import Supervisor

__all__ = ["Sources", "reload"]

_LOOK: Final = 0.5  # seconds


class Sources:
    """Files, and when each was last written. A check is one system call per file, so no library has to watch them."""

    def __init__(self) -> None:
        self._written: dict[str, int | None] = {}

    def know(self, paths: Iterable[str], loaded: int) -> None:
        """These files were loaded at this time, in ms, or later: what was written since then counts as changed."""
        for path in paths:
            written = _written(path)
            self._written.setdefault(path, None if (written or 0) > loaded * 1_000_000 else written)

    def changed(self) -> list[str]:
        """The files that were written or removed since the last call."""
        found = [path for path, before in self._written.items() if _written(path) != before]
        self._written.update((path, _written(path)) for path in found)
        return found


def _written(path: str) -> int | None:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return None


async def reload(supervisor: Supervisor) -> None:
    """Run until cancelled. If the processes do not boot after a change, wait for the next change."""
    sources, began = Sources(), SYSTEM.now()
    while supervisor.options.reload:
        await SYSTEM.sleep(_LOOK)
        if changed := sources.changed():
            log.info("%s changed: replacing the worker processes", ", ".join(sorted(changed)[:3]))
            supervisor.replace()
        sources.know(supervisor.sources, began)
