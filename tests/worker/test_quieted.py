"""A process that was told to be quiet is nobody to leave a suspect to; and a spare process looks for itself in time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from toril.events import Events
from toril.model import WorkerCommand
from toril.runtime.hooks import Hooks
from toril.store.engine import connect
from toril.supervisor.supervisor import Supervisor, SupervisorOptions
from toril.testing import ManualClock
from toril.worker.isolation import SuspectPolicy
from toril.worker.process import WorkerProcess


class Line:
    """Both ends of the line between a supervisor and an idle child, and what was said on it."""

    ready, draining, stopping, quiet, suspects = True, False, False, False, SuspectPolicy.WHEN_IDLE

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def say(self, **message: Any) -> None:
        self.said.append(message)

    async def listen(self) -> AsyncIterator[dict[str, Any]]:
        while self.said:
            yield self.said.pop(0)

    def held(self) -> list[Any]:
        return []

    def requested(self) -> int:
        return 0


async def test_the_spare_process_is_started_where_the_only_idle_one_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, started, child = ManualClock(), list[int](), cast("Any", Line())

    async def run_slot(number: int, command: Sequence[str]) -> None:
        started.append(number)

    supervisor = Supervisor(SupervisorOptions(command=("child",), spare=("spare",), processes=2), clock)
    monkeypatch.setattr(supervisor, "_run_slot", run_slot)
    monkeypatch.setattr(supervisor, "_keeper", object())
    supervisor.children[0] = child

    supervisor._suspects_wait(1)
    assert child.said == [{"look": True}]  # it is idle, and told
    child.said.clear()
    process = WorkerProcess(
        [], connect("memory://"), clock, Events(), Hooks(), name="w", owner="a", version="1", under=child
    )
    process._ordered(WorkerCommand.QUIET)
    async for message in child.listen():
        supervisor._received(child, message)
    supervisor._suspects_wait(1)
    await supervisor._end_spares()

    assert started == [2]
    assert child.said == []


async def test_as_many_spare_processes_are_started_as_jobs_wait_up_to_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, gone = list[int](), asyncio.Event()

    async def run_slot(number: int, command: Sequence[str]) -> None:
        started.append(number)
        await gone.wait()

    supervisor = Supervisor(SupervisorOptions(command=("child",), spare=("spare",), spares=3), ManualClock())
    monkeypatch.setattr(supervisor, "_run_slot", run_slot)
    monkeypatch.setattr(supervisor, "_keeper", object())

    async def started_for(count: int) -> list[int]:
        supervisor._suspects_wait(count)
        await asyncio.sleep(0)
        return started

    assert await started_for(2) == [1, 2]
    assert await started_for(2) == [1, 2], "these are on their way"
    one = supervisor.children[1] = cast("Any", Line())
    assert await started_for(2) == [1, 2], "one is there and idle, one on its way"
    assert one.said == [{"look": True}]
    assert await started_for(8) == [1, 2, 3], "more than three there may not be"
    supervisor.children.clear()
    gone.set()
    await supervisor._end_spares()
