"""Timestamps of handlers, in memory that another process reads at the same time, without system calls. Each process has
its own file, named by its process id, with two numbers per job. The handler decides what they mean; the first is never
0, and is written last."""

import mmap
import os
from bisect import bisect_left
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

__all__ = ["Boards", "marker"]

Mark = Callable[[float, float], None]

_PAIR: Final = 16  # bytes: two doubles


def marker(folder: str, slots: int) -> Mark:
    """Return a function that writes one pair per call, from any thread of this process; pairs beyond that many are
    dropped."""
    path = Path(folder, str(os.getpid()))
    made = path.with_suffix(".new")
    with made.open("w+b") as file:
        file.truncate(slots * _PAIR)
        view = memoryview(mmap.mmap(file.fileno(), slots * _PAIR)).cast("d")
    made.rename(path)  # so that no reader sees an unfinished file
    places, end = count(step=2), slots * 2

    def mark(first: float, second: float) -> None:
        at = next(places)  # a place of its own for each caller, without a lock
        if at < end:
            view[at + 1] = second
            view[at] = first

    return mark


class Boards:
    """Reads what the processes have written into a folder."""

    def __init__(self, folder: Path, slots: int) -> None:
        self._folder = folder
        self._slots = slots
        self._views: dict[int, memoryview[float]] = {}

    def count(self) -> int:
        """How many jobs have been noted."""
        return sum(self._filled(view) for view in self._found().values())

    def pairs(self) -> list[tuple[float, float]]:
        """All pairs, in the order of their first numbers."""
        written = []
        for view in self._found().values():
            numbers = view.tolist()
            written += [pair for pair in zip(numbers[::2], numbers[1::2], strict=True) if pair[0]]
        return sorted(written)

    def processes(self) -> list[int]:
        """The processes that have run a job."""
        return [pid for pid, view in self._found().items() if view[0]]

    def _found(self) -> dict[int, "memoryview[float]"]:
        for path in self._folder.iterdir():
            if path.name.isdecimal() and int(path.name) not in self._views:
                with path.open("rb") as file:
                    mapped = mmap.mmap(file.fileno(), self._slots * _PAIR, prot=mmap.PROT_READ)
                self._views[int(path.name)] = memoryview(mapped).cast("d")
        return self._views

    def _filled(self, view: "memoryview[float]") -> int:
        """How many places are filled. They are filled in order, except for those that threads are writing at the
        moment."""
        return bisect_left(range(self._slots), 1, key=lambda place: int(view[place * 2] == 0))
