"""The queues of an app, by name."""

from collections.abc import Iterator, Mapping

from toril.errors import UnknownQueue, shown
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
