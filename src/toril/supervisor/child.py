"""One worker process under the supervisor, and how it died."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toril.runtime.stop_requests import Urgency
from toril.worker.lease_table import LeaseEntry, LeaseTable, new_memory
from toril.worker.messages import Decoder, Message, encoded
from toril.worker.supervised import SIGNALS

__all__ = ["BootFailure", "ChildProcess", "OomCounter", "exit_text"]

_STACKS: Final = 64_000  # bytes of a stack to show
_CHUNK: Final = 1 << 16
_UNREAD: Final = 1 << 22  # bytes of messages that may wait for a child


@dataclass(frozen=True, slots=True)
class BootFailure:
    """A child could not boot: the code to exit with, and the reason; `usage` says that the command line is wrong."""

    code: int
    text: str
    usage: bool = False


class ChildProcess:
    """A worker process, from start to end."""

    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        here, there = socket.socketpair()
        self._memory, self._stacks = new_memory(), new_memory()
        passed = (there.fileno(), self._memory, self._stacks)
        with there, _blocked():
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [*command, ",".join(map(str, passed))], pass_fds=passed, stdin=subprocess.DEVNULL, env=os.environ | env
            )
        self._socket = here
        self._writer: asyncio.StreamWriter | None = None
        self.table = LeaseTable(self._memory)
        self.pid = self._process.pid
        self.hello: dict[str, Any] | None = None
        self.ready = False
        self.pollers: list[dict[str, Any]] = []  # the state of each poller
        self.failed: BootFailure | None = None
        self.draining = False  # it was told to end, or has said that it leaves for good
        self.stopping = False  # it has begun to stop, whoever told it to
        self.quiet = False  # it claims no more jobs
        self.leaves = False  # it leaves for good
        self.forced = False  # it did not end in time
        self.killed: str | None = None  # why it was killed while it should have been working
        self.died: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._descriptor = _watchable(self.pid)
        # Not the end of the connection, which a process forked by a handler may keep open.
        if self._descriptor is None:
            threading.Thread(target=self._wait, args=(self.died.get_loop(),), daemon=True).start()
        else:
            self.died.get_loop().add_reader(self._descriptor, self._gone)

    def _gone(self) -> None:
        """It has ended, so waiting for it returns at once."""
        if self._descriptor is not None:
            self.died.get_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
            self._dead(self._process.wait())

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody is waiting
            loop.call_soon_threadsafe(self._dead, code)

    def _dead(self, code: int) -> None:
        if not self.died.done():
            self.died.set_result(code)

    async def listen(self) -> AsyncIterator[Message]:
        """Its messages, until it has ended."""
        reader, self._writer = await asyncio.open_connection(sock=self._socket)
        decoder = Decoder()
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                for message in decoder.feed(data):
                    yield message

    def say(self, **message: Any) -> None:
        """Send it a message. This never waits, whatever state it is in; if a frozen child does not read, messages are
        dropped once there are too many."""
        writer = self._writer
        if writer is not None and not writer.is_closing() and writer.transport.get_write_buffer_size() < _UNREAD:
            writer.write(encoded(message))

    @property
    def begun(self) -> bool:
        """Whether it has loaded the app. From then on it may run jobs, and ends in an orderly way when told to."""
        return self.hello is not None or bool(self.table.ticked)

    @property
    def worker(self) -> str | None:
        """The name of its worker, once it has told us. The host and the process id are not enough: containers may share
        both, and a restarted one may have those of its predecessor."""
        return None if self.hello is None else self.hello["worker"]

    def held(self) -> list[LeaseEntry]:
        return self.table.held()

    def terminate(self, urgency: Urgency = Urgency.DRAIN) -> None:
        """Make it stop. It reads from the table how urgently, because signals may reach it in other ways too."""
        self.draining = True
        if not self.died.done():
            self.table.stop(urgency)
        self._signal(signal.SIGTERM)

    def force(self) -> None:
        """Kill it: its time to stop is over."""
        self.forced = True
        self._signal(signal.SIGKILL)

    def kill(self, why: str) -> None:
        self.killed = why
        self._signal(signal.SIGKILL)

    def ask_for_stacks(self) -> None:
        """Make it write the stacks of its threads, which works even while the interpreter lock is held."""
        if not self.died.done():
            os.ftruncate(self._stacks, 0)  # discard what it wrote before
            os.lseek(self._stacks, 0, os.SEEK_SET)  # it shares our position in the file
        self._signal(signal.SIGUSR1)

    def stacks(self) -> str:
        return os.pread(self._stacks, _STACKS, 0).decode(errors="replace")

    def rss(self) -> int | None:
        """Its memory in bytes, if the system tells."""
        try:
            with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:  # noqa: PTH123 - not a path of ours
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return None

    def close(self) -> None:
        self.table.close()
        if self._writer is not None:
            self._writer.close()
        else:
            self._socket.close()
        os.close(self._memory)
        os.close(self._stacks)

    def _signal(self, number: signal.Signals) -> None:
        if not self.died.done():
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


@contextlib.contextmanager
def _blocked() -> Iterator[None]:
    """Start a child with these signals blocked, until it can handle them: a signal to the whole group would kill it
    while Python starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _watchable(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends, if the system has such a thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def exit_text(code: int, *, out_of_memory: bool = False) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"its process exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"its process was killed by {name}" + (": the memory limit was reached" if out_of_memory else "")


class OomCounter:
    """The out-of-memory counter of this process's control group, if there is one."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or _events_file()
        self._seen = self._read()

    def grew(self) -> bool:
        """Whether something was killed since the last call."""
        before, self._seen = self._seen, self._read()
        return self._seen > before

    def _read(self) -> int:
        try:
            lines = self._file.read_text("ascii").split("\n") if self._file is not None else []
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _events_file() -> Path | None:
    try:
        groups = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return None
    own = next((line.partition("::")[2] for line in groups if line.startswith("0::")), None)
    return None if own is None else Path("/sys/fs/cgroup") / own.lstrip("/") / "memory.events"
