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
