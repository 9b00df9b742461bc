"""Closes connections before a process forks.

SQLite keeps a process's locks in its own memory, which a fork copies, while the kernel gives the child none of them. A
child that used the inherited connection would believe that it holds locks: the parent could remove the log, and commits
would be lost. So nothing is inherited; parent and child open the file again when they need it.
"""

import contextlib
import os
import threading
import weakref

from toril.engines.sql.driver import ConnectionHolder

__all__ = ["watch"]


_holders: "weakref.WeakSet[ConnectionHolder]" = weakref.WeakSet()
_forking = threading.Lock()
_stopped: list[ConnectionHolder] = []


def watch(holder: ConnectionHolder) -> None:
    """Close this holder's connection before each fork."""
    with _forking:
        _holders.add(holder)


def _before() -> None:
    _forking.acquire()
    for holder in list(_holders):
        holder.turn.acquire()
        _stopped.append(holder)
        with contextlib.suppress(Exception):
            holder.let_go()


def _after_in_parent() -> None:
    while _stopped:
        _stopped.pop().turn.release()
    _forking.release()


def _after_in_child() -> None:
    for holder in _stopped:
        holder.abandon()
    _after_in_parent()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
