"""A supervisor says of its own worker process that it is gone, or that it stands still, and of no other's."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toril.model import Heartbeat
from toril.runtime.clock import SYSTEM
from toril.store.engine import Store, connect
from toril.supervisor import Supervisor, SupervisorOptions
from toril.supervisor.silent import sign_off, speak_for

PATIENCE = 60.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    store = connect(url)
    await store.open()
    yield store
    await store.close()


async def alive(store: Store, *names: str) -> None:
    """Workers of containers that have a host name and a process id in common."""
    for name in names:
        beat = Heartbeat(
            worker=name,
            queues=["q"],
            slots=1,
            running=0,
            host=socket.gethostname(),
            pid=os.getpid(),
            version="1",
            started_at=SYSTEM.now(),
        )
        await store.heartbeat(beat, ttl=45_000)


async def listed(store: Store) -> list[str]:
    return [worker.id for worker in await store.workers()]


def child_of(worker: str, **states: Any) -> Any:
    return SimpleNamespace(pid=os.getpid(), worker=worker, **states)


async def ended(url: str, child: Any, code: int) -> None:
    """A run whose only child has ended, and which then ends as well."""
    supervisor = Supervisor(SupervisorOptions(command=("true",)))
    supervisor.children[0] = child
    supervisor._greet({"url": url, "prefix": "bull", "options": {}, "queues": {"q": 1}})
    await supervisor._end_child(0, child, code)
    await supervisor._close()


@pytest.mark.parametrize("forced", [True, False])
async def test_who_is_killed_while_it_drains_is_listed_no_more(url: str, store: Store, forced: bool) -> None:
    await alive(store, "blocked")
    child = child_of("blocked", killed=None, draining=True, stopping=False, forced=forced, failed=None, held=list)

    await ended(url, child, -9)

    assert await listed(store) == []


async def test_a_store_that_does_not_answer_does_not_hold_up_the_end(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def unanswered(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("toril.supervisor.supervisor.sign_off", unanswered)
    child = child_of("gone", killed=None, draining=False, stopping=False, forced=False, failed=None, held=list)

    async with asyncio.timeout(PATIENCE):
        await ended(url, child, -9)

    assert asked.is_set()


async def test_only_the_worker_of_this_name_is_signed_off(store: Store) -> None:
    await alive(store, "one", "two", "three")
    first, *others = await listed(store)

    for name in others:
        await sign_off(child_of(name), store)

    assert await listed(store) == [first]


async def test_only_the_worker_of_this_name_is_spoken_for(store: Store) -> None:
    await alive(store, "one", "two")
    _, second = await listed(store)
    died = asyncio.get_running_loop().create_future()
    child = child_of(second, died=died, draining=False, table=SimpleNamespace(ticked=SYSTEM.monotonic() - 100))

    async with asyncio.timeout(PATIENCE):
        speaking = asyncio.create_task(speak_for(child, store, SYSTEM))
        while not (silent := {worker.id for worker in await store.workers() if worker.silent}):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        died.set_result(-9)
        await speaking

    assert silent == {second}
