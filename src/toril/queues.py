"""The queues of an app, by name."""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache, partial
from typing import Final

from toril.errors import UnknownQueue, shown
from toril.queue import Queue

__all__ = ["Queues"]

_LIKENESS: Final = 0.8  # of "emial" and "email"
_DIGITS: Final = re.compile(r"\d+")


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
        others = [each for each in others if _DIGITS.sub("", each) != _DIGITS.sub("", name)]
        for near in get_close_matches(name, others, n=1, cutoff=_LIKENESS):
            warnings.warn(
                f"a job for queue {name!r}, which has no handlers here; did you mean {near!r}? "
                f"If not, say that others work it: app.queue({name!r}, [])",
                stacklevel=2,
            )
