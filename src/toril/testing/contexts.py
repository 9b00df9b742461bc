"""Contexts for unit tests of handlers, which record what is reported."""

import inspect
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from toril.codec.encoding import decode, encode
from toril.context import JobContext, RunsAs, Signal, StopReason, SyncJobContext
from toril.errors import JobCancelled, LeaseLost, RateLimited, Snooze, StepFailed, UsageError, error_text
from toril.handlers import result_of_handler
from toril.job import Job
from toril.model import (
    Checkpoint,
    Child,
    ChildCounts,
    ChildState,
    Claimed,
    DataUpdate,
    FlowNode,
    JobRef,
    Lease,
    LogLine,
    Progress,
    Report,
    SignalWait,
    Verdict,
)
from toril.policy.retry import lineage
from toril.task import Task

__all__ = ["Recorded", "SyncTestContext", "TestContext", "context", "sync_context"]

T = TypeVar("T")


class Recorded:
    """What a handler reported through its context, in order."""

    def __init__(self) -> None:
        self.progress: list[Any] = []
        self.logs: list[str] = []
        self.checkpoints: list[Any] = []
        self.data: list[Any] = []
        self.added: list[FlowNode] = []
        self.children_given: Mapping[str, Any] = {}
        self.open = 0
        self.rounds = 0
        self.steps = GivenSteps({}, {})

    @property
    def steps_used(self) -> "GivenSteps":
        return self.steps

    async def report(self, report: Report) -> Verdict:
        match report:
            case Progress(_, value):
                self.progress.append(decode(value))
            case LogLine(_, line):
                self.logs.append(line)
            case Checkpoint(_, value):
                self.checkpoints.append(decode(value))
            case DataUpdate(_, data):
                self.data.append(decode(data))
        return Verdict.OK

    async def family(self, claimed: Claimed) -> ChildCounts:  # noqa: ARG002 - a context has one job
        return ChildCounts(open=self.open, completed=len(self.children_given))

    async def children(self, claimed: Claimed) -> list[Child]:
        queue = claimed.lease.queue
        return [
            Child(JobRef(queue, identity), ChildState.COMPLETED, encode(value))
            for identity, value in self.children_given.items()
        ]

    async def named_children(self, claimed: Claimed) -> list[Child]:
        return [replace(child, number=number) for number, child in enumerate(await self.children(claimed))]

    def runs_as(self, claimed: Claimed, handler: Any) -> list[RunsAs]:
        read = handler.runs_as().read if isinstance(handler, Task) else result_of_handler(handler).decode
        return [RunsAs(claimed.lease.queue, frozenset(), read)]

    async def add_children(self, claimed: Claimed, nodes: Sequence[FlowNode]) -> Verdict:  # noqa: ARG002 - as above
        self.added += nodes
        self.open += len(nodes)
        return Verdict.OK

    def children_round(self) -> int:
        self.rounds += 1
        return self.rounds - 1

    def job(self, claimed: Claimed) -> Job[Any]:
        raise UsageError(
            f"job {claimed.lease.id} of a test context is in no queue; use `memory(app)` if the test needs one"
        )


class GivenSteps:
    """The durable steps of a test context. Steps in `given` have those values; others run. Sleeps are over at once,
    and so are waits for which `signals` has nothing left; `names` has everything that was asked for, in order."""

    resting = False
    replaying = False

    def __init__(self, given: Mapping[str, Any], signals: Mapping[str, Sequence[Any]]) -> None:
        self.given = given
        self.signals = {name: list(payloads) for name, payloads in signals.items()}
        self.names: list[str] = []

    async def begin(self) -> None:
        """There is nothing to record."""

    def step(self, name: str, fn: Any, args: tuple[Any, ...], /, **options: Any) -> Coroutine[Any, Any, Any]:
        return self._step(self._asked(name, options.get("key")), fn, args)

    async def _step(self, key: str, fn: Any, args: tuple[Any, ...]) -> Any:
        if key in self.given:
            return self.given[key]
        with _failing(key):
            found = fn(*args)
            return await found if inspect.isawaitable(found) else found

    def step_blocking(self, name: str, fn: Any, args: tuple[Any, ...], /, **options: Any) -> Any:
        key = self._asked(name, options.get("key"))
        if key in self.given:
            return self.given[key]
        with _failing(key):
            return fn(*args)

    async def sleep(self, name: str, /, **_: Any) -> None:
        self._asked(name)

    async def wait_for(
        self,
        signals: Mapping[SignalWait, Any],
        /,
        *,
        timeout: int | None = None,  # noqa: ARG002 - nothing else will come
    ) -> tuple[SignalWait, Any] | None:
        self._asked("+".join(wait.name for wait in signals))
        for wait in signals:
            if self.signals.get(wait.name):
                return wait, self.signals[wait.name].pop(0)
        return None

    async def version(self, name: str, newest: int, /) -> int:
        return int(self.given.get(self._asked(name), newest))

    async def call(self, name: str, jobs: Sequence[Any], /, *, key: str | None = None) -> list[Any]:
        asked = self._asked(name, key)
        if asked not in self.given:
            raise UsageError(f"give the results of step {asked!r}: context(…, steps={{{asked!r}: …}})")
        value = self.given[asked]
        return [value] if len(jobs) == 1 else list(value)

    async def gather(self, *branches: Coroutine[Any, Any, T], name: str, limit: int | None) -> list[T]:  # noqa: ARG002
        return [await branch for branch in branches]

    def _asked(self, name: str, key: str | None = None) -> str:
        base = name if key is None else f"{name}:{key}"
        self.names.append(base)
        number = self.names.count(base)
        return base if number == 1 else f"{base}#{number}"


@contextmanager
def _failing(key: str) -> Iterator[None]:
    """A step fails as it does in a worker."""
    try:
        yield
    except (Snooze, RateLimited, JobCancelled, LeaseLost):
        raise
    except Exception as error:
        raise StepFailed(key, type(error).__name__, error_text(error), lineage(error)) from error


class TestContext(JobContext[T]):
    """A context for a unit test of an `async def` handler."""

    __test__ = False
    __slots__ = ("recorded",)

    recorded: Recorded

    def cancel(self, reason: str = "No reason provided") -> None:
        """Ask the handler to stop, as an operator would."""
        self.signal.fire(StopReason.CANCELLED, reason)


class SyncTestContext(SyncJobContext[T]):
    """A context for a unit test of a plain `def` handler."""

    __slots__ = ("recorded",)

    recorded: Recorded

    def cancel(self, reason: str = "No reason provided") -> None:
        """Ask the handler to stop, as an operator would."""
        self.signal.fire(StopReason.CANCELLED, reason)


def context(
    data: T,
    *,
    job_id: str = "1",
    job_name: str = "job",
    queue: str = "test",
    attempt: int = 1,
    attempts: int = 5,
    metadata: Mapping[str, Any] | None = None,
    checkpoint: Any = None,
    state: Any = None,
    children: Mapping[str, Any] | None = None,
    steps: Mapping[str, Any] | None = None,
    signals: Mapping[str, Sequence[Any]] | None = None,
) -> TestContext[T]:
    """A context for a unit test of an `async def` handler, without a store. `recorded` has what the handler reports;
    `steps` has the values of durable steps by name, and those that are not in it run. `signals` has what waits get, by
    name, in order; a wait for which nothing is left has run out of time."""
    recorded = _recorded(children, steps, signals)
    claimed = _claimed(job_id, job_name, queue, attempt, attempts, metadata, checkpoint)
    made = TestContext(data, claimed, recorded, Signal(), state)
    made.recorded = recorded
    return made


def sync_context(
    data: T,
    *,
    job_id: str = "1",
    job_name: str = "job",
    queue: str = "test",
    attempt: int = 1,
    attempts: int = 5,
    metadata: Mapping[str, Any] | None = None,
    checkpoint: Any = None,
    state: Any = None,
    children: Mapping[str, Any] | None = None,
    steps: Mapping[str, Any] | None = None,
    signals: Mapping[str, Sequence[Any]] | None = None,
) -> SyncTestContext[T]:
    """A context for a unit test of a plain `def` handler; see `context`."""
    recorded = _recorded(children, steps, signals)
    claimed = _claimed(job_id, job_name, queue, attempt, attempts, metadata, checkpoint)
    made = SyncTestContext(data, claimed, recorded, Signal(), state, _at_once)
    made.recorded = recorded
    return made


def _recorded(
    children: Mapping[str, Any] | None, steps: Mapping[str, Any] | None, signals: Mapping[str, Sequence[Any]] | None
) -> Recorded:
    recorded = Recorded()
    recorded.children_given = children or {}
    recorded.steps = GivenSteps(steps or {}, signals or {})
    return recorded


def _claimed(
    job_id: str, name: str, queue: str, attempt: int, attempts: int, metadata: Mapping[str, Any] | None, checkpoint: Any
) -> Claimed:
    return Claimed(
        Lease(queue, job_id, "test"),
        name,
        "null",
        attempt,
        attempt,
        attempts,
        attempt - 1,
        0,
        0,
        0,
        0,
        None if metadata is None else encode(dict(metadata)),
        None if checkpoint is None else encode(checkpoint),
    )


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, such as those of a recorded context."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    raise UsageError("a test context cannot wait; use `memory(app)` to test code that waits")
