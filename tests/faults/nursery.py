"""Child processes, cheap enough to be killed by the hundred.

A helper process imports the engine once and forks a child for each role that is asked for. The children die with it,
and each has a deadline in the kernel, so that nothing outlives the tests.
"""

import asyncio
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
DEADLINE = 60  # seconds that a child may live
_PR_SET_PDEATHSIG = 1


class Child:
    """A process of ours, to be stopped, resumed and killed."""

    def __init__(self, nursery: "Nursery", pid: int) -> None:
        self._nursery = nursery
        self._descriptor = os.pidfd_open(pid)
        self._code: int | None = None
        self.pid = pid

    def send(self, number: signal.Signals) -> None:
        if self._code is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def ended(self, timeout: float = DEADLINE) -> int:
        """Its exit code, or minus the signal that ended it, once it has ended."""
        if self._code is None:
            found, _, _ = select.select([self._descriptor], [], [], timeout)
            assert found, f"child {self.pid} did not end within {timeout} s"
            self._code = self._nursery.ask({"reap": self.pid})
            os.close(self._descriptor)
        return self._code

    def state(self) -> str:
        """In words, for the message of a test that waited for it in vain."""
        if self._code is None and not select.select([self._descriptor], [], [], 0)[0]:
            return f"lives, its threads: {', '.join(_states(self.pid))}"
        return f"ended with {self.ended()}"

    def kill(self) -> int:
        self.send(signal.SIGKILL)
        return self.ended()

    def freeze(self) -> None:
        """Stop it, and return when each of its threads has stopped."""
        self.send(signal.SIGSTOP)
        until(lambda: all(state == "T" for state in _states(self.pid)), f"child {self.pid} stops")


class Nursery:
    """The helper process, seen from the tests."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.faults.nursery"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, order: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()


class Children:
    """The children of one test: none outlives it."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._started: list[Child] = []

    def start(self, role: str, **arguments: str | int | float | Path) -> Child:
        """Fork a child that plays a role of `children.py`."""
        plain = {name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()}
        child = Child(self._nursery, self._nursery.ask({"role": role, "arguments": plain}))
        self._started.append(child)
        return child

    def kill_all(self) -> None:
        for child in self._started:
            child.kill()


@contextmanager
def looking_after(nursery: Nursery) -> Iterator[Children]:
    children = Children(nursery)
    try:
        yield children
    finally:
        children.kill_all()


def until(condition: Any, what: str, *, timeout: float = 30.0) -> None:
    """Return once the condition holds."""
    poll = select.poll()
    for _ in range(int(timeout * 500)):
        if condition():
            return
        poll.poll(2)
    raise AssertionError(f"waited {timeout} s in vain: {what}")


def _states(pid: int) -> list[str]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [(thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in threads]


def main(orders: IO[str]) -> None:
    from tests.faults.children import ROLES

    born: set[int] = set()
    for line in orders:
        order = json.loads(line)
        if "reap" in order:
            _, status = os.waitpid(order["reap"], 0)
            born.discard(order["reap"])
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if not answer:
                _play(ROLES[order["role"]], order["arguments"])
            born.add(answer)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    for pid in born:
        os.kill(pid, signal.SIGKILL)


def be_mortal() -> None:
    """Die with the parent, and at the deadline; a fork inherits neither."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.alarm(DEADLINE)


def _play(role: Any, arguments: dict[str, Any]) -> None:
    """Be the child, and never return."""
    code = 1
    try:
        be_mortal()
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        asyncio.run(role(**arguments))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if sys.argv[1:]:  # one child alone, for tools that start it themselves: its role and its arguments
        from tests.faults.children import ROLES

        _play(ROLES[sys.argv[1]], json.loads(sys.argv[2]))
    main(sys.stdin)
