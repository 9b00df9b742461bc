"""A proxy, a Redis server and a disk that can fail."""

import asyncio
import os
import shutil
import signal
import socket
import struct
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from toril.errors import EngineUnusable
from toril.runtime.clock import SYSTEM
from toril.torture.plan import FaultType, PlannedFault

__all__ = ["Disk", "OwnRedis", "Proxy"]

_MEGABYTES = 256


class Disk:
    """ext4 on a loop device, in memory so that copying it takes milliseconds."""

    def __init__(self) -> None:
        shared = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
        self.folder = Path(tempfile.mkdtemp(prefix="toril-torture-", dir=shared if shared.is_dir() else None))
        self.place = self.folder / "disk"
        self._image = self.folder / "disk.img"
        self._cuts = 0

    async def start(self) -> None:
        with self._image.open("wb") as file:
            file.truncate(_MEGABYTES << 20)
        await _made("mkfs.ext4", "-q", "-F", str(self._image))
        await self._mount(self._image, self.place)

    async def _mount(self, image: Path, place: Path) -> None:
        place.mkdir()  # noqa: ASYNC240 - in memory
        await _made("mount", "-o", "loop", str(image), str(place))

    async def fill(self) -> None:
        """Leave no free space."""
        await asyncio.get_running_loop().run_in_executor(None, self._fill)

    def _fill(self) -> None:
        with suppress(OSError), (self.place / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * (1 << 20))

    def empty(self) -> None:
        (self.place / "filler").unlink(missing_ok=True)

    async def cut(self) -> Path:
        """An image of what a disk has that lost its power now. Whoever writes to it has to stand still."""
        self._cuts += 1
        copy = self.folder / f"cut-{self._cuts}.img"
        await _made("cp", "--sparse=always", str(self._image), str(copy))
        return copy

    async def opened(self, image: Path) -> Path:
        """A folder in which the files of an image can be read."""
        place = image.with_suffix("")
        await self._mount(image, place)
        return place

    async def discard(self, place: Path) -> None:
        """Delete an image."""
        await _made("umount", "--lazy", str(place))
        place.with_suffix(".img").unlink()

    async def stop(self) -> None:
        for place in [path for path in self.folder.iterdir() if path.is_mount()]:
            await _made("umount", "--lazy", str(place))
        shutil.rmtree(self.folder, ignore_errors=True)


async def _made(*command: str) -> None:
    if shutil.which(command[0]) is None or os.name != "posix":
        raise EngineUnusable(f"--own-disk needs {command[0]}, which is not installed")
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, complaint = await process.communicate()
    except asyncio.CancelledError:
        await process.wait()  # otherwise nobody would know what it is about to mount
        raise
    if process.returncode:
        raise EngineUnusable(f"--own-disk needs root: {command[0]} says {complaint.decode().strip()!r}")


_CHUNK = 65_536


class Proxy:
    """Forwards bytes. Swallowed bytes leave a hole in the stream, so such a connection is reset when the fault is over:
    no byte is ever wrong, some never arrive."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.delay = 0.0  # seconds, each way
        self.silent = False  # nothing arrives, in either direction
        self.deaf = False  # the server's answers do not arrive
        self._replies_to_lose = 0  # how many answers to lose, each with its connection
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._holed: set[asyncio.StreamWriter] = set()
        self._restored = asyncio.Event()

    @property
    def port(self) -> int:
        if self._server is None:
            raise RuntimeError("the proxy has not been started")
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.delay = 0.0
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection."""
        for end in list(self._ends):
            _reset(end)

    def cut_replies(self, count: int) -> None:
        """Lose the next answers: the server has acted, but nobody hears of it."""
        self._replies_to_lose += count

    async def inject(self, fault: PlannedFault) -> None:
        """Apply a fault while it lasts; then restore the connections. The first fault to end ends all."""
        match fault.kind:
            case FaultType.CUT:
                self.cut()
            case FaultType.CUT_REPLIES:
                self.cut_replies(1 + int(fault.target * 5))
            case FaultType.DELAY:
                self.delay = 0.05 + fault.target * 0.3
            case FaultType.BLACKHOLE:
                self.silent = True
            case _:
                self.deaf = True
        if fault.seconds:
            self._restored.clear()
            try:
                async with asyncio.timeout(fault.seconds):
                    await self._restored.wait()
            except TimeoutError:
                self.restore()

    def restore(self) -> None:
        self.delay, self.silent, self.deaf, self._replies_to_lose = 0.0, False, False, 0
        for end in list(self._holed):
            _reset(end)
        self._holed.clear()
        self._restored.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        ends = {writer}
        self._ends.add(writer)
        try:
            there, out = await asyncio.open_connection(*self.target)
            ends.add(out)
            self._ends.add(out)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pass_on(reader, out, ends, answers=False))
                ways.create_task(self._pass_on(there, writer, ends, answers=True))
        except OSError:
            pass  # the server is away, and so is the connection
        except ExceptionGroup as group:
            if group.split(OSError)[1] is not None:
                raise
        finally:
            self._ends -= ends
            self._holed -= ends
            for end in ends:
                _reset(end)

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        ends: set[asyncio.StreamWriter],
        *,
        answers: bool,
    ) -> None:
        while data := await source.read(_CHUNK):
            if answers and self._replies_to_lose:
                self._replies_to_lose -= 1
                break
            if self.silent or (answers and self.deaf):
                self._holed |= ends
                continue
            if ends & self._holed:
                continue
            if self.delay:
                await SYSTEM.sleep(self.delay)
            sink.write(data)
            await sink.drain()
        for end in ends:
            _reset(end)


def _reset(end: asyncio.StreamWriter) -> None:
    """Reset the connection, like a host that does not know it."""
    if not end.transport.is_closing():
        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.transport.abort()


_PATIENCE = 300.0  # seconds until it answers; a busy machine reads a long log slowly
# A guard prints the server's process id, and kills the server when its stdin closes, so it cannot outlive the driver.
_GUARDED = '"$@" & echo $!; read -r _; kill -9 0'


class OwnRedis:
    """`redis-server` on a free port of loopback, with an append-only file that is synced before each answer. With a
    sync every second, the server may answer before it writes, while its disk is slow with the previous sync: kill -9
    then loses acknowledged jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self._guard: asyncio.subprocess.Process | None = None
        self._pid = 0
        self._failing = asyncio.Lock()

    async def start(self) -> None:
        binary = shutil.which("redis-server") or shutil.which("valkey-server")
        if binary is None:
            raise EngineUnusable("--url redis starts its own server, but there is no redis-server on the PATH")
        self.folder.mkdir(exist_ok=True)
        self._guard = guard = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            _GUARDED,
            "sh",
            binary,
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self.folder),
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--logfile",
            str(self.folder / "log"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        assert guard.stdout is not None  # noqa: S101 - it is piped
        self._pid = int(await guard.stdout.readline())
        until = SYSTEM.monotonic() + _PATIENCE
        while await self.tell("PING") != "+PONG":
            if SYSTEM.monotonic() > until:
                raise EngineUnusable(f"redis-server does not answer; its log is {self.folder / 'log'}")
            await SYSTEM.sleep(0.02)

    async def tell(self, *words: str) -> str:
        """The first line of its answer to a command; empty if it is away."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return ""
        try:
            writer.write((" ".join(words) + "\r\n").encode())
            return (await asyncio.wait_for(reader.readline(), 5)).decode().strip()
        except (OSError, TimeoutError):
            return ""
        finally:
            writer.transport.abort()

    async def inject(self, fault: PlannedFault, away: Callable[[], AbstractContextManager[None]] = nullcontext) -> bool:
        """Apply a fault while it lasts; then the server serves again. False: another fault is not over, and it does not
        serve yet. If each fault followed as soon as the server serves again, the fleet would be without a store for
        minutes, if the server takes longer to read its log than the time between two faults. `away` is entered while it
        does not serve, but not for a fault that clients recover from at once."""
        if self._failing.locked():
            return False
        async with self._failing:
            match fault.kind:
                case FaultType.KILL_SERVER:
                    with away():
                        await self.kill()
                        await SYSTEM.sleep(fault.seconds)
                        await self.start()
                case FaultType.FREEZE_SERVER:
                    with away():
                        self.signal(signal.SIGSTOP)
                        await SYSTEM.sleep(fault.seconds)
                        self.signal(signal.SIGCONT)
                case FaultType.FLUSH_SCRIPTS:
                    await self.tell("SCRIPT", "FLUSH")
                case _:
                    await self.tell("CLIENT", "KILL", "TYPE", "normal")
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server only: a stopped guard would not guard."""
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    async def kill(self) -> None:
        """Kill it. Returns once it and its guard have ended, which closes their output."""
        guard, self._guard, self._pid = self._guard, None, 0
        if guard is not None:
            with suppress(ProcessLookupError):
                os.killpg(guard.pid, signal.SIGKILL)
            await guard.communicate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
