"""Durable steps of one run of a handler: what it has recorded, what it records, and when it rests."""

import asyncio
import concurrent.futures
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import count, zip_longest
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol, TypeVar, get_type_hints

from toril.client.producer import PreparedJob
from toril.codec.encoding import Serializer, decode
from toril.codec.payload import Payload, payload_for
from toril.codec.steps import (
    digest_of,
    dump_calls,
    dump_failure,
    dump_retry,
    dump_waits,
    load_calls,
    load_failure,
    load_received,
    load_retry,
    load_step,
    load_version,
)
from toril.context import Reporter, Signal, StepInfo, step_info, stopped
from toril.errors import (
    CallTooLate,
    EngineUnavailable,
    InvalidOption,
    InvalidPayload,
    JobCancelled,
    LeaseLost,
    PayloadTooLarge,
    RateLimited,
    Resting,
    Snooze,
    StepChanged,
    StepClash,
    StepFailed,
    StepsTooLarge,
    TorilError,
    Undecodable,
    error_text,
    preview,
)
from toril.flow import Flow, Node, planned_nodes
from toril.model import (
    BATCH,
    MANY_STEP_BYTES,
    MANY_STEPS,
    MAX_BRANCHES,
    MAX_DELAY,
    RECORDED_AT_ONCE,
    RECORDED_BYTES,
    Call,
    Child,
    ChildState,
    Claimed,
    FlowNode,
    JobRef,
    Lease,
    LogLine,
    RecordedSteps,
    Rest,
    Rested,
    SignalWait,
    StepAnswer,
    StepFailure,
    StepKind,
    StepReport,
    StepRetry,
    StepRow,
    StepVerdict,
    Verdict,
    branch_scope,
    called_job,
    check_int,
    stored_key,
)
from toril.policy.redaction import redacted
from toril.policy.retry import Nature, Retry, delay_before_retry, lineage, nature_of
from toril.runtime.clock import Clock, yield_to_ready
from toril.runtime.hooks import StepChecks
from toril.runtime.logs import Contact, log, outages
from toril.runtime.services import Tracing
from toril.store.capabilities import StepStore

__all__ = ["AttemptSteps", "StepServices", "StepWriter", "StepWriting", "run_on_loop"]

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

_LOOK: Final = 1.0  # seconds between two looks for what a branch waits for, while others run
_QUIET_TURNS: Final = 3  # of the loop, without a step under way, after which tasks that are not branches count as quiet
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_NO_FAILURES: Final = (Snooze, RateLimited, LeaseLost, StepClash, StepsTooLarge)  # say what becomes of the job


_branch: contextvars.ContextVar["_Branch | None"] = contextvars.ContextVar("toril_branch", default=None)


@dataclass(slots=True, eq=False)
class _Branch:
    """One of the coroutines of a gather."""

    scope: str
    parent: "_Branch | None"
    places: asyncio.Semaphore | None
    task: "asyncio.Task[Any] | None" = None
    steps: int = 0  # under way, in it and in the branches within it
    leaving: bool = False  # it is cancelled as soon as no step is under way
    awake: int = 0  # itself, or branches within it, that do not rest
    has_place: bool = False
    entering: asyncio.Lock = field(default_factory=asyncio.Lock)

    def wake(self) -> None:
        self.awake += 1
        if self.awake == 1 and self.parent is not None:
            self.parent.wake()

    async def enter(self) -> None:
        """Wait for a place, further out first. One that is awake keeps its own."""
        if self.parent is not None:
            await self.parent.enter()
        if self.places is not None and not self.has_place:
            async with self.entering:
                if not self.has_place:
                    await self.places.acquire()
                    self.has_place = True

    def doze(self) -> None:
        """It has ended, or rests. If all of a branch does, another can have its place."""
        self.awake -= 1
        if self.awake:
            return
        if self.places is not None and self.has_place:
            self.has_place = False
            self.places.release()
        if self.parent is not None:
            self.parent.doze()

    def leave(self) -> None:
        self.leaving = True
        if not self.steps and self.task is not None:
            self.task.cancel()


@dataclass(slots=True, eq=False)
class _OpenRest:
    """What some task of the handler waits for. `until` is when that is over, if the store has said so."""

    rest: Rest
    children: tuple[FlowNode, ...]
    branch: _Branch | None
    over: "asyncio.Future[None]"


Execute = Callable[[Callable[[], Any], float | None], Awaitable[Any]]


class StepWriting(Protocol):
    """Writes rows, and reads signals, until that is answered."""

    async def record(self, report: StepReport, signal: Signal) -> StepAnswer: ...

    async def receive(self, lease: Lease, key: str, signals: Sequence[SignalWait], signal: Signal) -> StepAnswer: ...

    async def unread(self, lease: Lease, signal: Signal) -> Sequence[str]:
        """The names of the signals that nobody has read, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepServices:
    """What the steps of all attempts at one queue need. Without a `loop` there is one thread, and a rest ends the run
    at once. `unfit` hears of signals that are not of their declared type, `unread` of those that a handler has never
    read."""

    writer: StepWriting
    clock: Clock
    serializer: Serializer | None = None
    loop: asyncio.AbstractEventLoop | None = None
    unfit: Callable[[Claimed, str], None] = lambda *_: None
    unread: Callable[[Claimed, Sequence[str]], None] = lambda *_: None
    checks: StepChecks | None = None
    tracing: Tracing | None = None


class AttemptSteps:
    """What one run of a handler does by durable steps. `repeated` are the keys that the same claim has recorded before
    its handler was called again."""

    def __init__(
        self,
        services: StepServices,
        claimed: Claimed,
        reporter: Reporter,
        signal: Signal,
        repeated: frozenset[str] = frozenset(),
    ) -> None:
        recorded = claimed.steps or RecordedSteps()
        self._services = services
        self._claimed = claimed
        self._lease = claimed.lease
        self._reporter = reporter
        self._signal = signal
        self._rows = recorded.rows
        self._reruns = recorded.reruns
        self._epoch = recorded.epoch
        self._heard(recorded.now)
        self._lock = threading.Lock()  # several threads of a plain handler may draw keys
        self._asked = set[str]()
        self._drawn: dict[tuple[str, str], int] = {}
        self._owners: dict[tuple[str, str], object] = {}
        self._acted = False  # whether anything has happened that was not recorded before
        self._under_way = 0  # steps and records
        self._active = (
            0  # branches that neither rest nor wait for branches within them; and failed ones of open gathers
        )
        self._open: list[_OpenRest] = []
        self._moves = 0
        self._watch: asyncio.Task[None] | None = None
        self._failures: list[StepReport] = []  # of steps, of which it is not known yet whether the handler goes on
        self._recording_failures = asyncio.Lock()
        self._idle: list[asyncio.Future[None]] = []
        self._warned = False
        self._ended = False
        self._repeated = repeated
        self._waited = False  # whether it has asked for a signal
        self.rested: Rested | None = None
        self.again = False  # whether the handler is left only to be called again at once

    # what the context tells

    @property
    def resting(self) -> bool:
        """Whether the handler is being left to rest."""
        return self.rested is not None

    @property
    def busy(self) -> bool:
        """Whether a step or a record is under way."""
        return self._under_way > 0

    @property
    def replaying(self) -> bool:
        """Whether this run has only repeated what earlier ones have recorded, and there is more of it."""
        return not self._acted and any(key not in self._asked for key in self._rows)

    # keys

    def draw(self, name: str, key: str | None = None) -> str:
        """The stored key of a step that is asked for now. Each can be asked for once in a run."""
        with self._lock:
            scope, number = self._count(name, name, key)
            stored = stored_key(scope, name, key, number)
            if stored in self._asked:
                raise self._clash(f"step {stored!r} is asked for twice in one run; give each its own key=…")
            self._asked.add(stored)
            self._moves += 1
        return stored

    def _count(self, name: str, place: str, key: str | None) -> tuple[str, int]:
        """The scope in which a name is asked for, and which one of its name this is there."""
        if self._ended:
            raise LeaseLost(f"the attempt at job {self._lease.id} is over, so it takes no more steps")
        within = step_info.get()
        if within is not None:
            raise TypeError(f"step {name!r} cannot begin within step {within.key!r}; call it from the handler")
        branch = _branch.get()
        scope = "" if branch is None else branch.scope
        if key is not None:
            return scope, 1
        if self._owners.setdefault((scope, place), _task()) is not _task():
            raise self._clash(
                f"step {name!r} is taken by two tasks, whose order is not certain when the job runs again: "
                "give it key=…, or start the tasks by ctx.gather()"
            )
        self._drawn[scope, place] = number = self._drawn.get((scope, place), 0) + 1
        return scope, number

    def _clash(self, why: str) -> StepClash:
        return self._differs(StepClash(why))

    def _differs(self, error: E) -> E:
        """Two runs of this code differ, or may: a test wants to know."""
        if self._services.checks is not None:
            self._services.checks.differs(JobRef(self._lease.queue, self._lease.id), error)
        return error

    # steps

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        *,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: int | None = None,
        result: Any = None,
        execute: Execute | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """The value of a step: the recorded one, or that of `fn`, which is recorded before it is returned. Its key is
        drawn now, so that steps are numbered in the order of the text."""
        if not callable(fn):
            raise TypeError(f"a step needs a function, not {preview(fn)}")
        if retry is not None and not isinstance(retry, Retry):
            raise InvalidOption(f"retry must be a Retry(attempts, backoff), not {preview(retry)}")
        run = run_on_loop(self._services.clock) if execute is None else execute
        return self._step(self.draw(name, key), name, fn, args, run, retry, timeout, result)

    def step_blocking(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...] = (), /, **options: Any) -> Any:
        """The same for a plain handler, in whose thread the function runs; one with a timeout runs in another."""
        _check_plain(name, fn)
        loop = self._services.loop
        if loop is None:
            return _drive(self.step(name, fn, args, execute=_run_here, **options))
        calls = SimpleQueue[_CallHere | None]()
        elsewhere = run_on_loop(self._services.clock)

        async def execute(call: Callable[[], Any], timeout: float | None) -> Any:
            if timeout is not None:
                return await elsewhere(call, timeout)
            order = _CallHere(partial(contextvars.copy_context().run, call), loop.create_future())
            calls.put(order)
            return await order.future

        done = asyncio.run_coroutine_threadsafe(self.step(name, fn, args, execute=execute, **options), loop)
        done.add_done_callback(lambda _: calls.put(None))
        while (order := calls.get()) is not None:
            order.run(loop)
        try:
            return done.result()
        except concurrent.futures.CancelledError:
            raise JobCancelled("the worker is shutting down") from None

    async def _step(
        self,
        key: str,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        execute: Execute,
        retry: Retry | None,
        timeout: int | None,
        result: Any,
    ) -> Any:
        await self.begin()
        digest = digest_of(args)
        annotation = _annotation(fn) if result is None else result
        payload = _payload(f"the value of step {name!r}", annotation, self._services.serializer)
        row = self._recorded(key, "a step", StepKind.DONE, StepKind.FAILED, StepKind.RETRY)
        tries = 0
        if row is not None:
            await self._compare(row, digest)
            if row.kind is StepKind.DONE:
                return _read(key, row, payload)
            if row.kind is StepKind.FAILED:
                failure = _load(key, load_failure, row)
                raise StepFailed(key, failure.kind, failure.reason, failure.lineage)
            tries = _load(key, load_retry, row).tries
            if (row.until or 0) > self._store_now():
                await self._rest(Rest(key=key, kind=StepKind.RETRY, text=row.text, recorded=True), until=row.until)
        delay = 0
        while True:
            self._check_left()
            tries += 1
            with self._busy():
                began = self._services.clock.monotonic()
                info = StepInfo(name, key, tries, self._idempotency(key))
                outcome = await self._try(info, fn, args, execute, timeout)
                took = max(0, round((self._services.clock.monotonic() - began) * 1000))
                if not isinstance(outcome, _FailedTry):
                    report = StepReport(self._lease, key, StepKind.DONE, _encoded(payload, outcome, name), took, digest)
                    answer = await self._record(report)
                    if answer.row is None:
                        return payload.decode(report.text)
                    return _read(key, self._row(key, answer.row, "a step", StepKind.DONE), payload)
            error = outcome.error
            failure = StepFailure(type(error).__name__, redacted(error_text(error)), lineage(error))
            if retry is None or tries >= retry.attempts or nature_of(error, retry.table) is Nature.PERMANENT:
                report = StepReport(self._lease, key, StepKind.FAILED, dump_failure(failure), took, digest)
                self._failures.append(report)
                raise StepFailed(key, failure.kind, failure.reason, failure.lineage) from error
            delay = self._delay(retry, tries, delay, error)
            if delay:
                text = dump_retry(StepRetry(tries, failure.kind, failure.reason))
                await self._rest(Rest(key=key, kind=StepKind.RETRY, text=text, delay=delay, digest=digest))

    async def _try(
        self, info: StepInfo, fn: Callable[..., Any], args: tuple[Any, ...], execute: Execute, timeout: int | None
    ) -> Any:
        """What the function returns, or the error by which this try has failed."""
        self._acted = True
        before = step_info.set(info)
        try:
            tracing = self._services.tracing
            with nullcontext() if tracing is None else tracing.step(info.name, info.key, info.tries):
                return await execute(partial(fn, *args), None if timeout is None else timeout / 1000)
        except _NO_FAILURES:
            raise
        except JobCancelled as error:
            if error.job_id is None:
                raise
            return _FailedTry(error)
        except _TimeIsOver as error:
            why = f"step {info.name!r} ran for longer than its timeout of {(timeout or 0) / 1000:g} s"
            return _FailedTry(TimeoutError(why).with_traceback(error.__traceback__))
        except Exception as error:
            return _FailedTry(error)
        finally:
            step_info.reset(before)

    def _delay(self, retry: Retry, tries: int, previous: int, error: BaseException) -> int:
        chance = self._services.clock.random()
        delay = delay_before_retry(retry.wire(), failures=tries, previous=previous, chance=chance)
        asked = getattr(error, "retry_after", None)
        if isinstance(asked, int | float) and not isinstance(asked, bool) and asked >= 0:
            delay = max(delay, round(asked * 1000))
        return min(delay, MAX_DELAY)

    def _idempotency(self, key: str) -> str:
        return f"{self._lease.queue}:{self._lease.id}:{self._epoch}:{key}"

    def sleep(self, name: str, *, delay: int | None = None, until: int | None = None) -> Coroutine[Any, Any, None]:
        """Return when this much time has passed since the sleep began, or at `until`; meanwhile the job rests."""
        return self._sleep(self.draw(name), delay, until)

    async def _sleep(self, key: str, delay: int | None, until: int | None) -> None:
        await self.begin()
        row = self._recorded(key, "a sleep", StepKind.SLEEP)
        if row is None and until is not None:
            answer = await self._record(StepReport(self._lease, key, StepKind.SLEEP, until=max(0, until)))
            row = self._row(key, answer.row, "a sleep", StepKind.SLEEP)
        if row is None:
            await self._rest(Rest(key=key, kind=StepKind.SLEEP, delay=delay))
        elif (row.until or 0) > self._store_now():
            await self._rest(Rest(key=key, kind=StepKind.SLEEP, recorded=True), until=row.until)

    def wait_for(
        self, signals: Mapping[SignalWait, Any], *, timeout: int | None = None
    ) -> Coroutine[Any, Any, tuple[SignalWait, Any] | None]:
        """The oldest of these signals, read once, with its payload, of the type that is given for it; None if none has
        come in time."""
        serializer = self._services.serializer
        payloads = {
            wait: _payload(f"the signal {preview(wait.name)}", annotation, serializer)
            for wait, annotation in signals.items()
        }
        self._waited = True
        return self._wait_for(self.draw("+".join(signal.name for signal in signals)), payloads, timeout)

    async def _wait_for(
        self, key: str, signals: Mapping[SignalWait, Payload], timeout: int | None
    ) -> tuple[SignalWait, Any] | None:
        await self.begin()
        waits = tuple(signals)
        row = self._recorded(key, "a wait", StepKind.WAIT, StepKind.RECEIVED)
        while True:
            if row is None or row.kind is StepKind.WAIT:
                received = await self._receive(key, waits)
                if received is not None:
                    row = self._row(key, received, "a wait", StepKind.WAIT, StepKind.RECEIVED)
            if row is not None and row.kind is StepKind.RECEIVED:
                signal = _load(key, load_received, row)
                if signal is None:
                    return None
                try:
                    return signal.signal, signals[signal.signal].decode(signal.payload)
                except KeyError:
                    why = f"{key!r} has received the signal {signal.signal.name!r}, for which it waits no more"
                    raise StepChanged(why) from None
                except (InvalidPayload, Undecodable) as error:
                    row = await self._set_aside(key, row, waits, str(error))
                    continue
            if row is None:
                row = await self._rest(
                    Rest(key=key, kind=StepKind.WAIT, text=dump_waits(waits), delay=timeout, signals=waits)
                )
            else:
                rest = Rest(key=key, kind=StepKind.WAIT, text=row.text, signals=waits, recorded=True)
                await self._rest(rest, until=row.until)

    async def _receive(self, key: str, waits: tuple[SignalWait, ...]) -> str | None:
        with self._busy():
            answer = await self._services.writer.receive(self._lease, key, waits, self._signal)
        await self._check(key, answer)
        if answer.row is not None:
            self._acted = True
            if answer.row != self._rows.get(key):
                self._call_again()
        return answer.row

    async def _set_aside(self, key: str, row: StepRow, waits: tuple[SignalWait, ...], why: str) -> StepRow:
        """The signal that was read is not of its declared type: the wait goes on as if it had not come."""
        # A wait without a timeout has no time to give back; ten years are as good.
        until = row.until if row.until is not None else self._store_now() + MAX_DELAY
        answer = await self._write(StepReport(self._lease, key, StepKind.WAIT, dump_waits(waits), until=until))
        self._services.unfit(self._claimed, why)
        await self._log(f"the signal for {key!r} was set aside: {why}")
        self._call_again()
        return self._row(key, answer.row, "a wait", StepKind.WAIT, StepKind.RECEIVED)

    def version(self, name: str, newest: int) -> Coroutine[Any, Any, int]:
        """The recorded number. Otherwise `newest`, unless earlier code has recorded steps in this scope that are still
        to be asked for; then 0."""
        branch = _branch.get()
        scope = "" if branch is None else branch.scope
        return self._version(self.draw(name), scope, check_int("a version", newest, 0, 2**53))

    async def _version(self, key: str, scope: str, newest: int) -> int:
        await self.begin()
        row = self._recorded(key, "a version", StepKind.VERSION)
        if row is None:
            ahead = (other for other in self._rows if other not in self._asked and other.startswith(scope))
            number = 0 if any(self._holds(load_step(other, self._rows[other])) for other in ahead) else newest
            answer = await self._record(StepReport(self._lease, key, StepKind.VERSION, str(number)))
            if answer.row is None:
                return number
            row = self._row(key, answer.row, "a version", StepKind.VERSION)
        return _load(key, load_version, row)

    def call(self, name: str, jobs: Sequence[Node], *, key: str | None = None) -> Coroutine[Any, Any, list[Any]]:
        """The results of these jobs, which are added as children of this one. While they run the job rests."""
        drawn, ref, numbers = self.draw(name, key), JobRef(self._lease.queue, self._lease.id), count()

        def identity() -> str:
            return called_job(ref, self._claimed.added_at, self._epoch, drawn, next(numbers))

        nodes = planned_nodes(jobs, identity, parent=ref, on_failure="ignore")
        if len(nodes) > BATCH:
            raise InvalidOption(f"one step can call at most {BATCH} jobs, not {len(nodes)}")
        prepared = [job.job if isinstance(job, Flow) else job for job in jobs]
        return self._call(drawn, nodes, [node.ref for node in nodes if node.parent == ref], prepared)

    async def _call(
        self, key: str, nodes: Sequence[FlowNode], calls: Sequence[JobRef], prepared: Sequence[PreparedJob[Any]]
    ) -> list[Any]:
        await self.begin()
        row = self._recorded(key, "a call", StepKind.CALLED)
        called = tuple(calls) if row is None else _load(key, load_calls, row)
        recorded, missing = row is not None, row is None
        while True:
            if not missing:
                with self._busy():
                    found = {child.ref: child for child in await self._reporter.children(self._claimed)}
                children = [found[ref] for ref in called if ref in found]
                missing = len(children) < len(called)
                if not missing and all(child.state is not ChildState.OPEN for child in children):
                    texts = [_result(key, child) for child in children]
                    return [
                        decode(text) if job is None else job.queue.handlers.decode_result(job.job.name, text)
                        for job, text in zip_longest(prepared[: len(texts)], texts)
                    ]
            rest = Rest(key=key, kind=StepKind.CALLED, text=dump_calls(called), recorded=recorded)
            await self._rest(rest, children=tuple(nodes) if missing else ())
            recorded, missing = True, False

    async def gather(
        self, *branches: Coroutine[Any, Any, T], name: str = "gather", limit: int | None = None
    ) -> list[T]:
        """Run these beside each other, each within its own scope. If one fails, no more begin, and those that rest are
        left; steps under way end first."""
        try:
            for each in branches:
                _check_branch(each)
            check_int("the number of branches of a gather", len(branches), 0, MAX_BRANCHES)
            if limit is not None:
                check_int("limit", limit, 1, MAX_BRANCHES)
            await self.begin()
            scope, number = self._count(name, f"{name}[]", None)
            root = stored_key(scope, name, None, number)
        except BaseException:
            for each in branches:
                _abandon(each)
            raise
        parent, places = _branch.get(), None if limit is None else asyncio.Semaphore(limit)
        made = [_Branch(branch_scope(root, n), parent, places) for n in range(len(branches))]
        for branch, coroutine in zip(made, branches, strict=True):
            self._wake(branch)
            context = contextvars.copy_context()
            context.run(_branch.set, branch)
            branch.task = asyncio.get_running_loop().create_task(_run_branch(branch, coroutine), context=context)
            branch.task.add_done_callback(partial(self._branch_ended, branch, coroutine))
        if parent is not None:
            self._doze(parent)
        try:
            found = await self._outcomes(made)
        finally:
            self._active -= sum(_has_failed(branch.task) for branch in made)
            if parent is not None:
                self._wake(parent)
            self._look()
        if parent is not None:
            await parent.enter()
        return found

    def _branch_ended(self, branch: _Branch, coroutine: Coroutine[Any, Any, Any], task: "asyncio.Task[Any]") -> None:
        """One that has failed keeps the job from resting until its gather has raised that."""
        try:
            coroutine.close()  # of one that never began
        finally:
            self._active += _has_failed(task)
            self._doze(branch)

    def _wake(self, branch: _Branch) -> None:
        self._active += 1
        branch.wake()

    def _doze(self, branch: _Branch) -> None:
        self._active -= 1
        branch.doze()
        self._look()

    async def _outcomes(self, branches: Sequence[_Branch]) -> list[Any]:
        tasks = [branch.task for branch in branches if branch.task is not None]
        if not tasks:
            return []
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            errors = [error for task in tasks if (error := _error(task)) is not None]
            if errors and self.rested is None:
                for branch in branches:
                    branch.leave()
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        errors += [error for task in tasks if (error := _error(task)) is not None]
        real = next((error for error in errors if not isinstance(error, Resting | asyncio.CancelledError)), None)
        if real is not None:
            raise real
        if self.rested is not None:
            raise Resting(self.rested)
        if errors:
            raise errors[0]
        return [task.result() for task in tasks]

    # resting

    async def _rest(
        self, rest: Rest, children: tuple[FlowNode, ...] = (), *, until: int | None = None
    ) -> StepRow | None:
        """End this run by resting, as soon as nothing else goes on in it. Returns if that takes longer than what is
        rested for, or, for signals and children, when it is time to look again; with the row that was written."""
        self._acted = True
        if self._services.loop is None:
            self.rested = Rested(children, rests=(rest,))
            raise Resting(self.rested)
        if len(self._open) >= MAX_BRANCHES:
            raise InvalidOption(f"a job can rest for at most {MAX_BRANCHES} steps at once")
        if len(children) + sum(len(entry.children) for entry in self._open) > BATCH:
            await self._add_children(children)
            children = ()
        branch = _branch.get()
        entry = _OpenRest(rest, children, branch, asyncio.get_running_loop().create_future())
        self._open.append(entry)
        self._moves += 1
        if branch is not None:
            self._doze(branch)
        row, timer = None, None
        try:
            self._look()
            for _ in range(_QUIET_TURNS + 2):
                if not entry.over.done():
                    await yield_to_ready()
            if not entry.over.done():
                row = await self._record_in_place(entry)
                until = until if row is None else row.until
                timer = self._services.clock.later(self._pause(rest.kind, until), partial(_set, entry.over))
            await entry.over
        finally:
            if timer is not None:
                timer.cancel()
            self._open.remove(entry)
            self._moves += 1
            if branch is not None:
                self._wake(branch)
        if branch is not None:
            await branch.enter()
        return row

    async def _record_in_place(self, entry: _OpenRest) -> StepRow | None:
        """It will take a while until the job rests: have its time begin, and its children run."""
        rest = entry.rest
        with self._busy():
            if entry.children:
                await self._add_children(entry.children)
                entry.children = ()
            if rest.recorded:
                return None
            report = StepReport(self._lease, rest.key, rest.kind, rest.text, digest=rest.digest, delay=rest.delay)
            answer = await self._record(report)
            entry.rest = replace(rest, recorded=True, delay=None)
            return None if answer.row is None else self._row(rest.key, answer.row, _NOUNS[rest.kind], rest.kind)

    def _pause(self, kind: StepKind, until: int | None) -> float:
        """Seconds after which a task that rests in place goes on."""
        left = _LOOK if until is None else max(0, until - self._store_now()) / 1000
        return min(left, _LOOK) if kind in {StepKind.WAIT, StepKind.CALLED} else left

    def _look(self) -> None:
        """Something has ended, or rests: have the job rest, if nothing else goes on."""
        if self._watch is None and self._is_quiet():
            self._watch = asyncio.get_running_loop().create_task(self._leave_when_quiet())

    def _is_quiet(self) -> bool:
        busy = self._under_way or self._active or any(entry.over.done() for entry in self._open)
        return bool(self._open) and not busy and self.rested is None

    async def _leave_when_quiet(self) -> None:
        """Tasks of the handler that are not branches are not known; after some turns of the loop in which none of them
        has done anything, they count as quiet. Failures that the handler has caught are recorded before it is left."""
        try:
            while self._is_quiet():
                moves = self._moves
                for _ in range(_QUIET_TURNS):
                    await yield_to_ready()
                if moves != self._moves or not self._is_quiet():
                    continue
                if not self._failures:
                    self._leave()
                    return
                await self._record_failures()
        except (Exception, Resting) as error:
            self._leave_by(error)
        finally:
            self._watch = None

    def _leave(self) -> None:
        nodes = {node.ref: node for entry in self._open for node in entry.children}
        self.rested = Rested(tuple(nodes.values()), rests=tuple(entry.rest for entry in self._open))
        self._leave_by(Resting(self.rested))

    def _leave_by(self, error: BaseException) -> None:
        for entry in self._open:
            if not entry.over.done():
                entry.over.set_exception(error)

    async def _add_children(self, nodes: tuple[FlowNode, ...]) -> None:
        with self._busy():
            if nodes and await self._reporter.add_children(self._claimed, nodes) is not Verdict.OK:
                raise self._lost()

    # the beginning and the end of everything that a handler asks for

    async def begin(self) -> None:
        """The handler goes on: failures that it has caught are recorded before anything else happens. Raises if it was
        told to rest, or is over."""
        if self._ended:
            raise LeaseLost(f"the attempt at job {self._lease.id} is over, so it takes no more steps")
        if self.rested is not None:
            raise Resting(self.rested)
        self._check_left()
        await self._record_failures()

    async def _record_failures(self) -> None:
        if self._failures:
            async with self._recording_failures:  # whoever comes meanwhile goes on after it
                while self._failures:
                    await self._record(self._failures[0])
                    del self._failures[0]

    @staticmethod
    def _check_left() -> None:
        """Nothing begins in a branch that is to be cancelled, or within one."""
        if any(branch.leaving for branch in _with_parents(_branch.get())):
            raise asyncio.CancelledError

    async def end(self, *, returned: bool) -> None:
        """The handler has ended. Steps that other tasks of it have under way end first."""
        self._ended = True
        for entry in self._open:
            entry.over.cancel()
        if self._watch is not None:
            self._watch.cancel()
        if self._under_way and not self._signal.aborted:
            stop: asyncio.Future[Any] = asyncio.ensure_future(self._signal.wait())
            idle: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            try:
                await asyncio.wait([stop, idle], return_when=asyncio.FIRST_COMPLETED)
            finally:
                stop.cancel()
        if self.again or self._signal.aborted:
            return
        missed = sorted(self._repeated - self._asked)
        if missed and (returned or self.rested is not None):
            self._differs(AssertionError(f"{_named(missed)}: {_MISSED}"))
        if returned and self.rested is None:
            try:
                await self._tell_what_is_left()
            except TorilError as error:  # the work is done
                log.warning("what job %s has left of its steps was not looked at: %s", self._lease.id, error)

    async def _tell_what_is_left(self) -> None:
        left = sorted((key for key in self._rows if key not in self._asked), key=self._number)
        if left:
            await self._log(f"recorded, but not asked for: {_named(left)}")
        unread = await self._services.writer.unread(self._lease, self._signal) if self._waited else ()
        if unread:
            await self._log(f"signals that were never read: {_named(unread)}")
            self._services.unread(self._claimed, unread)

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """A step or a record is under way: the job does not rest meanwhile, and the branch is not cancelled."""
        chain = list(_with_parents(_branch.get()))
        self._under_way += 1
        self._moves += 1
        for branch in chain:
            branch.steps += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._moves += 1
            for branch in chain:
                branch.steps -= 1
                if branch.leaving:
                    branch.leave()
            self._look()
            if not self._under_way:
                for idle in self._idle:
                    _set(idle)

    # records

    async def _record(self, report: StepReport) -> StepAnswer:
        answer = await self._write(report)
        self._call_again()
        return answer

    def _call_again(self) -> None:
        """Something was recorded. In a test the handler may have to be called again now, to see whether it does the
        same; not before it has asked for all that it recorded under this claim, as branches may be at different
        places."""
        checks = self._services.checks
        if checks is None or not checks.replay_each or not self._repeated <= self._asked:
            return
        self.again = True
        if self.rested is None:
            self.rested = Rested()
            self._leave_by(Resting(self.rested))
        raise Resting(self.rested)

    async def _write(self, report: StepReport) -> StepAnswer:
        self._acted = True
        with self._busy():
            answer = await self._services.writer.record(report, self._signal)
            await self._check(report.key, answer)
        return answer

    async def _check(self, key: str, answer: StepAnswer) -> None:
        match answer.verdict:
            case StepVerdict.LOST | StepVerdict.MISSING:
                raise self._lost()
            case StepVerdict.FULL:
                raise StepsTooLarge(
                    f"step {key!r} was not recorded: the job would have more than 10,000 steps or 16 MB of them; "
                    "put large values elsewhere and return where they are"
                )
            case StepVerdict.CLASH:
                raise StepClash(f"another job of the queue waits for the signal of step {key!r} by the same key")
            case StepVerdict.OK:
                self._heard(answer.now)
        if not self._warned and (answer.steps >= MANY_STEPS or answer.bytes >= MANY_STEP_BYTES):
            self._warned = True
            await self._log(f"the job has recorded {answer.steps} steps of {answer.bytes:,} bytes in all")

    def _number(self, key: str) -> int:
        """Which of the job's records a row is; stores give them in any order."""
        row = load_step(key, self._rows[key])
        return 0 if row is None else row.seq

    def _lost(self) -> LeaseLost:
        return LeaseLost(f"this attempt has lost its lease on job {self._lease.id}, so its step was not recorded")

    def _recorded(self, key: str, what: str, *kinds: StepKind) -> StepRow | None:
        """The row of this key. A failure that was caught, and tries, hold for the attempt in which they happened."""
        text = self._rows.get(key)
        if text is None:
            return None
        if not self._holds(load_step(key, text)):
            return None
        return self._row(key, text, what, *kinds)

    def _holds(self, row: StepRow | None) -> bool:
        passing = row is not None and row.kind in {StepKind.FAILED, StepKind.RETRY}
        return row is None or not passing or (row.reruns, row.attempt) == (self._reruns, self._claimed.attempts_made)

    def _row(self, key: str, text: str | None, what: str, *kinds: StepKind) -> StepRow:
        row = None if text is None else load_step(key, text)
        if row is None:
            raise StepChanged(f"what is recorded of {key!r} cannot be read: {preview(text)}")
        if row.kind not in kinds:
            changed = StepChanged(f"{key!r} is {what} now, but {_NOUNS[row.kind]} is recorded under that name")
            raise self._differs(changed) if key in self._repeated else changed
        return row

    async def _compare(self, row: StepRow, digest: str | None) -> None:
        if digest is not None and row.digest is not None and digest != row.digest:
            await self._log(f"step {row.key} was recorded for other arguments; the recorded value counts")
            self._differs(AssertionError(f"step {row.key!r} was recorded for other arguments; {_ARGUMENTS}"))

    async def _log(self, line: str) -> None:
        await self._reporter.report(LogLine(self._lease, line))

    def _heard(self, now: int) -> None:
        self._now, self._heard_at = now, self._services.clock.monotonic()

    def recorded(self, rows: Mapping[str, str]) -> tuple[RecordedSteps, frozenset[str]]:
        """What the next call of the handler finds, if these are all rows, and which of them this claim has recorded."""
        steps = RecordedSteps(rows, self._reruns, self._epoch, self._store_now())
        return steps, self._repeated | (rows.keys() - self._rows.keys())

    def _store_now(self) -> int:
        """The store's time, or a little less."""
        return self._now + int((self._services.clock.monotonic() - self._heard_at) * 1000)


class _TimeIsOver(TimeoutError):
    """A step has run for longer than its own timeout."""


class _FailedTry:
    """The error of a try that has failed."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


_NOUNS: Final = {
    StepKind.DONE: "a step",
    StepKind.FAILED: "a step",
    StepKind.RETRY: "a step",
    StepKind.SLEEP: "a sleep",
    StepKind.WAIT: "a wait",
    StepKind.RECEIVED: "a wait",
    StepKind.CALLED: "a call",
    StepKind.VERSION: "a version",
}
_NAMED: Final = 20  # keys in a line of the log
_MISSED: Final = (
    "recorded, but not asked for when the handler was called again; which steps it asks for must depend only on its "
    "data and on recorded values, so put clocks, chance and whatever else may change into a step"
)
_ARGUMENTS: Final = (
    "the recorded value is used, so either the code was changed, or the arguments come from a clock, from chance or "
    "from something else that may change: put that into a step of its own"
)


def _task() -> object:
    """Who asks: the task, or in plain handlers the thread."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return threading.current_thread()


def _named(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_NAMED])}{', …' if names[_NAMED:] else ''}"


def _with_parents(branch: _Branch | None) -> Iterator[_Branch]:
    while branch is not None:
        yield branch
        branch = branch.parent


def _check_branch(given: object) -> None:
    if isinstance(given, asyncio.Future):
        raise InvalidOption("the branches of a gather are coroutines, not tasks: pass summarize(ctx, url) itself")
    if not inspect.iscoroutine(given):
        raise InvalidOption(f"the branches of a gather are coroutines, not {preview(given)}")


def _abandon(given: Any) -> None:
    """What was given as a branch is not going to run."""
    if isinstance(given, asyncio.Future):
        given.cancel()
    elif inspect.iscoroutine(given):
        given.close()


async def _run_branch(branch: _Branch, coroutine: Coroutine[Any, Any, T]) -> T:
    await branch.enter()
    return await coroutine


def _has_failed(task: "asyncio.Task[Any] | None") -> bool:
    """Whether a branch has ended otherwise than by returning, or by being left to rest."""
    error = None if task is None else _error(task)
    return error is not None and not isinstance(error, Resting)


def _error(task: "asyncio.Task[Any]") -> BaseException | None:
    if not task.done():
        return None
    return asyncio.CancelledError() if task.cancelled() else task.exception()


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _load(key: str, load: Callable[[str], T], row: StepRow) -> T:
    try:
        return load(row.text)
    except Undecodable as error:
        raise StepChanged(f"what is recorded of {key!r} cannot be read: {error}") from None


def _read(key: str, row: StepRow, payload: Payload) -> Any:
    """A recorded value, as the code declares it now."""
    try:
        return payload.decode(row.text)
    except (InvalidPayload, Undecodable) as error:
        raise StepChanged(f"what is recorded of step {key!r} is not of the declared type: {error}") from None


def _encoded(payload: Payload, value: Any, name: str) -> str:
    try:
        return payload.encode(value)
    except PayloadTooLarge as error:
        raise StepsTooLarge(f"{error}; put the value of step {name!r} elsewhere and return where it is") from None


def _result(key: str, child: Child) -> str:
    if child.state is ChildState.COMPLETED:
        return child.text or "null"
    raise StepFailed(key, "ChildFailed", child.text or "no reason is known")


def _payload(what: str, annotation: Any, serializer: Any) -> Payload:
    try:
        return _cached_payload(annotation, what, serializer)
    except TypeError:  # a type that cannot be hashed
        return payload_for(annotation, what=what, serializer=serializer)


@lru_cache(maxsize=1_000)
def _cached_payload(annotation: Any, what: str, serializer: Any) -> Payload:
    return payload_for(annotation, what=what, serializer=serializer)


def _annotation(fn: Callable[..., Any]) -> Any:
    """What a function says that it returns; anything, if it does not say or that cannot be told."""
    while isinstance(fn, partial):
        fn = fn.func
    try:
        return get_type_hints(fn if inspect.isroutine(fn) else type(fn).__call__).get("return", Any)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return Any


def _is_async(fn: Callable[..., Any]) -> bool:
    while isinstance(fn, partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn if inspect.isroutine(fn) else type(fn).__call__)


def _check_plain(name: str, fn: Callable[..., Any]) -> None:
    if callable(fn) and _is_async(fn):
        raise TypeError(f"step {name!r} of a plain handler needs a plain function, not an async one")


@dataclass(slots=True)
class _CallHere:
    """A call that a plain handler's thread has to make, for the loop and in its context."""

    call: Callable[[], Any]
    future: "asyncio.Future[Any]"

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            hand_over = partial(_hand_over, self.future, self.call(), None)
        except BaseException as error:
            hand_over = partial(_hand_over, self.future, None, error)
        loop.call_soon_threadsafe(hand_over)


async def _run_here(call: Callable[[], Any], timeout: float | None) -> Any:
    """Makes the call in this thread, or, to be able to leave it, in another."""
    if timeout is None:
        return call()
    answers = SimpleQueue[tuple[Any, BaseException | None]]()
    context = contextvars.copy_context()

    def main() -> None:
        try:
            answers.put((context.run(call), None))
        except BaseException as error:
            answers.put((None, error))

    threading.Thread(target=main, name="toril-step", daemon=True).start()
    try:
        value, error = answers.get(timeout=timeout)
    except Empty:
        raise _TimeIsOver from None
    if error is not None:
        raise error
    return value


def _drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine that never waits for a loop, as those without one are."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("a durable step cannot wait here")


def run_on_loop(clock: Clock) -> Execute:
    """Runs coroutines on the event loop, and plain functions in a thread."""

    async def run(call: Callable[[], Any], timeout: float | None) -> Any:
        if _is_async(call):
            return await _in_time(call(), timeout, clock)
        found = await _in_time(_in_thread(call), timeout, clock)
        return await _in_time(found, timeout, clock) if inspect.iscoroutine(found) else found

    return run


async def _in_time(coroutine: Coroutine[Any, Any, T], timeout: float | None, clock: Clock) -> T:
    if timeout is None:
        return await coroutine
    task = asyncio.get_running_loop().create_task(coroutine)
    late = False

    def cut() -> None:
        nonlocal late
        late = True
        task.cancel()

    timer = clock.later(timeout, cut)
    try:
        return await task
    except asyncio.CancelledError:
        if late and task.cancelled():
            raise _TimeIsOver from None
        task.cancel()
        raise
    finally:
        timer.cancel()


async def _in_thread(call: Callable[[], T]) -> T:
    """What a plain function returns, from a thread of its own, which is left if this is cancelled."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def main() -> None:
        try:
            tell = partial(_hand_over, future, context.run(call), None)
        except BaseException as error:
            tell = partial(_hand_over, future, None, error)
        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    threading.Thread(target=main, name="toril-step", daemon=True).start()
    return await future


def _hand_over(future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        raised = isinstance(error, StopIteration)  # which a future cannot hold
        future.set_exception(RuntimeError("the step raised StopIteration") if raised else error)


class StepWriter:
    """Writes the rows of one queue's attempts. What they record in one turn of the loop goes out in one call, which is
    sent again until it is answered, or all of these attempts are to stop."""

    def __init__(self, queue: str, store: StepStore, clock: Clock, sender: str) -> None:
        self._queue = queue
        self._store = store
        self._clock = clock
        self._sender = f"{sender}/{clock.unique()[:8]}s"
        self._waiting: list[tuple[StepReport, Signal, asyncio.Future[StepAnswer]]] = []
        self._task: asyncio.Task[None] | None = None
        self._lanes: list[_StepLane] = []
        self._free: list[_StepLane] = []
        self._contact = Contact()

    async def record(self, report: StepReport, signal: Signal) -> StepAnswer:
        """The store's answer to one report."""
        future: asyncio.Future[StepAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((report, signal, future))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write())
        return await future

    async def receive(self, lease: Lease, key: str, signals: Sequence[SignalWait], signal: Signal) -> StepAnswer:
        """The store's answer to a look for signals."""
        return await self._send(lambda call: self._store.receive(lease, key, signals, call=call), [signal])

    async def unread(self, lease: Lease, signal: Signal) -> Sequence[str]:
        """The names of the signals that nobody has read, oldest first."""
        rows = await self._send(lambda _: self._store.inbox(lease.queue, lease.id), [signal])
        return [row.name for row in rows]

    async def _write(self) -> None:
        while self._waiting:
            await yield_to_ready()
            batch = self._batch()
            reports = [report for report, _, _ in batch]
            try:
                answers = await self._send(
                    lambda call, reports=reports: self._store.record(self._queue, reports, call=call),  # type: ignore[misc]
                    [signal for _, signal, _ in batch],
                )
            except BaseException as error:
                for _, signal, future in batch:
                    if not future.done():
                        future.set_exception(stopped(signal) if signal.aborted else error)
                if not isinstance(error, Exception):
                    raise
                continue
            for (_, _, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    def _batch(self) -> "list[tuple[StepReport, Signal, asyncio.Future[StepAnswer]]]":
        size = count = 0
        for report, _, _ in self._waiting:
            size += len(report.text)
            if count == RECORDED_AT_ONCE or (count and size > RECORDED_BYTES):
                break
            count += 1
        batch = self._waiting[:count]
        del self._waiting[:count]
        return batch

    async def _send(self, make: Callable[[Call], Awaitable[T]], signals: Sequence[Signal]) -> T:
        lane = self._free.pop() if self._free else self._new_lane()
        call, pause = lane.call(), _FIRST_PAUSE
        try:
            while True:
                try:
                    answer = await make(call)
                except CallTooLate:
                    call = lane.call()  # the answer is gone; a row that was written is found
                    continue
                except EngineUnavailable as error:
                    outages.tell(str(error))
                    self._contact.lost()
                    if all(signal.aborted for signal in signals):
                        raise stopped(signals[0]) from error
                else:
                    self._contact.made()
                    return answer
                await self._clock.sleep(pause * (0.5 + self._clock.random() / 2))
                pause = min(pause * 2, _LONGEST_PAUSE)
        finally:
            self._free.append(lane)

    def _new_lane(self) -> "_StepLane":
        self._lanes.append(_StepLane(f"{self._sender}{len(self._lanes)}"))
        return self._lanes[-1]


class _StepLane:
    """A sender of its own, which has one call under way."""

    __slots__ = ("sender", "seq")

    def __init__(self, sender: str) -> None:
        self.sender = sender
        self.seq = 0

    def call(self) -> Call:
        self.seq += 1
        return Call(self.sender, self.seq)
