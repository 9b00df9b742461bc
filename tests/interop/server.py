"""A redis-server for the tests alone: a free port, a folder of its own, nothing kept."""

import shutil
import socket
import subprocess
import time
from pathlib import Path

DEADLINE = 20.0


class RedisServer:
    """Runs from `start` to `stop`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.host = "127.0.0.1"
        self.port = _free_port()

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}/0"

    def start(self) -> "RedisServer":
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is missing: run  make servers"
        command = [program, "--port", str(self.port), "--bind", self.host, "--dir", str(self._folder), "--save", ""]
        with Path(self._folder, "redis.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + DEADLINE
        while not self._answers():
            assert self._process.poll() is None, Path(self._folder, "redis.log").read_text("utf-8")
            assert time.monotonic() < end, "redis-server does not answer"
            time.sleep(0.01)
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
