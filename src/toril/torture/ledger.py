"""What processes write down outside of the store: a line a fact, each in one write at the end of a file."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from toril.runtime.clock import SYSTEM

__all__ = ["Ledger", "Line", "lines"]


@dataclass(frozen=True, slots=True)
class Line:
    """`at` is by the monotonic clock, which the processes of a machine share."""

    word: str
    at: float
    pid: int
    facts: tuple[str, ...]


class Ledger:
    """A file to which this process adds. A process that dies leaves no half of a line."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, word: str, *facts: object) -> None:
        text = " ".join([word, f"{SYSTEM.monotonic():.4f}", str(os.getpid()), *map(str, facts)])
        os.write(self._handle, f"{text}\n".encode())

    def close(self) -> None:
        os.close(self._handle)


def lines(folder: Path, pattern: str = "*.log") -> Iterator[Line]:
    """All that was noted, file by file."""
    for path in sorted(folder.glob(pattern)):
        for text in path.read_text().splitlines():
            word, at, pid, *facts = text.split(" ")
            yield Line(word, float(at), int(pid), tuple(facts))
