"""The connection between a worker process and its supervisor, over real sockets: bytes arrive in pieces of any size,
either side stands still or is gone in the middle of a message, and some messages make no sense."""

import asyncio
import os
import random
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from types import ModuleType
from typing import Any, Literal, TypeAlias
from unittest.mock import patch

import pytest

from tests.worker.planting import planted
from toril.model import Lease, Renewed
from toril.runtime.stop_requests import Urgency
from toril.supervisor import child as real_child
from toril.testing import ManualClock
from toril.worker import supervised as real_under

UNDER, CHILD = "toril.worker.supervised", "toril.supervisor.child"
BUFFER = 4096  # bytes that the system keeps for a socket, so that much is sent in part
PATIENCE = 30.0  # seconds for what must happen
SHORT = 3.0  # the same where a bug is planted, and it may not

Side: TypeAlias = Literal["worker", "supervisor"]


class Wrong(AssertionError):
    """A message was lost, torn or doubled, somebody waited who must not, or did not learn that the other is gone."""


class Wire:
    """Carries bytes between two sockets, in a thread. What one side sends waits while the other stands still."""

    def __init__(self, worker: socket.socket, supervisor: socket.socket, chance: random.Random) -> None:
        self._ends: dict[Side, socket.socket] = {"worker": worker, "supervisor": supervisor}
        self._carried: dict[Side, bytes] = {"worker": b"", "supervisor": b""}  # on its way to this side
        self._chance = chance
        self._still: set[Side] = set()
        self._lock = threading.Lock()
        self._over = False
        self.most: int | None = None  # bytes that are still carried, if it is to break then
        for end in self._ends.values():
            end.setblocking(False)
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    @contextmanager
    def still(self, side: Side) -> Iterator[None]:
        """Meanwhile this side reads nothing."""
        with self._lock:
            self._still.add(side)
        try:
            yield
        finally:
            with self._lock:
                self._still.discard(side)

    def inject(self, side: Side, data: bytes) -> None:
        """Have this side read these bytes; nothing else may be on its way."""
        with self._lock:
            self._carried[side] += data

    def cut(self) -> None:
        """Both find that the other is gone."""
        with self._lock:
            self._close()

    def join(self) -> None:
        self.cut()
        self._thread.join()

    def _close(self) -> None:
        self._over = True
        for end in self._ends.values():
            end.close()

    def _main(self) -> None:
        while True:
            with self._lock:
                carried = [self._carry(side) for side in self._ends if side not in self._still and not self._over]
                if self._over:
                    return
            if not any(carried):
                time.sleep(0.0005)

    def _carry(self, side: Side) -> bool:
        """Some bytes on to this side; whether there were any."""
        source, sink = self._ends["supervisor" if side == "worker" else "worker"], self._ends[side]
        try:
            data = self._carried[side] or source.recv(self._chance.choice((1, 7, 1000, 1 << 16)))
            if self.most is not None:
                data = data[: self.most]
                self.most -= len(data)
            if not data:
                self._close()
                return False
            self._carried[side] = data
            self._carried[side] = data[sink.send(data) :]
        except BlockingIOError:
            return False
        except OSError:
            self._close()
        return True


class Pair:
    """A worker process's end of the connection, and its supervisor's; the process itself only sleeps."""

    def __init__(
        self, under: ModuleType, child: Any, wire: Wire, worker: Any, chance: random.Random, patience: float
    ) -> None:
        self.module, self.child, self.wire, self.worker, self.chance = under, child, wire, worker, chance
        self.patience = patience
        self.keeper = worker.keeper(None, ManualClock(), owned=False)
        self.heard: list[Any] = []  # by the supervisor
        self.told: list[Any] = []  # to the worker
        self.orphaned: list[bool] = []
        self.listening = asyncio.create_task(self._listen())
        worker.start(
            orphaned=lambda: self.orphaned.append(True),
            stalled=lambda queue, jobs: self.told.append([queue, jobs]),
            look=lambda: self.told.append("look"),
        )

    async def _listen(self) -> None:
        async for message in self.child.listen():
            self.heard.append(message)

    def hold(self, name: str) -> Lease:
        lease = Lease("q", name, "t")

        def tell(found: Renewed) -> None:
            self.told.extend(["lost", each.id] for each in found.lost)
            self.told.extend(["cancelled", wish.lease.id, wish.reason] for wish in found.cancelled)

        self.keeper.hold(lease, ttl=1000, renew=500, since=0.0, tell=tell)
        return lease

    async def until(self, done: Callable[[], object], what: str) -> None:
        """Meanwhile the worker does what it does by the clock: it sends what could not be sent before."""
        try:
            async with asyncio.timeout(self.patience):
                while not done():
                    await self.at_once(self.worker.flush)
                    await asyncio.sleep(0.002)
        except TimeoutError:
            raise Wrong(what) from None

    async def at_once(self, act: Callable[[], object]) -> None:
        """What must not wait for the other side."""
        done = threading.Event()

        def main() -> None:
            act()
            done.set()

        threading.Thread(target=main, daemon=True).start()
        for _ in range(int(self.patience * 1000)):
            if done.is_set():
                return
            await asyncio.sleep(0.001)
        raise Wrong("it waits for who stands still")

    async def say(self, **message: Any) -> None:
        await self.at_once(lambda: self.worker.say(**message))


@asynccontextmanager
async def pair(
    seed: int, under: ModuleType = real_under, child: ModuleType = real_child, patience: float = PATIENCE
) -> AsyncIterator[Pair]:
    chance, ends, real = random.Random(seed), list[socket.socket](), socket.socketpair

    def recorded() -> tuple[socket.socket, socket.socket]:
        here, there = narrow(*real())
        ends.append(there.dup())
        return here, there

    with patch.object(socket, "socketpair", recorded):
        process = child.ChildProcess(["sh", "-c", "exec sleep 600"], {})
    mine, given = narrow(*socket.socketpair())
    memory = os.dup(process._memory)
    wire, worker = Wire(mine, ends[0], chance), under.SupervisorLink(given.detach(), memory)
    both = Pair(under, process, wire, worker, chance, patience)
    try:
        await until_connected(process)
        yield both
    finally:
        wire.join()
        process.force()
        with suppress(Exception):
            await asyncio.wait_for(both.listening, patience / 10)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(process.died), patience / 10)
        process.close()
        worker._socket.close()
        worker._table.close()
        os.close(memory)


async def until_connected(process: Any) -> None:
    while process._writer is None:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0)


def narrow(*ends: socket.socket) -> tuple[socket.socket, socket.socket]:
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    return ends[0], ends[1]


def text(chance: random.Random) -> str:
    letters = ("x", "\0", "\n", "é😀", "\udc80", '"')
    return chance.choice((*(letter * chance.choice((0, 1, 50, 1_000)) for letter in letters), "x" * 40_000))


async def all_that_is_said_is_heard(both: Pair) -> None:
    """Once each and in its order, whoever stands still for a while."""
    said, told = list[Any](), list[Any]()
    for number in range(25):
        match both.chance.randrange(6):
            case 0 | 1:
                said.append({"pollers": [number, text(both.chance)]})
                await both.say(**said[-1])
            case 2:
                told.append(["q", [str(number), text(both.chance)]])
                both.child.say(stalled=told[-1])
            case 3:
                told.append("look")
                both.child.say(look=True)
            case _:
                with both.wire.still(both.chance.choice(("worker", "supervisor"))):
                    said.append({"pollers": [number, text(both.chance)]})
                    await both.say(**said[-1])
                    told.append(["q", [str(number), text(both.chance)]])
                    both.child.say(stalled=told[-1])
                    await asyncio.sleep(0.002)
    await both.until(lambda: len(both.heard) >= len(said), "the supervisor does not hear all that is said")
    await both.until(lambda: len(both.told) >= len(told), "the worker is not told all that is said")
    if both.heard != said or both.told != told:
        raise Wrong("a message is torn, or out of order")


async def losses_and_wishes_reach_their_attempts(both: Pair) -> None:
    expected = list[Any]()
    for number in range(10):
        name = f"{number} {text(both.chance)[:500]}"
        lease = both.hold(name)
        words = [lease.queue, lease.id, lease.token]
        if both.chance.random() < 0.5:
            expected.append(["lost", name])
            both.child.say(lost=[words], cancelled=[])
        else:
            expected.append(["cancelled", name, "enough"])
            both.child.say(lost=[], cancelled=[[*words, "enough"]])
        both.child.say(lost=[["q", "nobody holds it", "t"]], cancelled=[])
    await both.until(lambda: len(both.told) >= len(expected), "an attempt is not told")
    if both.told != expected:
        raise Wrong("an attempt is told what is another's")


class Dwelling:
    """A socket on which a send takes a moment, in which other threads run."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real

    def send(self, data: bytes | bytearray, flags: int) -> int:
        sent = self._real.send(data, flags)
        time.sleep(0.001)
        return sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


async def many_threads_say_something(both: Pair) -> None:
    """The loop, the keeper's thread and others: each message stays whole."""
    both.worker._socket = Dwelling(both.worker._socket)
    start = threading.Barrier(4)

    def speak(who: int) -> None:
        start.wait()
        for number in range(60):
            both.worker.say(pollers=[who, number, "x" * 700])

    threads = [threading.Thread(target=speak, args=(who,), daemon=True) for who in range(4)]
    for thread in threads:
        thread.start()
    await both.until(lambda: len(both.heard) >= 240, "what several threads say is not heard")
    for who in range(4):
        numbers = [message["pollers"][1] for message in both.heard if message["pollers"][0] == who]
        if numbers != list(range(60)):
            raise Wrong("what several threads say is mixed up")


async def a_supervisor_that_stands_still_costs_no_memory(both: Pair) -> None:
    """What is too much is dropped, whole messages of it; what comes afterwards is heard."""
    with both.wire.still("supervisor"):
        for number in range(40):
            await both.say(pollers=[number, "x" * 100_000])
        if len(both.worker._unsent) > (1 << 20) + 200_000:
            raise Wrong("what nobody reads fills the memory")
    await both.until(lambda: not both.worker._unsent, "what was kept is not sent")
    await both.say(ready=True)
    await both.until(lambda: {"ready": True} in both.heard, "what comes afterwards is not heard")
    numbers = [message["pollers"][0] for message in both.heard[:-1]]
    if numbers != sorted(set(numbers)) or numbers[:5] != [0, 1, 2, 3, 4]:
        raise Wrong("what was kept is not what came first")


async def a_worker_that_stands_still_costs_no_memory(both: Pair) -> None:
    with both.wire.still("worker"):
        for number in range(80):
            both.child.say(stalled=["q", [str(number), "x" * 100_000]])
        if both.child._writer.transport.get_write_buffer_size() > (1 << 22) + 200_000:
            raise Wrong("what nobody reads fills the memory")
    await both.until(lambda: both.told, "what was kept is not sent")
    await both.until(lambda: not both.child._writer.transport.get_write_buffer_size(), "what was kept is not sent")
    both.child.say(look=True)
    await both.until(lambda: both.told[-1] == "look", "what comes afterwards is not heard")
    numbers = [int(told[1][0]) for told in both.told[:-1]]
    if numbers != list(range(len(numbers))):
        raise Wrong("what was kept is not what came first")


SENSELESS = (
    b"\n", b"{\n", b"[1]\n", b"17\n", b"\xff\xfe\n", b"[" * 9_999 + b"\n", b'{"lost": 5}\n', b'{"lost": [["q"]]}\n',
    b'{"cancelled": [[1]]}\n', b'{"stalled": 3}\n', b'{"nobody knows": null}\n',
)  # fmt: skip


def is_heard(both: Pair, number: int) -> bool:
    return len(both.told) > number and {"ready": number} in both.heard


async def what_makes_no_sense_costs_only_itself(both: Pair) -> None:
    for number in range(6):
        await both.say(ready=number)
        both.child.say(stalled=["q", [str(number)]])
        await both.until(partial(is_heard, both, number), "it is not heard")
        both.wire.inject("worker", both.chance.choice(SENSELESS))
        both.wire.inject("supervisor", both.chance.choice(SENSELESS[:6]))
    if both.orphaned or both.listening.done():
        raise Wrong("a message without sense ends the connection")


async def who_is_left_alone_learns_it_once(both: Pair) -> None:
    """The connection breaks in the middle of a message; it ends for the supervisor when the process is gone too."""
    both.wire.most = both.chance.randrange(1, 3_000)
    with suppress(OSError):
        for number in range(40):
            await both.say(pollers=[number, "x" * 100])
            both.child.say(stalled=["q", [str(number)]])
            await asyncio.sleep(0)
    both.wire.cut()
    os.kill(both.child.pid, signal.SIGKILL)
    await both.until(lambda: both.orphaned, "a worker does not learn that its supervisor is gone")
    await both.until(both.listening.done, "the supervisor goes on listening to nobody")
    if both.listening.exception() is not None:
        raise Wrong("the end of a worker is taken for an error")
    await both.say(ready=True)
    both.child.say(look=True)
    if len(both.orphaned) > 1 or not both.keeper._alone:
        raise Wrong("a worker keeps its leases itself, once it is alone")
    if both.worker._unsent:
        raise Wrong("what nobody will ever read is kept")
    heard = [message["pollers"][0] for message in both.heard]
    if heard != list(range(len(heard))):
        raise Wrong("half a message is heard")


async def what_the_boot_says_is_waited_for(both: Pair) -> None:
    """By a worker whose supervisor stands still, for a while; nothing else would send it."""
    with both.wire.still("supervisor"):
        telling = asyncio.create_task(asyncio.to_thread(both.worker.tell, hello="x" * 500_000))
        await asyncio.sleep(0.05)
    try:
        async with asyncio.timeout(both.patience):
            await telling
            while not both.heard:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise Wrong("what the boot says is not heard") from None
    with both.wire.still("supervisor"), patch.object(both.module, "_BOOT", 0.1):
        try:
            async with asyncio.timeout(both.patience):
                await asyncio.to_thread(both.worker.tell, hello="x" * 500_000)
        except TimeoutError:
            raise Wrong("the boot waits for ever") from None


async def a_request_to_stop_needs_no_connection(both: Pair) -> None:
    with both.wire.still("worker"):
        for urgency in (Urgency.DRAIN, Urgency.HURRY):
            both.child.table.stop(urgency)
            if both.worker.requested() != urgency:
                raise Wrong("a worker that cannot be told does not see how urgently it is to stop")


async def a_death_is_noticed_though_the_connection_holds(both: Pair) -> None:
    """What a handler has forked may hold the worker's end open."""
    os.kill(both.child.pid, signal.SIGSTOP)
    both.child.say(look=True)
    both.child.force()
    await both.until(both.child.died.done, "the supervisor does not notice that its child is dead")
    if both.child.died.result() != -signal.SIGKILL:
        raise Wrong("the cause of a death is another")


Check: TypeAlias = Callable[[Pair], Awaitable[None]]
CHECKS: tuple[Check, ...] = (
    a_request_to_stop_needs_no_connection, a_death_is_noticed_though_the_connection_holds,
    losses_and_wishes_reach_their_attempts, what_makes_no_sense_costs_only_itself, who_is_left_alone_learns_it_once,
    all_that_is_said_is_heard, many_threads_say_something, what_the_boot_says_is_waited_for,
    a_supervisor_that_stands_still_costs_no_memory, a_worker_that_stands_still_costs_no_memory,
)  # fmt: skip
SEEDS = range(5)


@pytest.mark.covers("F39")
@pytest.mark.parametrize("check", CHECKS)
async def test_both_sides_hear_each_other_whatever_befalls_them(check: Check) -> None:
    for seed in SEEDS:
        async with pair(seed) as both:
            await check(both)


SEND = "del self._unsent[: self._socket.send(self._unsent[:_CHUNK], socket.MSG_DONTWAIT)]"
BUGS = {
    "the worker waits for a supervisor that stands still": (UNDER, "socket.MSG_DONTWAIT)]", "0)]"),
    "what is sent in part counts as sent": (
        UNDER, SEND, "self._socket.send(self._unsent[:_CHUNK], socket.MSG_DONTWAIT); del self._unsent[:_CHUNK]",
    ),
    "what could not be sent is given up": (
        UNDER, "except BlockingIOError:\n            return True",
        "except BlockingIOError:\n            self._unsent.clear()",
    ),
    "a supervisor that stands still fills the memory": (UNDER, "if len(self._unsent) <= _UNSENT:", "if True:"),
    "two threads send at once": (
        UNDER, "        with self._sending:\n            if len(", "        if True:\n            if len(",
    ),
    "each read of the worker is taken by itself": (
        UNDER, "messages = decoder.feed(data)", "messages = Decoder().feed(data)",
    ),
    "one message without sense ends the listening": (
        UNDER, "except Exception:  # a malformed message", "except KeyError:  # a malformed message",
    ),
    "the worker does not hear of wishes": (UNDER, 'message.get("cancelled", ())', "()"),
    "the keeper does not hear that it is alone": (UNDER, "self._keeper.orphaned()", "pass"),
    "nobody hears that the supervisor is gone": (
        UNDER, "            orphaned()\n\n", "            pass\n\n",
    ),
    "what nobody will read is kept": (
        UNDER, "except OSError:  # the supervisor has died\n            self._unsent.clear()",
        "except OSError:  # the supervisor has died\n            pass",
    ),
    "the boot does not wait": (UNDER, "while self._send() and (left", "if self._send() and (left"),
    "how urgent it is, is not looked at": (UNDER, "return self._table.urgency", "return 0"),
    "each read of the supervisor is taken by itself": (
        CHILD, "for message in decoder.feed(data):", "for message in Decoder().feed(data):",
    ),
    "a worker that stands still fills the memory": (
        CHILD, "get_write_buffer_size() < _UNREAD", "is_closing() is False",
    ),
    "a connection that is reset is an error": (
        CHILD, "with contextlib.suppress(OSError):\n            while data", "if True:\n            while data",
    ),
    "a death is not noticed": (CHILD, "self._dead(self._process.wait())", "self._process.wait()"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # a thread may end by a bug
@pytest.mark.parametrize("bug", BUGS)
async def test_a_bug_that_is_planted_in_the_connection_is_found(bug: str) -> None:
    name, right, wrong = BUGS[bug]
    module = planted(name, right, wrong)
    under, child = (module, real_child) if name == UNDER else (real_under, module)

    assert await _is_found(under, child)


async def _is_found(under: ModuleType, child: ModuleType) -> bool:
    for check in CHECKS:
        for seed in SEEDS:
            try:
                async with pair(seed, under, child, SHORT) as both:
                    await check(both)
            except Wrong:
                return True
    return False
