"""The event loop of worker processes: Python's own, but for how finely it waits."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine
from select import select
from typing import Any

import pytest

from toril.cli import worker_process as loops


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=loops.loop_factory("asyncio")) as runner:
        runner.run(asyncio.wait_for(work(), 60))


def test_a_short_wait_is_not_rounded_to_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[float]()

    def recorded(reads: list[int], writes: list[int], rest: list[int], timeout: float) -> object:
        asked.append(timeout)
        return select(reads, writes, rest, timeout)

    monkeypatch.setattr(loops, "select", recorded)
    monkeypatch.setenv("TORIL_PLAIN_ASYNCIO", "0")

    async def work() -> None:
        for _ in range(20):
            await asyncio.sleep(0.0025)

    run(work)

    assert asked  # a busy machine skips some waits, as they are already over
    assert any(timeout * 1000 != round(timeout * 1000) for timeout in asked)
    assert all(timeout < 0.1 for timeout in asked)


def test_a_plain_loop_is_asyncio_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "select", None)
    monkeypatch.setenv("TORIL_PLAIN_ASYNCIO", "1")

    async def work() -> None:
        await asyncio.sleep(0.003)

    run(work)

    assert loops.loop_factory("asyncio") is asyncio.new_event_loop


@pytest.mark.usefixtures("both_kinds_of_asyncio")
def test_it_wakes_for_what_comes_before_the_time_is_up() -> None:
    async def work() -> None:
        loop, heard = asyncio.get_running_loop(), asyncio.Event()
        slow = loop.call_later(0.09, lambda: None)
        threading.Thread(target=lambda: loop.call_soon_threadsafe(heard.set)).start()
        await heard.wait()

        near, far = socket.socketpair()
        near.setblocking(False)
        far.sendall(b"news")
        assert await loop.sock_recv(near, 10) == b"news"
        near.close()
        far.close()

        signalled = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR2, signalled.set)
        os.kill(os.getpid(), signal.SIGUSR2)
        await signalled.wait()
        loop.remove_signal_handler(signal.SIGUSR2)
        slow.cancel()

    run(work)


def test_a_loop_with_a_high_descriptor_waits_as_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_HIGHEST", 0)
    monkeypatch.setattr(loops, "select", None)

    async def work() -> None:
        await asyncio.sleep(0.003)

    run(work)
