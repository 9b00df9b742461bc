"""Worker processes of the example, cheap enough to be killed by the dozen: one process imports it, and forks them.

They die with that process, which dies with the test's.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]
_PR_SET_PDEATHSIG = 1


class Crew:
    """`with Crew(env) as crew:` has processes that work or produce; none outlives it."""

    def __init__(self, log: Path, **env: str) -> None:
        self._log = log
        self._env = os.environ | env | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT / "examples")))}
        self.alive: list[int] = []

    def __enter__(self) -> "Crew":
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.example.crew"], cwd=ROOT, env=self._env, text=True, stderr=log,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self.alive:
            os.kill(pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.kill()
        self._process.wait()

    def start(self, role: str = "work") -> int:
        """A process more."""
        pid = self._ask(role)
        self.alive.append(pid)
        return pid

    def end(self, pid: int, number: signal.Signals | None = None) -> int:
        """Its exit code, or minus the signal that ended it, once it has ended."""
        if number is not None:
            os.kill(pid, number)
        code = self._ask(f"reap {pid}")
        self.alive.remove(pid)
        return code

    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")[-4000:]

    def _ask(self, order: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self.log()
        return int(answer)


def main() -> None:
    from helpdesk.worker import app
    from helpdesk.workload import Workload

    async def work() -> None:
        await app.run(grace=60)  # far more than it takes: who was asked to end has ended well, and not by force

    async def produce() -> None:
        async with app:
            await Workload(int(os.environ["TORIL_EXAMPLE_SIZE"])).add()

    roles = {"work": work, "produce": produce}
    for line in sys.stdin:
        word, *pid = line.split()
        if word == "reap":
            answer = os.waitstatus_to_exitcode(os.waitpid(int(pid[0]), 0)[1])
        elif not (answer := os.fork()):
            _play(roles[word])
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def _play(role: object) -> None:
    """Be the child, and never return."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        asyncio.run(role())  # type: ignore[operator]
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
