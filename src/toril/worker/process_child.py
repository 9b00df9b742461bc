"""The child process in which `process_pool` runs one plain function at a time. Both sides send JSON over a pipe. The
function to call is named by the parent's registry, never by a payload."""

import importlib
import importlib.util
import json
import os
import signal as signals
import sys
import threading
import traceback
from dataclasses import asdict
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from toril.codec.new_jobs import made
from toril.context import RunsAs, Signal, StopReason, SyncJobContext, running_context
from toril.errors import (
    JobCancelled,
    LeaseLost,
    PermanentError,
    RateLimited,
    Resting,
    Snooze,
    TransientError,
    UsageError,
    error_text,
)
from toril.handlers import Handler, RegisteredHandler, Registry
from toril.model import (
    Checkpoint,
    Child,
    ChildCounts,
    ChildState,
    Claimed,
    DataUpdate,
    JobOptions,
    JobRef,
    Lease,
    LogLine,
    Progress,
    RecordedSteps,
    Report,
    Rested,
    StepAnswer,
    StepReport,
    StepVerdict,
    Verdict,
)
from toril.model.attempts import Result
from toril.model.durations import seconds_of
from toril.policy.retry import lineage
from toril.runtime.clock import SYSTEM
from toril.task import Task
from toril.worker.stacks import of_frame
from toril.worker.steps import AttemptSteps, StepServices

__all__ = ["MAIN_FILE", "REPORTS", "SIGNALS", "main"]

_LONGEST = 60_000  # characters of a text; more would not be kept
_OURS = {each.__name__: each for each in (PermanentError, TransientError, Snooze, RateLimited, JobCancelled, LeaseLost)}

MAIN_FILE = "TORIL_MAIN_FILE"
SIGNALS = (signals.SIGTERM, signals.SIGINT)  # blocked until the process can handle them

REPORTS: dict[str, Any] = {each.__name__: each for each in (Progress, LogLine, DataUpdate, Checkpoint)}


def main(descriptor: str, module: str, qualname: str, name: str) -> None:
    """Serve until the pipe closes. The first message says that the function is loaded, or why not."""
    child = _Connection(Connection(int(descriptor)))
    _leave_stopping_to_the_parent()
    try:
        entry = _load(module, qualname, name)
    except BaseException as error:
        child.send({"raised": _error_as_json(error)})
        return
    threading.Thread(target=child.listen, daemon=True).start()
    child.send({"ready": True})
    while (order := child.orders.get()) is not None:
        child.send(child.run(entry, order))


def _leave_stopping_to_the_parent() -> None:
    """Leave stopping to the parent. A service manager may signal every process. Programs that a handler starts react to
    signals as usual: signals are not ignored here, which programs would inherit, and forks get the default handlers
    again."""
    for number in SIGNALS:
        signals.signal(number, lambda *_: None)
    os.register_at_fork(before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_heed_signals)
    _unblock_signals()


def _block_signals() -> None:
    signals.pthread_sigmask(signals.SIG_BLOCK, SIGNALS)


def _unblock_signals() -> None:
    signals.pthread_sigmask(signals.SIG_UNBLOCK, SIGNALS)


def _heed_signals() -> None:
    signals.signal(signals.SIGTERM, signals.SIG_DFL)
    signals.signal(signals.SIGINT, signals.default_int_handler)
    _unblock_signals()


def _load(module: str, qualname: str, name: str) -> RegisteredHandler:
    found: Any = _main_module() if module == "__main__" else importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    registry = Registry("child")
    registry.register(name, found.fn if isinstance(found, Handler) else found)
    entry = registry.find(name)
    assert entry is not None  # noqa: S101 - it was registered one line above
    return entry


def _main_module() -> Any:
    """The script that the parent runs, imported as a module: what it guards by `__name__ == "__main__"` is not run
    here."""
    spec = importlib.util.spec_from_file_location("__toril_main__", os.environ[MAIN_FILE])
    assert spec is not None and spec.loader is not None  # noqa: PT018, S101 - a path that ran as a script
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class _Connection:
    """Sends reports to the parent and waits for verdicts; learns from it when to stop."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._verdicts: SimpleQueue[str] = SimpleQueue()
        self._signal = Signal()
        self._job: Claimed | None = None
        self._steps: AttemptSteps | None = None
        self.orders: SimpleQueue[dict[str, Any] | None] = SimpleQueue()

    def listen(self) -> None:
        try:
            while True:
                message = json.loads(self._pipe.recv_bytes())
                if "run" in message:
                    self._signal = Signal()
                    self.orders.put(message["run"])
                elif "stack" in message:
                    self.send({"stack": _stack()})
                elif "abort" in message:
                    self._signal.fire(StopReason(message["abort"][0]), message["abort"][1])
                else:
                    self._verdicts.put(message["verdict"])
        except (EOFError, OSError):
            self._signal.fire(StopReason.SHUTDOWN, "the worker is gone")
            self.orders.put(None)

    def send(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._pipe.send_bytes(json.dumps(message).encode())

    def run(self, entry: RegisteredHandler, order: dict[str, Any]) -> dict[str, Any]:
        steps = order.pop("steps")
        recorded = None if steps is None else RecordedSteps(**steps)
        options = made(JobOptions, order.pop("options"))
        job = Claimed(Lease(**order.pop("lease")), **order, options=options, steps=recorded)
        self._job, self._steps = job, None
        try:
            ctx: Any = SyncJobContext(entry.payload.decode(job.data), job, self, self._signal, None, _drive)
            running_context.set(ctx)
            returned = entry.returned(entry.handler.fn(ctx))
            if self._steps is not None:
                _drive(self._steps.end(returned=True))
        except Resting as resting:
            return _rested(job, resting.rested)
        except BaseException as error:
            if (rested := self._swallowed()) is not None:
                return {**_rested(job, rested), "caught": True}
            return {"raised": _error_as_json(error)}
        if (rested := self._swallowed()) is not None:
            return {**_rested(job, rested), "caught": True}
        return _completed(entry, returned)

    def _swallowed(self) -> Rested | None:
        """What the job rests for, although the function has caught `Resting`."""
        return None if self._steps is None or self._signal.aborted else self._steps.rested

    async def report(self, report: Report) -> Verdict:
        text = getattr(report, {"LogLine": "line", "DataUpdate": "data"}.get(type(report).__name__, "value"))
        self.send({"report": [type(report).__name__, text]})
        return Verdict(self._verdicts.get())

    async def family(self, claimed: Claimed) -> ChildCounts:  # noqa: ARG002 - there is one job at a time
        self.send({"ask": "family"})
        return ChildCounts(**json.loads(self._verdicts.get()))

    async def children(self, claimed: Claimed) -> list[Child]:  # noqa: ARG002 - as above
        self.send({"ask": "children"})
        return self._children()

    async def named_children(self, claimed: Claimed) -> list[Child]:  # noqa: ARG002 - as above
        self.send({"ask": "named_children"})
        return self._children()

    def _children(self) -> list[Child]:
        found = json.loads(self._verdicts.get())
        return [Child(JobRef(queue, identity), ChildState(state), *rest) for queue, identity, state, *rest in found]

    def runs_as(self, claimed: Claimed, handler: Any) -> list[RunsAs]:  # noqa: ARG002 - as above
        if isinstance(handler, Task):
            return [handler.runs_as()]
        raise UsageError("a handler that runs in its own process must name child jobs by task: queue.task(handler)")

    async def add_children(self, claimed: Claimed, nodes: Any) -> Verdict:  # noqa: ARG002 - as above
        raise UsageError(_no_children(claimed))

    def children_round(self) -> int:
        return 0

    @property
    def steps(self) -> AttemptSteps:
        """The durable steps of the job that runs."""
        if self._steps is None:
            assert self._job is not None  # noqa: S101 - a handler that asks for it is run with a job
            services = StepServices(
                writer=self,
                clock=SYSTEM,
                unfit=lambda _, why: self.send({"set_aside": why}),
                unread=lambda _, names: self.send({"unread": list(names)}),
            )
            self._steps = AttemptSteps(services, self._job, self, self._signal)
        return self._steps

    @property
    def steps_used(self) -> AttemptSteps | None:
        return self._steps

    async def record(self, report: StepReport, signal: Signal) -> StepAnswer:  # noqa: ARG002 - as above
        sent = {name: value for name, value in asdict(report).items() if name != "lease"}
        self.send({"record": sent})
        return self._step_answer()

    async def receive(self, lease: Lease, key: str, signals: Any, signal: Signal) -> StepAnswer:  # noqa: ARG002 - as above
        self.send({"receive": [key, [(each.name, each.key) for each in signals]]})
        return self._step_answer()

    async def unread(self, lease: Lease, signal: Signal) -> list[str]:  # noqa: ARG002 - as above
        self.send({"ask": "unread"})
        names: list[str] = json.loads(self._verdicts.get())
        return names

    def _step_answer(self) -> StepAnswer:
        answer = json.loads(self._verdicts.get())
        if "stopped" in answer:
            raise LeaseLost(answer["stopped"])
        return StepAnswer(**{**answer, "verdict": StepVerdict(answer["verdict"])})

    def job(self, claimed: Claimed) -> Any:
        raise RuntimeError(f"job {claimed.lease.id} is not available in a child process; use the context")


def _no_children(job: Claimed) -> str:
    return f"job {job.lease.id} runs in its own process and cannot add children from there"


def _rested(job: Claimed, rested: Any) -> dict[str, Any]:
    """The job rests: what for."""
    if rested.children:
        return {"raised": _error_as_json(UsageError(_no_children(job)))}
    return {"rested": [asdict(rest) for rest in rested.rests]}


def _completed(entry: RegisteredHandler, returned: Any) -> dict[str, Any]:
    if returned is None:
        return {"result": "null", "structured": False}
    try:
        return {"result": entry.result.encode(returned), "structured": isinstance(returned, Result)}
    except Exception as error:  # the work is done, even if its result cannot be sent
        return {"unfit": error_text(error)[:_LONGEST]}


def _stack() -> str:
    """The stack of the function, as the listening thread sees it."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - meant for this
    return "" if frame is None else of_frame(frame)[-_LONGEST:]


def _drive(coroutine: Any) -> Any:
    """Run a coroutine that never waits, like those of the context here."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("a context in a child process cannot wait")


def _error_as_json(error: BaseException) -> dict[str, Any]:
    """An error as JSON, whatever attributes another library's error has."""
    ours = getattr(error, "job_id", None) is None  # otherwise it is about another job, whose result was awaited
    known = next((name for name, each in _OURS.items() if ours and isinstance(error, each)), "")
    trace = "".join(traceback.format_exception(error, limit=-50))[:_LONGEST]
    return {
        "as": known, "kind": type(error).__name__, "lineage": lineage(error), "reason": _reason(error, known),
        "traceback": trace, "seconds": _seconds(error) if known else None,
    }  # fmt: skip


def _reason(error: BaseException, known: str) -> str:
    own = getattr(error, "reason", None) if known else None
    return (own if isinstance(own, str) and own else error_text(error))[:_LONGEST]


def _seconds(error: BaseException) -> float | str | None:
    """A duration; text that is not one is passed on as it is, for the parent to refuse."""
    given: Any = getattr(error, "retry_after", getattr(error, "seconds", None))
    seconds = seconds_of(given)
    return seconds if seconds is not None or not isinstance(given, str) else given[:_LONGEST]


if __name__ == "__main__":
    main(*sys.argv[1:])
