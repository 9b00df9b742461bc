"""The threads that execute steps, one that writes and one that reads; in the simulator, the caller itself."""

import asyncio
import contextlib
import queue
import threading
import types
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from toril.engines.sql.driver import SqlConnection, SqlDatabase
from toril.engines.sql.effects import transaction
from toril.engines.sql.notifier import LocalNotifier, hand_over
from toril.engines.sql.transaction import Op
from toril.engines.sql.writer import PendingStep, Writer
from toril.errors import Closed
from toril.model import Health
from toril.runtime.clock import Clock

__all__ = ["InlineWriter", "ReaderThread", "Runner", "WriterThread"]

T = TypeVar("T")

_GROUP: Final = 256  # steps that share one commit
_QUICK: Final = 0.001  # seconds that a commit may take for the next brief step to be executed by its caller
_IDLE: Final = 5.0  # seconds without a step after which it is time to tidy up


class Runner(Protocol):
    """Executes steps, one commit after another."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def write(self, op: Op[T], now: int | None, *, grows: bool = False, brief: bool = False) -> T: ...

    async def read(self, op: Op[T], now: int | None) -> T: ...

    async def health(self) -> Health: ...


class InlineWriter:
    """Executes each step at once, in the caller's own thread."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._one = threading.Lock()

    async def start(self) -> None:
        self._writer.open()

    async def stop(self) -> None:
        self._writer.close()

    async def write(
        self,
        op: Op[T],
        now: int | None,
        *,
        grows: bool = False,
        brief: bool = False,  # noqa: ARG002 - all steps are executed here
    ) -> T:
        step = PendingStep(op, now, grows=grows)
        with self._one:
            self._writer.perform([step])
        return _answer(step)

    async def read(self, op: Op[T], now: int | None) -> T:
        with self._one:
            return self._writer.read(op, now)

    async def health(self) -> Health:
        with self._one:
            return self._writer.health()


def _answer(step: PendingStep[T]) -> T:
    if step.error is not None:
        raise step.error
    return step.answer  # type: ignore[return-value]


class _Request:
    """A step or a read for the thread, and the future for its answer."""

    __slots__ = ("future", "loop", "read", "step")

    def __init__(self, step: PendingStep[Any] | None, read: Callable[[Writer], Any] | None) -> None:
        self.step = step
        self.read = read
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    def deliver(self, answer: Any, error: BaseException | None) -> None:
        if self.future.done():
            return  # the caller was cancelled meanwhile, but its step has taken effect
        if error is None:
            self.future.set_result(answer)
        else:
            self.future.set_exception(error)


_Answer: TypeAlias = tuple[_Request, Any, BaseException | None]


class WriterThread:
    """One thread that owns the connection. Steps that arrive while it commits share the next commit.

    A brief step is executed by its caller instead, if the thread has nothing to do and the last commit was quick:
    handing it over and waiting for the answer would take longer than the step.
    """

    def __init__(self, writer: Writer, notifier: LocalNotifier, clock: Clock) -> None:
        self._writer = writer
        self._notifier = notifier
        self._clock = clock
        self._name = f"toril-{writer.database.kind}"
        self._gate = threading.Lock()  # so that nothing is queued after the request to stop
        self._orders: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._checked = 0.0
        self._active = 0.0
        self._tidied = True
        self._serving = False  # whether the thread has requests to serve
        self._performing = False  # whether a step is being executed
        self._quick = False  # whether the last commit was
        self.turn = threading.RLock()  # held while the connection is in use
        writer.database.watch(self)

    async def start(self) -> None:
        with self._gate:
            if self._thread is None:  # or another caller would start it as well
                self._orders = queue.SimpleQueue()
                self._thread = threading.Thread(target=self._main, args=(self._orders,), name=self._name, daemon=True)
                self._thread.start()
        try:
            await self._ask(lambda writer: writer.open())
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        with self._gate:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            closed = _Request(None, _close)
            self._orders.put(closed)
            self._orders.put(None)
        await closed.future
        thread.join()

    def let_go(self) -> None:
        self._writer.let_go()

    def abandon(self) -> None:
        self._thread = None

    async def write(self, op: Op[T], now: int | None, *, grows: bool = False, brief: bool = False) -> T:
        step = PendingStep(op, now, grows=grows)
        if brief and self._perform_here(step):
            await _next_turn()  # or a coroutine that adds one job after another would hold up all others
            return _answer(step)
        answer: T = await self._send(_Request(step, None))
        return answer

    def _perform_here(self, step: PendingStep[Any]) -> bool:
        """Execute a step in the caller's thread. False: it was not executed, because that might take long."""
        if not self._quick or self._serving or self._performing or not self._orders.empty():
            return False
        with self.turn:  # nobody was using the connection a moment ago, so this hardly ever waits
            if self._thread is None:
                return False
            done = self._timed(lambda: self._writer.perform_at_once(step))
            if self._tidied:
                self._tidied = False
                self._orders.put(_Request(None, _do_nothing))  # so that the thread tidies up later
        return done

    def _timed(self, perform: Callable[[], T]) -> T:
        """Commit something, and note whether that was quick."""
        begun, self._performing = self._clock.monotonic(), True
        try:
            return perform()
        finally:
            self._active, self._performing = self._clock.monotonic(), False
            self._quick = self._active - begun <= _QUICK

    async def read(self, op: Op[T], now: int | None) -> T:
        return await self._ask(lambda writer: writer.read(op, now))

    async def health(self) -> Health:
        return await self._ask(lambda writer: writer.health())

    async def _ask(self, what: Callable[[Writer], T]) -> T:
        answer: T = await self._send(_Request(None, what))
        return answer

    async def _send(self, ordered: _Request) -> Any:
        with self._gate:
            if self._thread is None:
                raise Closed("the store is not open; open it with `async with app:`")
            self._orders.put(ordered)
        return await ordered.future

    def _main(self, arriving: "queue.SimpleQueue[_Request | None]") -> None:
        stopping = False
        while not stopping:
            orders, stopping = self._take(arriving)
            with self._using_connection():
                answers = self._serve(orders)
            _deliver_all(answers)
            self._check_others()
        with self.turn, contextlib.suppress(Exception):
            self._writer.close()

    @contextlib.contextmanager
    def _using_connection(self) -> Generator[None, None, None]:
        self._serving = True
        try:
            with self.turn:
                yield
        finally:
            self._serving = False

    def _take(self, arriving: "queue.SimpleQueue[_Request | None]") -> tuple[list[_Request], bool]:
        """The requests that have arrived, up to one group, and whether to stop after it."""
        orders: list[_Request] = []
        try:
            ordered = arriving.get(timeout=self._patience())
            while ordered is not None:
                orders.append(ordered)
                if len(orders) == _GROUP:
                    return orders, False
                ordered = arriving.get_nowait()
        except queue.Empty:
            return orders, False
        return orders, True

    def _patience(self) -> float | None:
        """How long to wait for a request: not long if someone waits for other processes' commits."""
        if self._notifier.names:
            return self._check_every()
        return None if self._tidied else _IDLE

    def _check_every(self) -> float:
        return self._writer.database.check_every(notified=self._notifier.is_notified)

    def _serve(self, orders: list[_Request]) -> list[_Answer]:
        wanted = [ordered for ordered in orders if not ordered.future.cancelled()]
        steps = [ordered.step for ordered in wanted if ordered.step is not None]
        if steps:
            try:
                self._timed(lambda: self._writer.perform(steps))
            except Exception as error:  # a bug; the thread must live on, or every later caller would hang
                for step in steps:
                    step.error = error
            self._tidied = False
        return [(ordered, *self._outcome(ordered)) for ordered in wanted]

    def _outcome(self, ordered: _Request) -> tuple[Any, BaseException | None]:
        if ordered.step is not None:
            return ordered.step.answer, ordered.step.error
        try:
            return (ordered.read(self._writer) if ordered.read else None), None
        except Exception as error:
            return None, error

    def _check_others(self) -> None:
        """Check whether other processes committed; after a while without requests, tidy up."""
        now = self._clock.monotonic()
        with contextlib.suppress(Exception):  # a failed check is repeated; steps report their own errors
            if self._notifier.names and now - self._checked >= self._check_every():
                self._checked = now
                with self._using_connection():
                    changed = self._writer.changed()
                if changed:
                    self._notifier.notify_all()
            if not self._tidied and now - self._active >= _IDLE:
                self._active = now
                with self._using_connection():
                    self._tidied = self._writer.tidy_up()


def _close(writer: Writer) -> None:
    """Close for good, and warn if jobs are lost by that."""
    left = writer.unfinished() if writer.database.in_memory else 0
    writer.close()
    if left:
        # If the caller's filters turn the warning into an error, everything must still be closed.
        with contextlib.suppress(Warning):
            warnings.warn(
                f"{left} unfinished jobs were lost when the in-memory store was closed",
                RuntimeWarning,
                stacklevel=2,
            )


@types.coroutine
def _next_turn() -> Generator[None, None, None]:
    """Let the event loop go on with others first."""
    yield


def _do_nothing(writer: Writer) -> None:
    """For a request that only wakes the thread."""


def _deliver_all(answers: list[_Answer]) -> None:
    """Hand each loop its answers."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Answer]] = {}
    for answer in answers:
        by_loop.setdefault(answer[0].loop, []).append(answer)
    for loop, own in by_loop.items():
        hand_over(loop, _deliver, own)


def _deliver(answers: list[_Answer]) -> None:
    for ordered, answer, error in answers:
        ordered.deliver(answer, error)


class ReaderThread:
    """A second thread and connection, so that long reads never hold up a commit."""

    def __init__(self, database: SqlDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._name = f"toril-{database.kind}-read"
        self._pool: ThreadPoolExecutor | None = None
        self._connection: SqlConnection | None = None
        self.turn = threading.RLock()  # held while the connection is in use
        database.watch(self)

    async def read(self, op: Op[T], now: int | None) -> T:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, op, now)

    async def stop(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            closed = asyncio.get_running_loop().run_in_executor(pool, self._close)
            pool.shutdown(wait=False)
            await closed

    def let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abandon(self) -> None:
        self._pool = None

    def _read(self, op: Op[T], now: int | None) -> T:
        """Read from one view of the store, whatever is committed meanwhile."""
        with self.turn:
            self._database.check()
            try:
                connection = self._connection = self._connection or self._database.open_reader()
                connection.execute("BEGIN")
                try:
                    tx = transaction(connection, self._database.dialect)
                    tx.now = self._database.now() if now is None else now
                    return op(tx)
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            except self._database.faults as error:
                self.let_go()
                raise self._database.translated(error) from error

    def _close(self) -> None:
        with self.turn:
            self.let_go()
