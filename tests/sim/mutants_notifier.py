"""Bugs to plant in how processes on a file wake each other."""

import socket
from collections.abc import Callable
from typing import Any

from tests.sim.mutants import Mutant, instead, instead_of, nothing
from tests.sim.notifier_world import WaitingTask
from toril.engines.sqlite import socket_notifier
from toril.engines.sqlite.socket_notifier import SocketNotifier

__all__ = ["NOTIFIER_MUTANTS"]


def _drains_too_late(original: Callable[..., Any]) -> Callable[..., Any]:
    """What has arrived is dropped when the next one listens, though others have checked before."""

    def listen(self: SocketNotifier, topics: Any, heard: Any) -> None:
        original(self, topics, heard)
        for bound, _ in self._bound.values():
            socket_notifier._received(bound)

    return listen


def _one_at_most(original: Callable[..., Any]) -> Callable[..., Any]:
    def read(bound: socket.socket, heard: Callable[[list[str]], None]) -> None:
        original(bound, lambda names: heard(names[:1]))

    return read


def _first_listing(original: Callable[..., Any]) -> Callable[..., Any]:
    """The folder is read once."""

    def names(self: Any) -> Any:
        return original(self) if not self._seen else self._seen[2]

    return names


NOTIFIER_MUTANTS = [
    Mutant("registration_after_the_check", "a task checks the file before it listens", (
        (WaitingTask, "order", instead_of(("check", "listen"))),
    )),
    Mutant("sockets_kept_after_a_fork", "the child of a fork believes that it has the sockets of its parent", (
        (SocketNotifier, "abandon", instead(nothing)),
    )),
    Mutant("drained_too_late", "what has arrived is dropped although others have checked the file before", (
        (SocketNotifier, "listen", _drains_too_late),
    )),
    Mutant("one_name_of_many", "of several names that arrive together only the first is heard", (
        (socket_notifier, "_read", _one_at_most),
    )),
    Mutant("full_taken_for_told", "what did not fit into a full socket counts as heard", (
        (socket_notifier, "_may_lack_some", instead(lambda _: False)),
    )),
    Mutant("folder_read_once", "who comes later is not found", (
        (socket_notifier._Sender, "_names", _first_listing),
    )),
    Mutant("not_bound_anew", "a socket whose name was deleted is used on", (
        (socket_notifier, "_is_there", instead(lambda _: True)),
    )),
    Mutant("nobody_told", "a commit notifies this process only", (
        (SocketNotifier, "notify", instead(nothing)),
    )),
]  # fmt: skip
