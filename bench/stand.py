"""The stand that everything is measured on: a Redis of its own, adapters as processes, and what all of them use up."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.servers import RedisServer

from bench.installing import KEPT, ROOT, Unusable, command, library
from bench.roster import Peer
from toril.cli.bench.timestamps import Boards

__all__ = ["Stand", "Usage", "Worker", "server_commands"]

_LOOK = 0.01  # seconds between looks at the boards
_QUIET = 0.2  # seconds in which a server uses next to nothing
_SETTLED = 10.0  # seconds at most
_LEFT = 60.0
_SCRIPTS = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall")

End = Literal["at once", "by itself"]


@dataclass(frozen=True, slots=True)
class Usage:
    """What has been used up so far, in seconds and commands."""

    worker: float
    redis: float
    commands: int
    scripts: int


class Stand:
    """A store to measure on. `url` names it for the adapters."""

    def __init__(self, *, persistence: Sequence[str] = ("--save", "", "--appendonly", "no")) -> None:
        self.server = RedisServer(*persistence).start()
        self.held: tuple[str, int] | None = None  # the backlog that lies there, if one was made
        KEPT.mkdir(parents=True, exist_ok=True)
        self._files = Path(tempfile.mkdtemp(prefix="files-", dir=KEPT))  # on the disk of the clone: /tmp may be memory

    def close(self) -> None:
        self.server.stop()
        shutil.rmtree(self._files, ignore_errors=True)

    def empty(self, peer: Peer) -> str:
        """The URL of a store with nothing in it."""
        self.held = None
        if peer.store == "redis":
            self.server.tell("FLUSHALL", "SYNC")
            return self.server.url
        return f"sqlite:///{Path(tempfile.mkdtemp(dir=self._files), 'jobs.db')}"

    def add(self, peer: Peer, url: str, verb: str, jobs: int, kind: str = "noop", **more: str) -> dict[str, float]:
        """Have the peer's producer add jobs; what it says about that."""
        words = [*command(peer), verb, str(jobs), kind]
        try:
            done = subprocess.run(
                words,
                cwd=ROOT,
                env=_environment(peer, url, **more),
                capture_output=True,
                text=True,
                timeout=300,
                check=True,
            )
        except subprocess.SubprocessError as error:
            raise Unusable(f"{verb!r} failed: {_last_line(error)}") from error
        told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return told

    def settle(self) -> None:
        """Until the server has done what it puts off, such as moving its keys to a larger table."""
        until, used = time.monotonic() + _SETTLED, _redis_time(self.server)
        while time.monotonic() < until:
            time.sleep(_QUIET)
            before, used = used, _redis_time(self.server)
            if used - before < _QUIET / 100:
                break

    @contextmanager
    def worker(
        self,
        peer: Peer,
        url: str,
        slots: int,
        room: int,
        processes: int = 1,
        end: End = "at once",
        *,
        log: str = "silent",
    ) -> Iterator["Worker"]:
        """The peer's worker while it lasts, with room for what so many jobs write down."""
        with tempfile.TemporaryDirectory(prefix="toril-bench-") as folder:
            board = {"TORIL_BENCH_BOARD": folder, "TORIL_BENCH_SLOTS": str(room)}
            environment = _environment(peer, url, BENCH_PROCESSES=str(processes), BENCH_LOG=log, **board)
            words = [*command(peer), "work", str(slots)]
            copies = processes if peer.copies == "by us" else 1
            with Path(folder, "output").open("w+b") as output:
                started = [
                    subprocess.Popen(
                        words, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
                    )
                    for _ in range(copies)
                ]
                try:
                    yield Worker(started, Boards(Path(folder), room), self.server, Path(folder, "output"))
                    if end == "by itself":
                        for process in started:
                            _leave(process)
                finally:
                    for process in started:
                        _end(process)


class Worker:
    """The worker processes of one peer, and what they have done."""

    def __init__(
        self, started: Sequence["subprocess.Popen[bytes]"], boards: Boards, server: RedisServer, output: Path
    ) -> None:
        self.boards = boards
        self._started = started
        self._server = server
        self._output = output

    def until(self, jobs: int, timeout: float) -> tuple[Usage, Usage, int]:
        """Wait for so many jobs. What had been used when the first were seen and at the end, and how many between."""
        until = time.monotonic() + timeout
        first: tuple[int, Usage] | None = None
        while True:
            done = self.boards.count()
            if done and first is None:
                first = done, self.usage()
            if first is not None and done >= jobs:
                return first[1], self.usage(), self.boards.count() - first[0]
            self._check(done, jobs, until)
            time.sleep(_LOOK)

    def usage(self) -> Usage:
        commands, scripts = server_commands(self._server)
        return Usage(
            worker=sum(map(_processor_time, self.processes())),
            redis=_redis_time(self._server),
            commands=commands,
            scripts=scripts,
        )

    def processes(self) -> list[int]:
        """Every process of the worker, down to the last child."""
        parents: dict[int, list[int]] = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(status.read_text().rpartition(")")[2].split()[1])
            except OSError:  # it is gone
                continue
            parents.setdefault(parent, []).append(int(status.parent.name))
        found = [process.pid for process in self._started]
        for pid in found:
            found += parents.get(pid, [])
        return found

    def memory(self) -> tuple[float, float]:
        """Megabytes resident: of the processes that run jobs, and of those beside them."""
        workers = set(self.boards.processes())
        sizes = {pid: _resident(pid) for pid in self.processes()}
        inside = sum(size for pid, size in sizes.items() if pid in workers)
        return inside, sum(sizes.values()) - inside

    def _check(self, done: int, jobs: int, until: float) -> None:
        ended = [process.poll() for process in self._started]
        if any(code is not None for code in ended):
            raise Unusable(f"the worker ended by itself with {ended}: {self._last_words()}")
        if time.monotonic() > until:
            raise Unusable(f"{done} of {jobs} jobs were done in time: {self._last_words()}")

    def _last_words(self) -> str:
        lines = self._output.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1][:200] if lines else "it said nothing"


def server_commands(server: RedisServer) -> tuple[int, int]:
    """Commands that Redis has carried out, those in scripts among them; and calls of scripts."""
    calls = {name: int(told.split("calls=")[1].split(",")[0]) for name, told in server.facts("commandstats").items()}
    return sum(calls.values()) - calls.get("cmdstat_info", 0), sum(calls.get(name, 0) for name in _SCRIPTS)


def _environment(peer: Peer, url: str, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), *([str(library(peer.library))] if peer.library else ())])
    own = {"BENCH_URL": url, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **own, **peer.environment, **more}


def _redis_time(server: RedisServer) -> float:
    told = server.facts("cpu")
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


def _processor_time(pid: int) -> float:
    """Of a whole process, by the clock that Linux keeps for each."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def _resident(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return 0.0


def _leave(process: "subprocess.Popen[bytes]") -> None:
    """By itself: what it runs is brought to its end, so that the next worker on this server meets none of it."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LEFT)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """At once, with all that it has started: nothing is left to lose, and some take seconds to end well."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_line(error: subprocess.SubprocessError) -> str:
    """What a process said last, before it failed or was too slow."""
    said = getattr(error, "stderr", None) or ""
    lines = (said.decode("utf-8", "replace") if isinstance(said, bytes) else said).strip().splitlines()
    return lines[-1][:200] if lines else str(error)[:200]
