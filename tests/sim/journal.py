"""The simulator's own log: what was asked, what was answered, what ran. The checker believes it and the store."""

import hashlib
import re
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Journal", "Violation"]

# Where the code lies on a disk, and in which lines, is no part of what happened.
_TRACEBACK: Final = re.compile(r"""traceback=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken: which row of the list of invariants, and what was seen."""

    row: str
    text: str

    def __str__(self) -> str:
        return f"{self.row}: {self.text}"


@dataclass(slots=True)
class Journal:
    """One simulation's log. A nonce names one add of one job; a run is a nonce and a fence."""

    attempted: dict[str, None] = field(default_factory=dict)
    acknowledged: dict[str, str] = field(default_factory=dict)
    started: Counter[str] = field(default_factory=Counter)
    ended: set[tuple[str, int]] = field(default_factory=set)
    tally: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    lines: list[str] | None = None
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=40))
    _digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def note(self, line: str) -> None:
        """One line of the trace. Two runs of one seed have the same lines, wherever the code lies."""
        if "traceback=" in line:
            line = _TRACEBACK.sub("traceback=…", line)
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        self.tail.append(line)
        if self.lines is not None:
            self.lines.append(line)

    def violated(self, row: str, text: str) -> None:
        self.note(f"VIOLATED {row} {text}")
        self.violations.append(Violation(row, text))

    @property
    def hash(self) -> str:
        return self._digest.hexdigest()

    def began(self, nonce: str, fence: int) -> None:
        """A handler starts."""
        self.note(f"  run {nonce} fence {fence}")
        self.started[nonce] += 1

    def over(self, nonce: str, fence: int) -> None:
        """A handler has returned or raised."""
        self.ended.add((nonce, fence))
