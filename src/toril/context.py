"""`JobContext` and `SyncJobContext`: what a handler gets as its argument."""

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import count
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NoReturn,
    Protocol,
    TypeAlias,
    TypeVar,
    TypeVarTuple,
    overload,
)

from toril.codec.encoding import decode, encode
from toril.errors import (
    ChildrenFailed,
    InvalidOption,
    JobCancelled,
    LeaseLost,
    RateLimited,
    Resting,
    WrongState,
    preview,
)
from toril.model import (
    BATCH,
    MAX_DELAY,
    MAX_TIMEOUT,
    Checkpoint,
    Child,
    ChildCounts,
    ChildState,
    Claimed,
    DataUpdate,
    FlowNode,
    JobRef,
    LogLine,
    Progress,
    Report,
    Rested,
    SignalWait,
    Verdict,
    ms_of,
)
from toril.model.durations import Duration, milliseconds
from toril.runtime.calls import RunBlocking
from toril.signals import SignalKind, one_kind, several_kinds

if TYPE_CHECKING:
    from toril.flow import Node, Policy
    from toril.job import Job
    from toril.policy.retry import Retry
    from toril.sync import SyncJob
    from toril.task import Task

__all__ = [
    "AnyHandler",
    "FailedChild",
    "HandlerOf",
    "JobContext",
    "RawHandler",
    "Reporter",
    "RunSteps",
    "RunsAs",
    "Signal",
    "StepInfo",
    "StopReason",
    "SyncJobContext",
    "current_context",
    "current_step",
    "current_sync_context",
    "running_context",
    "step_info",
]


class StopReason(StrEnum):
    """Why an attempt is told to stop."""

    CANCELLED = "cancelled"
    LEASE_LOST = "lease_lost"
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"


class Signal:
    """Tells an attempt to stop. Checking it costs almost nothing; it can be awaited on the event loop and waited for in
    threads."""

    __slots__ = ("_fired", "_waiting", "kind", "reason")

    def __init__(self) -> None:
        self.kind: StopReason | None = None
        self.reason: str | None = None
        self._fired: threading.Event | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def aborted(self) -> bool:
        """Whether the attempt has been told to stop."""
        return self.kind is not None

    async def wait(self) -> str:
        """Wait until the attempt is told to stop, and return the reason."""
        if self.kind is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        return self.reason or ""

    def fire(self, kind: StopReason, reason: str) -> None:
        """Tell the attempt to stop; only the first reason counts. Call it on the event loop."""
        if self.kind is not None:
            return
        self.reason = reason
        self.kind = kind
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        if self._fired is not None:
            self._fired.set()

    def event(self) -> threading.Event:
        """A `threading.Event` that is set when the attempt is told to stop."""
        if self._fired is None:
            self._fired = threading.Event()
            if self.kind is not None:
                self._fired.set()
        return self._fired


T = TypeVar("T", covariant=True)  # a handler of `int | None` takes jobs that carry an int
R = TypeVar("R")
S = TypeVar("S")
Ts = TypeVarTuple("Ts")

MAX_PROGRESS = 64 * 1024


@dataclass(frozen=True, slots=True)
class StepInfo:
    """The durable step in which code runs: its name, the key under which it is recorded, and which try it is.
    `idempotency_key` is the same each time this step runs; pass it to other systems."""

    name: str
    key: str
    tries: int
    idempotency_key: str


step_info: ContextVar[StepInfo | None] = ContextVar("toril_step", default=None)


def current_step() -> StepInfo | None:
    """The durable step in which this code runs; None outside of one."""
    return step_info.get()


running_context: ContextVar["JobContext[Any] | SyncJobContext[Any] | None"] = ContextVar("toril_context", default=None)


def current_context() -> "JobContext[Any] | None":
    """The context of the `async def` handler that has called this code, also from within its tasks and steps; None
    outside of one. Libraries use it to record steps without being given the context."""
    found = running_context.get()
    return found if isinstance(found, JobContext) else None


def current_sync_context() -> "SyncJobContext[Any] | None":
    """The same for plain `def` handlers."""
    found = running_context.get()
    return found if isinstance(found, SyncJobContext) else None


class RunSteps(Protocol):
    """The durable steps of one run of a handler. Durations are in milliseconds."""

    @property
    def resting(self) -> bool: ...

    @property
    def replaying(self) -> bool: ...

    async def begin(self) -> None: ...

    def step(
        self,
        name: str,
        fn: Any,
        args: tuple[Any, ...],
        /,
        *,
        key: str | None,
        retry: "Retry | None",
        timeout: int | None,
        result: Any,
    ) -> Coroutine[Any, Any, Any]: ...

    def step_blocking(self, name: str, fn: Any, args: tuple[Any, ...], /, **options: Any) -> Any: ...

    def sleep(
        self, name: str, /, *, delay: int | None = None, until: int | None = None
    ) -> Coroutine[Any, Any, None]: ...

    def wait_for(
        self, signals: Mapping[SignalWait, Any], /, *, timeout: int | None = None
    ) -> Coroutine[Any, Any, tuple[SignalWait, Any] | None]:
        """The oldest of these signals, with its payload, of the type that is given for it."""

    def version(self, name: str, newest: int, /) -> Coroutine[Any, Any, int]: ...

    def call(
        self, name: str, jobs: "Sequence[Node]", /, *, key: str | None = None
    ) -> Coroutine[Any, Any, list[Any]]: ...

    async def gather(self, *branches: Coroutine[Any, Any, R], name: str, limit: int | None) -> list[R]: ...


class Reporter(Protocol):
    """Sends an attempt's reports to the store, which checks each against its lease, and reads what the attempt asks
    for."""

    async def report(self, report: Report) -> Verdict: ...

    def job(self, claimed: Claimed) -> "Job[Any]": ...

    async def family(self, claimed: Claimed) -> ChildCounts: ...

    async def children(self, claimed: Claimed) -> Sequence[Child]: ...

    async def named_children(self, claimed: Claimed) -> Sequence[Child]:
        """The children with their names and numbers, where these are known."""

    def runs_as(self, claimed: Claimed, handler: Any) -> "Sequence[RunsAs]":
        """The names of a handler in all queues of the app; of a task, in its own queue."""

    async def add_children(self, claimed: Claimed, nodes: Sequence[FlowNode]) -> Verdict: ...

    def children_round(self) -> int:
        """How often this run has asked for new children before."""

    @property
    def steps(self) -> RunSteps:
        """The durable steps of this run, which begin with the first use."""

    @property
    def steps_used(self) -> RunSteps | None:
        """The same, if they have been used."""


@dataclass(frozen=True, slots=True)
class RunsAs:
    """The names under which a handler runs the jobs of a queue, and how to read its results."""

    queue: str
    names: frozenset[str]
    read: Callable[[str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedChild:
    """A child that has failed, in place of its result."""

    queue: str
    id: str
    name: str | None
    reason: str


class _Facts(Generic[T]):
    """What both kinds of context know without asking the store."""

    __slots__ = ("_claimed", "_reporter", "data", "signal", "state")

    def __init__(self, data: T, claimed: Claimed, reporter: Reporter, signal: Signal, state: Any) -> None:
        self.data = data
        self.signal = signal
        self.state = state
        self._claimed = claimed
        self._reporter = reporter

    @property
    def job(self) -> "Job[Any]":
        """The job itself, for everything that the context does not offer."""
        return self._reporter.job(self._claimed)

    @property
    def job_id(self) -> str:
        """The job's id. It is the same in every attempt, so use it as an idempotency key."""
        return self._claimed.lease.id

    @property
    def job_name(self) -> str:
        """The job's name."""
        return self._claimed.name

    @property
    def queue_name(self) -> str:
        """The name of the queue."""
        return self._claimed.lease.queue

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._claimed.attempts_made + 1

    @property
    def is_last_attempt(self) -> bool:
        """Whether the job fails for good if this attempt fails. A `PermanentError` ends it on any attempt."""
        return self.attempt >= self._claimed.max_attempts

    @property
    def fence(self) -> int:
        """A number that increases with every attempt of this job, so that other systems can reject writes of an earlier
        one."""
        return self._claimed.fence

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The fields that were added with the payload."""
        text = self._claimed.metadata
        return {} if text is None else decode(text, what="metadata")

    @property
    def carrier(self) -> str | None:
        """The producer's trace context, as text; `toril.integrations.opentelemetry` reads it."""
        return self._claimed.trace

    def is_cancelled(self) -> bool:
        """Whether this attempt should stop, for whatever reason."""
        return self.signal is not None and self.signal.kind is not None

    def raise_if_cancelled(self) -> None:
        """Raise `JobCancelled` or `LeaseLost` if this attempt should stop. Call it in long loops."""
        if self.is_cancelled():
            raise stopped(self.signal)

    @property
    def resting(self) -> bool:
        """Whether the handler is being left because its job rests. `finally` blocks then run although the job has not
        ended."""
        steps = self._reporter.steps_used
        return steps is not None and steps.resting

    @property
    def replaying(self) -> bool:
        """Whether this run has so far only repeated what earlier runs have recorded. While this is true, log lines and
        progress are not written."""
        return self._claimed.steps is not None and self._reporter.steps.replaying

    def rate_limited(self, seconds: Duration) -> NoReturn:
        """End this attempt, and start no job of this queue in any process for `seconds`; use it when a service answers
        429.

        No attempt is spent, and the job keeps its place.
        """
        raise RateLimited(seconds)


def stopped(signal: Signal) -> Exception:
    """The error that an attempt raises if it was told to stop."""
    if signal.kind is StopReason.LEASE_LOST:
        return LeaseLost(signal.reason or "the lease was lost")
    return JobCancelled(signal.reason)


class JobContext(_Facts[T]):
    """The argument of an `async def` handler. `data` is the payload, `state` what the app's lifespan yields, `signal`
    tells the attempt to stop."""

    __slots__ = ()

    async def update_progress(self, value: Any) -> None:
        """Report how far the job has got: a number, or any JSON value. Frequent calls are combined into at most ten
        writes per second."""
        await self._report(Progress(self._claimed.lease, encode(value, what="progress", limit=MAX_PROGRESS)))

    async def log(self, line: str) -> None:
        """Add a line to the job's log."""
        await self._report(LogLine(self._claimed.lease, _one_line(line)))

    async def update_data(self, data: Any) -> None:
        """Replace the payload that a retry gets."""
        await self._report(DataUpdate(self._claimed.lease, encode(data)))

    async def checkpoint(self, value: Any) -> None:
        """Save how far the job has got. When it runs again, it finds the value in `last_checkpoint`."""
        await self._report(Checkpoint(self._claimed.lease, encode(value, what="checkpoint")))

    @property
    def last_checkpoint(self) -> Any:
        """What an earlier attempt saved with `checkpoint`, or None."""
        text = self._claimed.checkpoint
        return None if text is None else decode(text, what="checkpoint")

    # durable steps

    @overload
    def step(
        self,
        name: str,
        fn: Callable[[*Ts], Coroutine[Any, Any, R]],
        /,
        *args: *Ts,
        key: str | None = None,
        retry: "Retry | None" = None,
        timeout: Duration | None = None,
        result: type[R] | None = None,
    ) -> Coroutine[Any, Any, R]: ...

    @overload
    def step(
        self,
        name: str,
        fn: Callable[[*Ts], R],
        /,
        *args: *Ts,
        key: str | None = None,
        retry: "Retry | None" = None,
        timeout: Duration | None = None,
        result: type[R] | None = None,
    ) -> Coroutine[Any, Any, R]: ...

    def step(  # type: ignore[misc]  # the first signature is the narrower one
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        retry: "Retry | None" = None,
        timeout: Duration | None = None,
        result: Any = None,
    ) -> Coroutine[Any, Any, Any]:
        """Call `fn(*args)` and record its return value with the job, so that no later run or attempt calls it again.

        Returns the value as it was recorded: plain JSON, or of the type `result` or the type that `fn` declares. If
        `fn` raises an exception, this raises `StepFailed`.

        Args:
            name: The step's name. A name that is used again is numbered, in the order of the calls.
            fn: A coroutine function, or a plain function, which runs in a thread.
            args: What it is called with.
            key: Tells steps of one name apart, in place of the number.
            retry: How often to try this step within one attempt of the job. Between tries the job rests.
            timeout: The longest time that one try may take.
            result: The type of the value, if `fn` declares none.
        """
        return self._reporter.steps.step(name, fn, args, **step_options(key, retry, timeout, result))

    async def gather(
        self, *branches: Coroutine[Any, Any, R], name: str = "gather", limit: int | None = None
    ) -> list[R]:
        """Run coroutines concurrently, at most `limit` at once, and return their results in order.

        Step names need to be unique only within each coroutine. When all of them rest, the job rests. If one fails, no
        more are started, and the error is raised when the running steps have ended.
        """
        return await self._reporter.steps.gather(*branches, name=name, limit=limit)

    async def sleep(self, name: str, duration: Duration) -> None:
        """Rest for this long, counted from when the job first gets here. A job that rests occupies no slot; afterwards,
        the handler is called again."""
        await self._reporter.steps.sleep(name, delay=milliseconds("a sleep", duration))

    async def sleep_until(self, name: str, when: datetime) -> None:
        """Rest until a time, a `datetime` with a time zone."""
        await self._reporter.steps.sleep(name, until=_aware(when))

    @overload
    async def wait_for(
        self, signal: SignalKind[S], *, timeout: Duration | None = None, key: str | None = None
    ) -> S | None: ...

    @overload
    async def wait_for(
        self, signal: str, kind: type[S], *, timeout: Duration | None = None, key: str | None = None
    ) -> S | None: ...

    @overload
    async def wait_for(self, signal: str, *, timeout: Duration | None = None, key: str | None = None) -> Any: ...

    async def wait_for(
        self,
        signal: str | SignalKind[Any],
        kind: Any = Any,
        *,
        timeout: Duration | None = None,
        key: str | None = None,
    ) -> Any:
        """Rest until a signal arrives, and return its payload, or None if `timeout` passes first. This includes signals
        that arrived earlier. Each signal is read once, in order of arrival. With a `key`, this waits for what
        `queue.signal(…, key=…)` sends. A payload that is not of the declared type is set aside, and the wait continues.
        """
        found = await self._reporter.steps.wait_for(one_kind(signal, kind, key), timeout=wait_timeout(timeout))
        return None if found is None else found[1]

    async def wait_for_any(
        self, signals: Sequence[str | SignalKind[Any]], *, timeout: Duration | None = None
    ) -> tuple[str, Any] | None:
        """Rest until one of these signals arrives, and return its name and payload, or None if `timeout` passes
        first."""
        found = await self._reporter.steps.wait_for(several_kinds(signals), timeout=wait_timeout(timeout))
        return None if found is None else (found[0].name, found[1])

    async def call(self, name: str, job: "Node", *, key: str | None = None) -> Any:
        """Run another job, made by `queue.new`, and return its result; meanwhile, this job rests. Raises `StepFailed`
        if the other job fails."""
        return (await self._reporter.steps.call(name, [job], key=key))[0]

    async def call_all(self, name: str, jobs: "Sequence[Node]", *, key: str | None = None) -> list[Any]:
        """Run other jobs and return their results in order; see `call`."""
        return await self._reporter.steps.call(name, jobs, key=key)

    async def version(self, name: str, newest: int) -> int:
        """Return which version of the code this job follows: `newest`, or 0 if the job had already passed this point
        when you added the call. The number is recorded."""
        return await self._reporter.steps.version(name, newest)

    # children

    async def has_children(self) -> bool:
        """Tell whether this job has or had children."""
        return (await self._reporter.family(self._claimed)).total > 0

    @overload
    async def children(
        self, of: "HandlerOf[Any, R] | RawHandler[R] | Task[Any, R]", *, failed: Literal["raise"] = "raise"
    ) -> list[R]: ...

    @overload
    async def children(
        self, of: "HandlerOf[Any, R] | RawHandler[R] | Task[Any, R]", *, failed: Literal["include"]
    ) -> list[R | FailedChild]: ...

    async def children(self, of: Any, *, failed: Literal["raise", "include"] = "raise") -> list[Any]:
        """Return the results of the children that this handler or task ran, in the order in which they were added.

        Children may have failed if their policy lets this job continue (`on_failure="ignore"`). Then this raises
        `ChildrenFailed`; with `failed="include"`, the list has a `FailedChild` for each of them. Raises `WrongState` if
        a child has not ended.
        """
        if failed not in ("raise", "include"):
            raise InvalidOption(f"failed must be 'raise' or 'include', not {preview(failed)}")
        runs_as = self._reporter.runs_as(self._claimed, of)
        found = [
            _outcome(child, each)
            for child in sorted(await self._reporter.named_children(self._claimed), key=_place)
            for each in runs_as
            if child.ref.queue == each.queue and (child.name is None or child.name in each.names)
        ]
        bad = [each for each in found if isinstance(each, FailedChild)]
        if bad and failed == "raise":
            reasons = "; ".join(f"{each.queue}:{each.id}: {each.reason}" for each in bad[:3])
            raise ChildrenFailed(f"{len(bad)} of {len(found)} children failed: {reasons}", failed=bad)
        return found

    async def children_values(self) -> dict[str, Any]:
        """Return the results of all children by id, or by `queue:id` if children in two queues have the same id."""
        return {
            name: decode(text or "null", what="a result")
            for name, text in await self._children_in(ChildState.COMPLETED)
        }

    async def failed_children(self) -> dict[str, str]:
        """Return the errors by id of children that failed, where their policy lets this job continue."""
        return {name: text or "" for name, text in await self._children_in(ChildState.IGNORED)}

    async def add_children(self, children: "Sequence[Node]", *, on_failure: "Policy" = "fail") -> None:
        """Add children to this job while it runs. To wait for them, call `wait_for_children` later.

        A retry, or the run after a wait, does not add them again.
        """
        await self._begin()
        round_ = self._reporter.children_round()
        if round_ >= self._claimed.parked:
            await self._add(self._nodes(children, on_failure, round_))

    async def wait_for_children(self, children: "Sequence[Node]" = (), *, on_failure: "Policy" = "fail") -> None:
        """Wait until all children have ended, including the new ones given here. Meanwhile, the job occupies no slot.

        This leaves the handler with an exception, which you must let propagate. It is called again from the start once
        the children have ended; then this call returns at once and adds nothing.
        """
        await self._begin()
        round_ = self._reporter.children_round() if children else 0
        if children and round_ >= self._claimed.parked:
            nodes = self._nodes(children, on_failure, round_)
            await self._add(nodes[:-BATCH])
            raise Resting(Rested(tuple(nodes[-BATCH:]), round_ + 1))
        if (await self._reporter.family(self._claimed)).open:
            raise Resting(Rested())

    def _nodes(self, children: "Sequence[Node]", on_failure: "Policy", turn: int) -> list[FlowNode]:
        """The nodes of new children. Their ids derive from this job's, so a retry that adds the same children adds them
        once."""
        from toril.flow import planned_nodes  # noqa: PLC0415 - a job without children does without it

        job, numbers = self._claimed, count()
        base = f"{job.lease.queue}:{job.lease.id}:{job.added_at}:{turn}"
        parent = JobRef(job.lease.queue, job.lease.id)

        def name() -> str:
            return "c" + hashlib.sha256(f"{base}:{next(numbers)}".encode()).hexdigest()[:31]

        nodes = planned_nodes(children, name, parent=parent, on_failure=on_failure)
        if len(nodes) > BATCH and any(node.waits for node in nodes):
            raise InvalidOption(f"one call can add at most {BATCH} jobs if any of them has children of its own")
        return nodes

    async def _add(self, nodes: list[FlowNode]) -> None:
        for start in range(0, len(nodes), BATCH):
            verdict = await self._reporter.add_children(self._claimed, nodes[start : start + BATCH])
            if verdict is not Verdict.OK:
                raise LeaseLost(f"this attempt has lost its lease on job {self.job_id}, so its children were not added")

    async def _children_in(self, state: ChildState) -> list[tuple[str, str | None]]:
        found = {
            child.ref: child.text for child in await self._reporter.children(self._claimed) if child.state is state
        }
        times = Counter(ref.id for ref in found)
        return [(ref.id if times[ref.id] == 1 else str(ref), text) for ref, text in sorted(found.items())]

    async def _begin(self) -> None:
        """A failed step that the handler has caught is recorded before anything else happens."""
        if self._reporter.steps_used is not None:
            await self._reporter.steps_used.begin()

    async def _report(self, report: Report) -> None:
        if self._claimed.steps is not None and isinstance(report, Progress | LogLine) and self.replaying:
            return
        await self._begin()
        if await self._reporter.report(report) is not Verdict.OK:
            raise LeaseLost(f"this attempt has lost its lease on job {self.job_id}, so its report was not stored")


class SyncJobContext(_Facts[T]):
    """The argument of a plain `def` handler: like `JobContext`, with methods that block."""

    __slots__ = ("_run",)

    def __init__(
        self,
        data: T,
        claimed: Claimed,
        reporter: Reporter,
        signal: Signal,
        state: Any,
        run: RunBlocking,
    ) -> None:
        super().__init__(data, claimed, reporter, signal, state)
        self._run = run

    def update_progress(self, value: Any) -> None:
        """Report how far the job has got; see `JobContext.update_progress`."""
        self._run(self._twin().update_progress(value))

    def log(self, line: str) -> None:
        """Add a line to the job's log."""
        self._run(self._twin().log(line))

    def update_data(self, data: Any) -> None:
        """Replace the payload that a retry gets."""
        self._run(self._twin().update_data(data))

    def checkpoint(self, value: Any) -> None:
        """Save how far the job has got. When it runs again, it finds the value in `last_checkpoint`."""
        self._run(self._twin().checkpoint(value))

    def step(
        self,
        name: str,
        fn: Callable[[*Ts], R],
        /,
        *args: *Ts,
        key: str | None = None,
        retry: "Retry | None" = None,
        timeout: Duration | None = None,
        result: type[R] | None = None,
    ) -> R:
        """Call a plain function in this thread and record what it returns; see `JobContext.step`."""
        value: R = self._reporter.steps.step_blocking(name, fn, args, **step_options(key, retry, timeout, result))
        return value

    def sleep(self, name: str, duration: Duration) -> None:
        """Rest for this long; see `JobContext.sleep`."""
        self._run(self._reporter.steps.sleep(name, delay=milliseconds("a sleep", duration)))

    def sleep_until(self, name: str, when: datetime) -> None:
        """Rest until a time, a `datetime` with a time zone."""
        self._run(self._reporter.steps.sleep(name, until=_aware(when)))

    @overload
    def wait_for(
        self, signal: SignalKind[S], *, timeout: Duration | None = None, key: str | None = None
    ) -> S | None: ...

    @overload
    def wait_for(
        self, signal: str, kind: type[S], *, timeout: Duration | None = None, key: str | None = None
    ) -> S | None: ...

    @overload
    def wait_for(self, signal: str, *, timeout: Duration | None = None, key: str | None = None) -> Any: ...

    def wait_for(
        self,
        signal: str | SignalKind[Any],
        kind: Any = Any,
        *,
        timeout: Duration | None = None,
        key: str | None = None,
    ) -> Any:
        """Rest until a signal comes, and return its payload; see `JobContext.wait_for`."""
        wait = self._reporter.steps.wait_for(one_kind(signal, kind, key), timeout=wait_timeout(timeout))
        found = self._run(wait)
        return None if found is None else found[1]

    def wait_for_any(
        self, signals: Sequence[str | SignalKind[Any]], *, timeout: Duration | None = None
    ) -> tuple[str, Any] | None:
        """Rest until one of these signals comes; see `JobContext.wait_for_any`."""
        found = self._run(self._reporter.steps.wait_for(several_kinds(signals), timeout=wait_timeout(timeout)))
        return None if found is None else (found[0].name, found[1])

    def call(self, name: str, job: "Node", *, key: str | None = None) -> Any:
        """Run another job and return its result; see `JobContext.call`."""
        return self._run(self._reporter.steps.call(name, [job], key=key))[0]

    def call_all(self, name: str, jobs: "Sequence[Node]", *, key: str | None = None) -> list[Any]:
        """Run other jobs and return their results in order; see `JobContext.call`."""
        return self._run(self._reporter.steps.call(name, jobs, key=key))

    def version(self, name: str, newest: int) -> int:
        """Return which version of the code this job follows; see `JobContext.version`."""
        return self._run(self._reporter.steps.version(name, newest))

    def has_children(self) -> bool:
        """Tell whether this job has or had children."""
        return self._run(self._twin().has_children())

    @overload
    def children(
        self, of: "HandlerOf[Any, R] | RawHandler[R] | Task[Any, R]", *, failed: Literal["raise"] = "raise"
    ) -> list[R]: ...

    @overload
    def children(
        self, of: "HandlerOf[Any, R] | RawHandler[R] | Task[Any, R]", *, failed: Literal["include"]
    ) -> list[R | FailedChild]: ...

    def children(self, of: Any, *, failed: Literal["raise", "include"] = "raise") -> list[Any]:
        """Return the results of the children that this handler or task ran; see `JobContext.children`."""
        return self._run(self._twin().children(of, failed=failed))

    def children_values(self) -> dict[str, Any]:
        """Return the results of all children by id; see `JobContext.children_values`."""
        return self._run(self._twin().children_values())

    def failed_children(self) -> dict[str, str]:
        """Return the errors by id of children that failed; see `JobContext.failed_children`."""
        return self._run(self._twin().failed_children())

    def add_children(self, children: "Sequence[Node]", *, on_failure: "Policy" = "fail") -> None:
        """Add children to this job while it runs; see `JobContext.add_children`."""
        self._run(self._twin().add_children(children, on_failure=on_failure))

    def wait_for_children(self, children: "Sequence[Node]" = (), *, on_failure: "Policy" = "fail") -> None:
        """Wait until all children have ended, including the new ones given here; see `JobContext.wait_for_children`."""
        self._run(self._twin().wait_for_children(children, on_failure=on_failure))

    @property
    def last_checkpoint(self) -> Any:
        """What an earlier attempt saved with `checkpoint`, or None."""
        return self._twin().last_checkpoint

    @property
    def job(self) -> "SyncJob[Any]":  # type: ignore[override]
        """The job itself, whose methods block too."""
        from toril.sync import SyncJob  # noqa: PLC0415 - it is made of what this module helps to make

        return SyncJob(self._reporter.job(self._claimed), self._run)

    def wait_for_cancel(self, timeout: Duration | None = None) -> bool:
        """Wait up to `timeout` for this attempt to be told to stop. Returns whether it should."""
        seconds = None if timeout is None else milliseconds("timeout", timeout) / 1000
        if self.signal is None:  # the queue was declared without cancellation
            return seconds is not None and threading.Event().wait(seconds)
        return self.signal.event().wait(seconds)

    def _twin(self) -> JobContext[T]:
        return JobContext(self.data, self._claimed, self._reporter, self.signal, self.state)


def step_options(key: str | None, retry: Any, timeout: Duration | None, result: Any) -> dict[str, Any]:
    """The options of a step, with its timeout in milliseconds."""
    return {
        "key": key,
        "retry": retry,
        "timeout": None if timeout is None else milliseconds("timeout", timeout, 1, MAX_TIMEOUT),
        "result": result,
    }


def wait_timeout(timeout: Duration | None) -> int | None:
    """How long a wait may take, in milliseconds."""
    return None if timeout is None else milliseconds("timeout", timeout, 0, MAX_DELAY)


def _aware(when: datetime) -> int:
    if not isinstance(when, datetime) or when.tzinfo is None:
        raise InvalidOption(f"a sleep ends at a datetime with a time zone, not {preview(when)}")
    return ms_of(when)


def _place(child: Child) -> tuple[bool, int, JobRef]:
    """Sort key: the order in which children were added, those with an unknown place last."""
    return child.number is None, child.number or 0, child.ref


def _outcome(child: Child, runs_as: RunsAs) -> Any:
    match child.state:
        case ChildState.COMPLETED:
            return runs_as.read(child.text or "null")
        case ChildState.OPEN:
            raise WrongState(f"child {child.ref} has not ended; call `await ctx.wait_for_children()` first")
        case ChildState.IGNORED | ChildState.FAILED:
            return FailedChild(
                queue=child.ref.queue, id=child.ref.id, name=child.name, reason=child.text or "no reason is known"
            )


# A handler, by the types of its payload and result; a raw one gets its Job, and takes any payload.
D = TypeVar("D")
HandlerOf: TypeAlias = Callable[[JobContext[D]], Awaitable[R]] | Callable[[SyncJobContext[D]], R]
RawHandler: TypeAlias = Callable[["Job[Any]"], Awaitable[R]] | Callable[["SyncJob[Any]"], R]
AnyHandler: TypeAlias = HandlerOf[Any, Any] | RawHandler[Any]


def _one_line(line: str) -> str:
    """A log entry as one line: characters that would break the line or control a terminal are escaped."""
    text = line if isinstance(line, str) else str(line)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
