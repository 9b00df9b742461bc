"""Programs as a user starts them: a server on a free port, a worker beside it, and what both print."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx

__all__ = ["EXAMPLES", "Program", "answer", "started", "until"]

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT = 180.0  # seconds: a machine may be slow, and no test is to fail for that

T = TypeVar("T")


class Program:
    """One that runs."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def output(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def said(self, pattern: str) -> str:
        """What the pattern's group has found in the output, as soon as it is there."""

        def found() -> str | None:
            match = re.search(pattern, self.output)
            if match is None and self._process.poll() is not None:
                raise AssertionError(f"it has ended: {self.output}")
            return None if match is None else match[1]

        return until(found, lambda: self.output)

    def wait(self) -> int:
        """See it end by itself."""
        return self._process.wait(LIMIT)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to end, and see it do so, with all that it has started."""
        if self._process.returncode is not None:
            return self._process.returncode
        self._process.send_signal(number)
        try:
            return self._process.wait(LIMIT)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@contextmanager
def started(folder: Path, log: Path, *words: str, **env: str) -> Iterator[Program]:
    """A program of this environment, run in a folder; it has ended when this has."""
    command = [str(Path(sys.executable).with_name(words[0])), *words[1:]]
    whole = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"} | env
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=whole, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    program = Program(process, log)
    try:
        yield program
    finally:
        program.end()


def until(look: Callable[[], T | None], otherwise: Callable[[], Any] = lambda: "it did not happen") -> T:
    """What `look` finds, once it finds something."""
    end = time.monotonic() + LIMIT
    while (found := look()) is None:
        assert time.monotonic() < end, otherwise()
        time.sleep(0.2)
    return found


def answer(method: str, url: str, **more: Any) -> httpx.Response:
    """What a server says, however long it takes."""
    return httpx.request(method, url, timeout=LIMIT, **more)
