"""A Redis server of the run's own, with its log on disk, which can be killed and started again."""

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from toril.errors import EngineUnusable
from toril.runtime.clock import SYSTEM
from toril.torture.plan import Blow, Strike

__all__ = ["OwnRedis"]

_PATIENCE = 300.0  # seconds until it answers: a busy machine reads a long log slowly
# A guard tells which process the server is, and ends it with its own input: so it does not outlive the driver.
_GUARDED = '"$@" & echo $!; read -r _; kill -9 0'


class OwnRedis:
    """`redis-server` on a free port of loopback, with an append-only file that is synced before each answer.

    One that is synced each second may answer before it writes, while its disk is slow with the last sync: kill -9 then
    loses what was acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self._guard: asyncio.subprocess.Process | None = None
        self._pid = 0
        self._struck = asyncio.Lock()

    async def start(self) -> None:
        binary = shutil.which("redis-server") or shutil.which("valkey-server")
        if binary is None:
            raise EngineUnusable("--url redis starts a server of its own, and there is no redis-server on the path")
        self.folder.mkdir(exist_ok=True)
        self._guard = guard = await asyncio.create_subprocess_exec(
            "sh", "-c", _GUARDED, "sh", binary, "--port", str(self.port), "--bind", "127.0.0.1",
            "--dir", str(self.folder), "--save", "", "--appendonly", "yes", "--appendfsync", "always",
            "--logfile", str(self.folder / "log"),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        assert guard.stdout is not None  # noqa: S101 - it is piped
        self._pid = int(await guard.stdout.readline())
        until = SYSTEM.monotonic() + _PATIENCE
        while await self.tell("PING") != "+PONG":
            if SYSTEM.monotonic() > until:
                raise EngineUnusable(f"redis-server does not answer; its log is {self.folder / 'log'}")
            await SYSTEM.sleep(0.02)

    async def tell(self, *words: str) -> str:
        """The first line of what it answers to a command; nothing if it is not there."""
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

    async def struck(self, blow: Blow, away: Callable[[], AbstractContextManager[None]] = nullcontext) -> bool:
        """For as long as the blow lasts; then it serves again. False: another has struck it, and it does not serve yet.
        To strike one after the other, each as soon as it serves again, would leave the fleet without a store for
        minutes where the server takes longer to read its log than there is between two blows. `away` is entered while
        it does not serve, and not for a blow that clients get over at once."""
        if self._struck.locked():
            return False
        async with self._struck:
            match blow.strike:
                case Strike.KILL_SERVER:
                    with away():
                        await self.kill()
                        await SYSTEM.sleep(blow.seconds)
                        await self.start()
                case Strike.FREEZE_SERVER:
                    with away():
                        self.signal(signal.SIGSTOP)
                        await SYSTEM.sleep(blow.seconds)
                        self.signal(signal.SIGCONT)
                case Strike.FLUSH_SCRIPTS:
                    await self.tell("SCRIPT", "FLUSH")
                case _:
                    await self.tell("CLIENT", "KILL", "TYPE", "normal")
        return True

    def signal(self, number: signal.Signals) -> None:
        """To the server alone: a guard that stands still guards nothing."""
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    async def kill(self) -> None:
        """Returns once it is gone, and its guard: their output ends when nobody has it open any more."""
        guard, self._guard, self._pid = self._guard, None, 0
        if guard is not None:
            with suppress(ProcessLookupError):
                os.killpg(guard.pid, signal.SIGKILL)
            await guard.communicate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
