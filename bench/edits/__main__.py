"""`python -m bench.edits [SYSTEM …] [--edits NAME …]`: kills a process whose workflow sleeps, edits the code, and tells
what becomes of the workflow, with Toril on SQLite and with DBOS and Absurd on a PostgreSQL that it starts."""

import argparse
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tests.postgres import Postgres

from bench.edits.program import EDITS, NAP
from bench.installing import ROOT, Unusable, interpreter, requirements
from toril import __version__

PATIENCE = 20.0  # seconds until a workflow counts as not gone on with
SYSTEMS = {"toril": None, "dbos": "dbos", "absurd": "absurd-sdk"}  # and whose version is told


@dataclass
class Process:
    """One process of a system, and what it has said."""

    process: "subprocess.Popen[str]"
    lines: "queue.SimpleQueue[str]"
    said: list[str]

    @classmethod
    def start(cls, python: str, *words: str) -> "Process":
        process = subprocess.Popen(
            [python, "-m", "bench.edits.program", *words],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
        made = cls(process, queue.SimpleQueue(), [])
        threading.Thread(target=made._read, daemon=True).start()
        return made

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put("")

    def until(self, *words: str, seconds: float) -> str | None:
        """The first line that begins with one of these; None if it does not come, or the process ends before."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                line = self.lines.get(timeout=left)
            except queue.Empty:
                return None
            if not line:
                return None
            self.said.append(line)
            if line.startswith(words):
                return line
        return None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def ran(self) -> str:
        return ", ".join(line.removeprefix("ran ") for line in self.said if line.startswith("ran "))


def played(system: str, edit: str, url: str, python: str) -> str:
    """One edit, in words."""
    before = "branches-before" if edit == "branches" else "none"
    first = Process.start(python, system, url, before)
    try:
        line = first.until("workflow", seconds=60)
        if line is None:
            return "could not be started"
        last = "ran part-0" if edit == "branches" else "ran b"
        refused = first.until(last, "error", seconds=30)
        if refused is None or refused.startswith("error"):
            return f"refused by the first run: {(refused or '')[6:200]}"
        refused = first.until("error", seconds=NAP / 2)  # it records that, and sleeps
        if refused is not None:
            return f"refused by the first run: {refused[6:200]}"
    finally:
        first.kill()
    second = Process.start(python, system, url, edit, line.removeprefix("workflow "))
    try:
        ended = second.until("result", "error", seconds=PATIENCE)
        told = second.until("log", seconds=5) if system == "toril" else None
        ran = f"; ran {second.ran}" if second.ran else ""
        log = f"; {told[4:]}" if told and told[4:] else ""
        return f"{ended[:300] if ended else f'nothing in {PATIENCE:g} s'}{ran}{log}"
    finally:
        second.kill()


def version(system: str) -> str:
    library = SYSTEMS[system]
    if library is None:
        return f"Toril {__version__}"
    pins = dict(pin.split("==") for pin in requirements(system).read_text("utf-8").split())
    return f"{library} {pins[library]}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.edits", description=__doc__)
    parser.add_argument("systems", nargs="*", default=list(SYSTEMS), choices=[*SYSTEMS, []])
    parser.add_argument("--edits", nargs="*", default=list(EDITS), choices=list(EDITS))
    given = parser.parse_args()
    postgres = Postgres().start() if set(given.systems) - {"toril"} else None
    try:
        for system in given.systems:
            print(f"## {version(system)}\n")
            try:
                python = sys.executable if system == "toril" else interpreter(system)
            except Unusable as error:
                print(error)
                continue
            for edit in given.edits:
                with tempfile.TemporaryDirectory() as folder:
                    file = f"sqlite:///{Path(folder) / 'jobs.db'}"
                    url = file if system == "toril" or postgres is None else postgres.database()
                    print(f"- {EDITS[edit]}: {played(system, edit, url, python)}", flush=True)
            print()
    finally:
        if postgres is not None:
            postgres.remove()


if __name__ == "__main__":
    main()
