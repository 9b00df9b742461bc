"""Processes that fork while they hold a store open."""

import asyncio
import os
import traceback
from collections.abc import Callable, Coroutine

from tests.faults.ledger import Ledger
from tests.faults.nursery import be_mortal
from toril.engines.sqlite import SqliteEngine, connect
from toril.errors import EngineUnusable
from toril.model import NewJob


async def family(path: str, log: str) -> None:
    """Open, fork, and both go on; then the parent closes, and the child goes on."""
    engine, ledger = connect(f"sqlite:///{path}"), Ledger(log)
    await engine.open()
    await _add(engine, ledger, "parent-before")
    await engine.counts("q")  # so that the reader has its connection too
    child_wrote, parent_closed = _Signal(), _Signal()

    async def child() -> None:
        await _add(engine, ledger, "child-first")
        assert (await engine.counts("q")).waiting == 2
        child_wrote.give()
        parent_closed.await_it()
        await _add(engine, ledger, "child-after-the-parent")
        await engine.close()

    wait = _fork(child)
    child_wrote.await_it()
    await _add(engine, ledger, "parent-beside-the-child")
    assert (await engine.counts("q")).waiting == 3
    await engine.close()
    parent_closed.give()
    assert wait() == 0


async def crowd(path: str, log: str, forks: int) -> None:
    """Fork again and again while commits are under way."""
    engine, ledger = connect(f"sqlite:///{path}"), Ledger(log)
    await engine.open()

    async def child(number: int) -> None:
        for turn in range(3):
            await _add(engine, ledger, f"child-{number}-{turn}")
        await engine.close()

    async def write(lane: int) -> None:
        for turn in range(forks * 3):
            await _add(engine, ledger, f"parent-{lane}-{turn}")

    async with asyncio.TaskGroup() as group:
        for lane in range(3):
            group.create_task(write(lane))
        children = []
        for number in range(forks):
            await _add(engine, ledger, f"between-{number}")
            children.append(_fork(lambda number=number: child(number)))  # type: ignore[misc]
    assert [wait() for wait in children] == [0] * forks
    await engine.close()


async def orphan(log: str) -> None:
    """Fork with a store in memory: the child must not think that it has one."""
    engine, ledger = connect("memory://"), Ledger(log)
    await engine.open()
    await _add(engine, ledger, "parent-before")

    async def child() -> None:
        try:
            await engine.add("q", [NewJob(name="n")])
        except EngineUnusable as error:
            ledger.note("refused", [str(error)])
        assert not (await engine.health()).ok
        await engine.close()

    assert _fork(child)() == 0
    await _add(engine, ledger, "parent-after")
    ledger.note("waiting", [str((await engine.counts("q")).waiting)])
    await engine.close()


class _Signal:
    """One process tells another that something has happened."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def give(self) -> None:
        os.write(self._write, b".")

    def await_it(self) -> None:
        assert os.read(self._read, 1) == b"."


def _fork(life: Callable[[], Coroutine[None, None, None]]) -> Callable[[], int]:
    """Fork; what comes back waits for the child and gives its exit code."""
    pid = os.fork()
    if pid:
        return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        be_mortal()
        asyncio.run(life())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


async def _add(engine: SqliteEngine, ledger: Ledger, identity: str) -> None:
    await engine.add("q", [NewJob(name="n", id=identity)])
    ledger.note("kept", [identity])
