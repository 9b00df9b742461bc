"""The queues of an app, by name."""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

from toril.errors import UnknownQueue, shown
from toril.model.names import near_name
from toril.queue import Queue

__all__ = ["Queues"]


class Queues(Mapping[str, Queue]):
    """The declared queues by name; asking for another is an error that names them."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}

    def __getitem__(self, name: str) -> Queue:
        if name not in self._queues:
            known = ", ".join(map(repr, self._queues)) or "none"
            raise UnknownQueue(f"there is no queue {shown(name)} in this app; it has {known}")
        return self._queues[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, name: object) -> bool:
        return name in self._queues

    def declare(self, queue: Queue) -> Queue:
        self._queues[queue.name] = queue
        return queue

    def spelling_of(self, name: str) -> Callable[[], None]:
        """Warns once, when it is called, if a queue with handlers is called almost so and this one has none. Names that
        differ in their numbers are meant to."""
        return cache(partial(self._check_spelling, name))

    def _check_spelling(self, name: str) -> None:
        if self._queues[name].handlers.names:
            return
        others = [each for each, queue in self._queues.items() if queue.handlers.names]
        if (near := near_name(name, others)) is not None:
            warnings.warn(
                f"a job for queue {name!r}, which has no handlers here; did you mean {near!r}? "
                f"If not, say that others work it: app.queue({name!r}, [])",
                stacklevel=_level_of_the_caller(),
            )


def _level_of_the_caller() -> int:
    """How far up the stack the program is that called Toril, for a warning that whoever asks gives. The blocking API
    has the call made in a thread of its own, on whose stack the program is not: then it is the place that warns."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - meant for this
    while frame.f_globals.get("__name__", "").startswith("toril."):
        level += 1
        if frame.f_back is None:
            return 1
        frame = frame.f_back
    return 1 if frame.f_globals.get("__name__", "").partition(".")[0] == "asyncio" else level
