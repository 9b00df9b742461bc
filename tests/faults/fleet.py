"""`toril run` in processes of its own, to be signalled and killed; and the ledger of what its handlers did."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.faults.nursery import ROOT, until

ALIVE = "tests.faults.alive_app:app"
SLOW = 60.0  # seconds that are more than enough on any machine


@dataclass(frozen=True, slots=True)
class Noted:
    """One line of the ledger."""

    word: str
    job: str
    pid: int
    at: float


class Fleet:
    """One `toril run`, in a process group of its own."""

    def __init__(
        self, url: str, folder: Path, *words: str, before: Sequence[str] = (), app: str = ALIVE, **settings: str
    ) -> None:
        self.log = folder / f"run-{len(list(folder.glob('run-*')))}.err"
        self.ledger = folder / "ledger"
        env = os.environ | {"TORIL_URL": url, "ALIVE_LEDGER": str(self.ledger), "TORIL_NO_HTTP": "1"}
        command = [
            *before,
            sys.executable,
            "-m",
            "toril",
            "run",
            app,
            "--log-level",
            "debug",
            *words,
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=env | settings, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    @property
    def children(self) -> list[int]:
        """The worker processes that are alive."""
        pid = self.process.pid
        try:
            return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            return []

    def until_up(self, processes: int = 1) -> "Fleet":
        """Until so many children have booted."""
        until(lambda: self.said("ready: ") or self.process.poll() is not None, "it boots", timeout=SLOW)
        assert self.process.poll() is None, self.log.read_text()
        assert len(self.children) >= processes
        return self

    def said(self, words: str, times: int = 1) -> bool:
        return self.log.read_text().count(words) >= times

    def noted(self, word: str | None = None) -> list[Noted]:
        text = self.ledger.read_text() if self.ledger.exists() else ""
        lines = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]  # the last may be half written
        found = [Noted(line[0], line[1], int(line[2]), float(line[3])) for line in lines]
        return [each for each in found if word is None or each.word == word]

    def of(self, job: str, word: str) -> list[Noted]:
        return [each for each in self.noted(word) if each.job == job]

    def until_noted(self, job: str, word: str, count: int = 1) -> Noted:
        until(lambda: len(self.of(job, word)) >= count, f"{job} has {count} times {word}", timeout=SLOW)
        return self.of(job, word)[count - 1]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def send_all(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def kill(self, pid: int) -> None:
        """One of its processes."""
        assert pid in self.children
        os.kill(pid, signal.SIGKILL)

    def ended(self) -> int:
        return self.process.wait(SLOW)

    def stop(self) -> int:
        self.send(signal.SIGTERM)
        return self.ended()


@contextmanager
def fleet(
    url: str, folder: Path, *words: str, before: Sequence[str] = (), app: str = ALIVE, **settings: str
) -> Iterator[Fleet]:
    """None of it outlives the block."""
    run = Fleet(url, folder, *words, before=before, app=app, **settings)
    try:
        yield run
    finally:
        with suppress(ProcessLookupError):
            run.send_all(signal.SIGKILL)
        run.process.wait()
