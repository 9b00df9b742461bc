"""`SocketNotifier`: processes that share a file wake each other.

Each process that waits binds a datagram socket in a folder beside the file; one that commits sends to all of them.
A notification that gets lost only costs time: a process that waits also checks the file now and then.
"""

import asyncio
import os
import socket
import stat
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from toril.engines.sql.driver import Topic
from toril.runtime.clock import Clock

__all__ = ["SocketNotifier", "has_sockets"]

_LONGEST_PATH: Final = 100  # bytes of a socket's path; the kernel's limit is 104 to 108
_LARGEST: Final = 4096  # bytes of a datagram; what does not fit is replaced by "anything may have changed"
_SETTLED: Final = 0.1  # seconds after which a change of the folder certainly shows in its modification time
_MANY: Final = 4  # datagrams in a socket after which others may have found it full; Linux allows ten by default
_TRIES: Final = 3  # to create the folder and a socket in it, while another process may be removing it
_BY_HANDLE: Final = Path("/proc/self/fd")  # where long paths have short names

_all: "weakref.WeakSet[SocketNotifier]" = weakref.WeakSet()


def has_sockets() -> bool:
    """Whether this system has such sockets."""
    return hasattr(socket, "AF_UNIX") and os.name == "posix"


class SocketNotifier:
    """A process's sockets. The thread that commits calls `notify`; the event loops that wait call the rest."""

    def __init__(self, file: Path, permissions: int, clock: Clock) -> None:
        self._folder: Final = Path(os.path.realpath(file) + "-wake")
        self._mode: Final = permissions & 0o666
        self._clock = clock
        self._lock = threading.Lock()
        self._bound: dict[Topic, tuple[socket.socket, str]] = {}
        self._listening: dict[tuple[Topic, asyncio.AbstractEventLoop], int] = {}
        self._paths = _Paths(self._folder)
        self._sender: _Sender | None = None
        _all.add(self)

    def listen(self, topics: Iterable[Topic], heard: Callable[[list[str]], None]) -> None:
        """Call `heard` on the running loop with the names that others notify, or without any if it may be any. Earlier
        notifications are dropped, so check the file after this call."""
        loop = asyncio.get_running_loop()
        with self._lock:
            for topic in topics:
                if (topic, loop) not in self._listening:
                    # Without a socket, the regular check of the file must suffice.
                    with suppress(OSError, NotImplementedError):
                        self._join(topic, loop, heard)
                self._listening[topic, loop] = self._listening.get((topic, loop), 0) + 1

    def forget(self, topics: Iterable[Topic], loop: asyncio.AbstractEventLoop) -> None:
        """Undo one `listen`."""
        with self._lock:
            for topic in topics:
                count = self._listening.pop((topic, loop), 0) - 1
                if count > 0:
                    self._listening[topic, loop] = count
                elif topic in self._bound:
                    _leave(loop, self._bound[topic][0])

    def hears(self) -> bool:
        with self._lock:
            return all(topic in self._bound for topic, _ in self._listening)

    def notify(self, names: Iterable[str]) -> None:
        """Notify the other processes that wait for these names."""
        if self._sender is None:
            self._sender = _Sender(self._folder, self._clock)
        by_topic: dict[Topic, list[str]] = {}
        for name in names:
            by_topic.setdefault(Topic.of(name), []).append(name)
        for topic, each in by_topic.items():
            own = self._bound.get(topic)
            self._sender.send(topic, "\n".join(each).encode(), None if own is None else own[1])

    def close(self) -> None:
        with self._lock:
            for topic in list(self._bound):
                self._unbind(topic)
            self._listening.clear()
            self._paths.close()
            sender, self._sender = self._sender, None
            if sender is not None:
                sender.close()
            with suppress(OSError):
                self._folder.rmdir()  # unless there are others

    def abandon(self) -> None:
        """This is the child of a fork: the sockets belong to its parent."""
        for bound, _ in self._bound.values():
            bound.close()
        self._bound.clear()
        self._listening.clear()
        self._paths.close()
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()

    def _join(self, topic: Topic, loop: asyncio.AbstractEventLoop, heard: Callable[[list[str]], None]) -> None:
        known = self._bound.get(topic)
        if known is not None and not _is_there(self._folder / known[1]):  # somebody has deleted it
            self._unbind(topic)
        if topic not in self._bound:
            self._bind(topic)
        bound = self._bound[topic][0]
        if all(each is not topic for each, _ in self._listening):
            _received(bound)
        loop.add_reader(bound, _read, bound, heard)

    def _bind(self, topic: Topic) -> None:
        for _ in range(_TRIES):
            name = f"{self._clock.unique()[:12]}{topic.value}"
            unready = self._folder / f"{name}.new"
            bound = _datagrams()
            try:
                if not self._folder.exists():
                    self._folder.mkdir(0o700)
                    self._folder.chmod(self._mode | (self._mode & 0o444) >> 2)  # who may read the file may enter
                # Under its own name it can be found only once the kernel knows it, or it would be removed as dead.
                bound.bind(self._paths.of(unready.name))
                unready.chmod(self._mode)
                unready.rename(self._folder / name)
            except (FileNotFoundError, FileExistsError):
                bound.close()
                self._paths.close()
            except BaseException:
                bound.close()
                with suppress(OSError):
                    unready.unlink()
                raise
            else:
                self._bound[topic] = (bound, name)
                return
        raise OSError(f"no free name for a socket in {self._folder}")

    def _unbind(self, topic: Topic) -> None:
        bound, name = self._bound.pop(topic)
        for each, loop in self._listening:
            if each is topic:
                _leave(loop, bound)
        with suppress(OSError):
            (self._folder / name).unlink()
        bound.close()


class _Paths:
    """The paths of sockets in a folder, through its descriptor if they are too long for the kernel."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handle: int | None = None

    def of(self, name: str) -> str:
        path = str(self._folder / name)
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            return path
        if self._handle is None:
            self._handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return str(_BY_HANDLE / str(self._handle) / name)

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


class _Sender:
    """Sends to all sockets in the folder. Used by the thread that commits, and by no other."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = str(folder)
        self._clock = clock
        self._paths = _Paths(folder)
        self._socket = _datagrams()
        self._seen: tuple[int, float, list[str]] | None = None  # modification time, when it was read, contents

    def send(self, topic: Topic, names: bytes, own: str | None) -> None:
        for name in self._names():
            if name.endswith(topic.value) and name != own:
                self._send(name, names if len(names) <= _LARGEST else b"")

    def close(self) -> None:
        self._socket.close()
        self._paths.close()

    def _names(self) -> list[str]:
        """The sockets that exist now. The folder is read only when it has changed."""
        try:
            changed = os.stat(self._folder).st_mtime_ns  # noqa: PTH116 - each commit does this
            seen = self._seen
            # If it was read soon after a change, there may have been another change with the same time.
            if seen is None or seen[0] != changed or seen[1] - changed / 1e9 < _SETTLED:
                seen = self._seen = (
                    changed,
                    self._clock.now() / 1000,
                    [each.name for each in os.scandir(self._folder)],
                )
        except OSError:  # nobody is waiting, or ever was
            self._seen = None
            self._paths.close()
            return []
        return seen[2]

    def _send(self, name: str, names: bytes) -> None:
        try:
            self._socket.sendto(names, self._paths.of(name))
        except ConnectionRefusedError:  # its process was killed
            self._remove(name)
        except (BlockingIOError, FileNotFoundError):
            # It is full, so its process will wake up anyway; or it is gone. But perhaps this sender has too much under
            # way to others who do not read, or knows the folder by a descriptor from before it was made anew.
            self.close()
            self._socket, self._seen = _datagrams(), None
            with suppress(OSError):
                self._socket.sendto(names, self._paths.of(name))
        except OSError:  # we have no permission, or the system has no memory
            return

    def _remove(self, name: str) -> None:
        path = Path(self._folder, name)
        with suppress(OSError):
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()


def _datagrams() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.settimeout(0)
    return made


def _is_there(path: Path) -> bool:
    return path.exists()


def _leave(loop: asyncio.AbstractEventLoop, bound: socket.socket) -> None:
    with suppress(RuntimeError, NotImplementedError, ValueError):  # the loop is closed
        loop.remove_reader(bound)


def _read(bound: socket.socket, heard: Callable[[list[str]], None]) -> None:
    datagrams = _received(bound)
    if datagrams:
        names = b"\n".join(datagrams).decode(errors="replace").split("\n")
        heard([] if _may_lack_some(datagrams) else list(dict.fromkeys(names)))


def _may_lack_some(datagrams: list[bytes]) -> bool:
    """Whether other names may have been sent too: some did not fit, or the socket was nearly full and others found no
    room in it."""
    return b"" in datagrams or len(datagrams) >= _MANY or sum(map(len, datagrams)) >= _LARGEST // 4


def _received(bound: socket.socket) -> list[bytes]:
    """Everything that has arrived."""
    found = []
    with suppress(OSError):
        while True:
            found.append(bound.recv(_LARGEST))
    return found


def _after_in_child() -> None:
    for each in list(_all):
        each.abandon()


if has_sockets():
    os.register_at_fork(after_in_child=_after_in_child)
