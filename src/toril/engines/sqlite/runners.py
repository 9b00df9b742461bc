"""What moves the core: a thread of its own in real life, the caller itself in the simulator."""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

from toril.clock import Clock
from toril.engines.sqlite.bell import Bell
from toril.engines.sqlite.core import Core, Op, Work
from toril.engines.sqlite.file import File, translated
from toril.engines.sqlite.tx import Tx
from toril.errors import Closed
from toril.model import Health

__all__ = ["Inline", "Reader", "Runner", "Threaded"]

T = TypeVar("T")

_LOOK: Final = 0.05  # seconds between looks for what other processes committed, while someone waits
_GROUP: Final = 256  # steps that share one commit
_IDLE: Final = 5.0  # seconds without a step after which the log is written back


class Runner(Protocol):
    """Makes steps on a core, one commit after another."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def write(self, op: Op[T], now: int | None, *, grows: bool = False) -> T: ...

    async def read(self, op: Op[T], now: int | None) -> T: ...

    async def health(self) -> Health: ...


class Inline:
    """Each step at once, in the caller's own thread."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def start(self) -> None:
        self._core.open()

    async def stop(self) -> None:
        self._core.close()

    async def write(self, op: Op[T], now: int | None, *, grows: bool = False) -> T:
        work = Work(op, now, grows=grows)
        self._core.perform([work])
        return _answer(work)

    async def read(self, op: Op[T], now: int | None) -> T:
        return self._core.read(op, now)

    async def health(self) -> Health:
        return self._core.health()


def _answer(work: Work[T]) -> T:
    if work.error is not None:
        raise work.error
    return work.answer  # type: ignore[return-value]


class _Ordered:
    """A step or a read on its way to the thread, and the future that its answer goes to."""

    __slots__ = ("future", "loop", "read", "work")

    def __init__(self, work: Work[Any] | None, read: Callable[[Core], Any] | None) -> None:
        self.work = work
        self.read = read
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    def deliver(self, answer: Any, error: BaseException | None) -> None:
        if self.future.done():
            return  # the caller was cancelled meanwhile; what it asked for has happened all the same
        if error is None:
            self.future.set_result(answer)
        else:
            self.future.set_exception(error)


class Threaded:
    """One thread that owns the connection. Steps that arrive while it commits share the next commit."""

    def __init__(self, core: Core, bell: Bell, clock: Clock) -> None:
        self._core = core
        self._bell = bell
        self._clock = clock
        self._orders: queue.SimpleQueue[_Ordered | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._looked = 0.0
        self._active = 0.0
        self._rested = True

    async def start(self) -> None:
        self._thread = threading.Thread(target=self._main, name="toril-sqlite", daemon=True)
        self._thread.start()
        try:
            await self._ask(lambda core: core.open())
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._orders.put(None)
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    async def write(self, op: Op[T], now: int | None, *, grows: bool = False) -> T:
        answer: T = await self._send(_Ordered(Work(op, now, grows=grows), None))
        return answer

    async def read(self, op: Op[T], now: int | None) -> T:
        return await self._ask(lambda core: core.read(op, now))

    async def health(self) -> Health:
        return await self._ask(lambda core: core.health())

    async def _ask(self, what: Callable[[Core], T]) -> T:
        answer: T = await self._send(_Ordered(None, what))
        return answer

    async def _send(self, ordered: _Ordered) -> Any:
        if self._thread is None:
            raise Closed("the store is not open; open it first, or it was closed")
        self._orders.put(ordered)
        return await ordered.future

    def _main(self) -> None:
        stopping = False
        while not stopping:
            orders, stopping = self._take()
            if orders:
                self._serve(orders)
            self._look()
        with contextlib.suppress(Exception):
            self._core.close()
        self._refuse_the_rest()

    def _take(self) -> tuple[list[_Ordered], bool]:
        """What has arrived, up to a group; and whether to stop after it."""
        orders: list[_Ordered] = []
        try:
            ordered = self._orders.get(timeout=self._patience())
            while ordered is not None:
                orders.append(ordered)
                if len(orders) == _GROUP:
                    return orders, False
                ordered = self._orders.get_nowait()
        except queue.Empty:
            return orders, False
        return orders, True

    def _patience(self) -> float | None:
        """How long to wait for a step: not at all long while others wait for what another process may commit."""
        if self._bell.names:
            return _LOOK
        return None if self._rested else _IDLE

    def _serve(self, orders: list[_Ordered]) -> None:
        works = [ordered.work for ordered in orders if ordered.work is not None]
        if works:
            self._core.perform(works)
            self._active, self._rested = self._clock.monotonic(), False
        delivered: dict[asyncio.AbstractEventLoop, list[tuple[_Ordered, Any, BaseException | None]]] = {}
        for ordered in orders:
            delivered.setdefault(ordered.loop, []).append((ordered, *self._outcome(ordered)))
        for loop, answers in delivered.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_deliver, answers)

    def _outcome(self, ordered: _Ordered) -> tuple[Any, BaseException | None]:
        if ordered.work is not None:
            return ordered.work.answer, ordered.work.error
        try:
            return (ordered.read(self._core) if ordered.read else None), None
        except Exception as error:
            return None, error

    def _look(self) -> None:
        """See whether others committed; once nothing has gone on for a while, put the log in order."""
        now = self._clock.monotonic()
        with contextlib.suppress(Exception):  # a look that fails is made again; steps report their errors themselves
            if now - self._looked >= _LOOK:
                self._looked = now
                if self._bell.names and self._core.changed():
                    self._bell.ring(self._bell.names)
            if not self._rested and now - self._active >= _IDLE:
                self._rested = True
                self._core.rest()

    def _refuse_the_rest(self) -> None:
        """Nobody will serve what arrived after the stop."""
        with contextlib.suppress(queue.Empty):
            while True:
                ordered = self._orders.get_nowait()
                if ordered is not None and not ordered.loop.is_closed():
                    error = Closed("the store was closed")
                    ordered.loop.call_soon_threadsafe(ordered.deliver, None, error)


def _deliver(answers: list[tuple[_Ordered, Any, BaseException | None]]) -> None:
    for ordered, answer, error in answers:
        ordered.deliver(answer, error)


class Reader:
    """A second thread and connection, so that long reads never hold up a commit."""

    def __init__(self, file: File, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="toril-sqlite-read")
        self._connection: sqlite3.Connection | None = None

    async def read(self, op: Op[T], now: int | None) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, op, now)

    async def stop(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, self._close)
        self._pool.shutdown()

    def _read(self, op: Op[T], now: int | None) -> T:
        """On one view of the file, whatever is committed meanwhile."""
        try:
            connection = self._connection = self._connection or self._file.open_reader()
            connection.execute("BEGIN")
            try:
                tx = Tx(connection)
                tx.now = self._clock.now() if now is None else now
                return op(tx)
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise translated(error, self._file.path) from error

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
