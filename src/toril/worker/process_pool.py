"""Child processes for plain functions that compute or may crash. Each runs one job at a time and can be killed
alone."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final

from toril.codec.encoding import decode
from toril.codec.new_jobs import said
from toril.context import Signal
from toril.errors import (
    HandlerError,
    InvalidOption,
    JobCancelled,
    LeaseLost,
    PermanentError,
    RateLimited,
    Resting,
    Snooze,
    TorilError,
    TransientError,
)
from toril.handlers import RegisteredHandler
from toril.model import Claimed, Rest, Rested, SignalWait, StepKind, StepReport
from toril.model.attempts import Result
from toril.worker.attempt import ChildFailed, UnsendableResult
from toril.worker.process_child import MAIN_FILE, REPORTS, SIGNALS
from toril.worker.reports import AttemptReports
from toril.worker.running import RunningAttempt

__all__ = ["ProcessPool", "location"]

_ANSWER: Final = 2.0  # seconds for a child to send its stack


def location(entry: RegisteredHandler) -> tuple[str, str]:
    """Where a child finds the function: it must be at the top level of an importable module."""
    fn = entry.handler.fn
    module, qualname = getattr(fn, "__module__", None), getattr(fn, "__qualname__", "<locals>")
    if module is None or "<locals>" in qualname or "<lambda>" in qualname:
        raise InvalidOption(f"{qualname!r} cannot run in its own process: define it at the top level of a module")
    return (_main_module() if module == "__main__" else module), qualname


def _main_module() -> str:
    """The program's own module, by name if it was started with `python -m`, so that it can import its neighbours."""
    main = sys.modules["__main__"]
    if main.__spec__ is None and getattr(main, "__file__", None) is None:
        raise InvalidOption("a function from an interactive session cannot run in its own process: define it in a file")
    return "__main__" if main.__spec__ is None else main.__spec__.name


def _environment() -> dict[str, str]:
    """The environment in which a child imports what its parent would."""
    main_file = getattr(sys.modules["__main__"], "__file__", None) or ""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return os.environ | {"PYTHONPATH": path, MAIN_FILE: main_file}


class ProcessPool:
    """Idle children, by the function that they serve."""

    def __init__(self) -> None:
        self._idle: dict[str, list[_Child]] = {}
        self._all: set[_Child] = set()

    async def call(self, entry: RegisteredHandler, running: RunningAttempt, reporter: AttemptReports) -> Any:
        """The function's result, from a child that is killed if this is cancelled."""
        idle = self._idle.setdefault(entry.name, [])
        child = idle.pop() if idle else self._start(entry)
        running.apart = child.stack
        try:
            answer = await child.run(running.job, running.signal, reporter)
        except BaseException:
            self._end(child)
            raise
        if child.alive:
            idle.append(child)
        else:
            self._end(child)
        if "caught" in answer:
            reporter.rests_anyway()
        return _result(entry, answer)

    def close(self) -> None:
        for child in list(self._all):
            self._end(child)
        self._idle.clear()

    def _start(self, entry: RegisteredHandler) -> "_Child":
        here, there = Pipe()
        os.set_inheritable(there.fileno(), True)  # noqa: FBT003 - not ours
        module, qualname = location(entry)
        command = [
            sys.executable,
            "-m",
            "toril.worker.process_child",
            str(there.fileno()),
            module,
            qualname,
            entry.name,
        ]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module, named by the registry
                command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, env=_environment(), process_group=0
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        there.close()
        child = _Child(process, here)
        self._all.add(child)
        return child

    def _end(self, child: "_Child") -> None:
        self._all.discard(child)
        child.kill()


class _Child:
    """One process, and the pipe to it."""

    def __init__(self, process: "subprocess.Popen[bytes]", pipe: Connection) -> None:
        self._process = process
        self._pipe = pipe
        self._ready = False
        self._asked: list[asyncio.Future[str]] = []  # requests for its stack

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.wait()

    async def run(self, job: Claimed, signal: Signal, reporter: AttemptReports) -> dict[str, Any]:
        """Send the job, pass on its reports, and wait for its end."""
        await self._until_ready()
        self._send({"run": asdict(job) | {"options": said(job.options)}})
        watch = asyncio.ensure_future(self._pass_on(signal))
        try:
            while True:
                message = await self._receive()
                if "stack" in message:
                    self._tell_stack(f"Process {self._process.pid}:\n{message['stack']}")
                    continue
                if "ask" in message:
                    self._send({"verdict": await _answer(message["ask"], job, signal, reporter)})
                    continue
                if "record" in message or "receive" in message:
                    self._send({"verdict": await _step_answer(message, job, signal, reporter)})
                    continue
                if "set_aside" in message:
                    reporter.set_aside(message["set_aside"])
                    continue
                if "unread" in message:
                    reporter.left_unread(message["unread"])
                    continue
                if "report" not in message:
                    return message
                kind, text = message["report"]
                self._send({"verdict": await reporter.report(REPORTS[kind](job.lease, text))})
        finally:
            watch.cancel()

    async def stack(self) -> str:
        """The function's stack, or a note that the child does not answer, as it may in foreign code that holds the
        interpreter lock."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self._send({"stack": True})
        try:
            async with asyncio.timeout(_ANSWER):
                return await answer
        except TimeoutError:
            return f"Process {self._process.pid} did not report its stack.\n"

    def _tell_stack(self, text: str) -> None:
        asked, self._asked = self._asked, []
        for each in asked:
            if not each.done():
                each.set_result(text)

    async def _until_ready(self) -> None:
        """Wait until the child has loaded: until then it reads nothing, and sending a large job would block the
        loop."""
        if self._ready:
            return
        raised = (await self._receive()).get("raised")
        if raised is not None:
            reason = f"the handler could not be loaded in its process: {raised['kind']}: {raised['reason']}"
            raise ChildFailed(reason, kind=raised["kind"], trace=raised["traceback"])
        self._ready = True

    async def _pass_on(self, signal: Signal) -> None:
        reason = await signal.wait()
        self._send({"abort": [signal.kind, reason]})

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._pipe.send_bytes(json.dumps(message).encode())
        except OSError:
            return  # it has died, which receiving will show

    async def _receive(self) -> dict[str, Any]:
        while not self._pipe.poll():
            await readable(self._pipe.fileno())
        try:
            answer: dict[str, Any] = json.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            code = self._process.wait()
            how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
            raise ChildFailed(f"the handler's process {how}", kind="ProcessExited") from None
        return answer


async def readable(descriptor: int) -> None:
    """Wait until there is something to read."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _set, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


def _set(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


_RAISED: dict[str, Callable[[str, float | None], HandlerError]] = {
    "PermanentError": lambda reason, _: PermanentError(reason),
    "TransientError": lambda reason, seconds: TransientError(reason, retry_after=seconds),
    "Snooze": lambda reason, seconds: Snooze(seconds or 0, reason),
    "RateLimited": lambda reason, seconds: RateLimited(seconds or 0, reason),
    "JobCancelled": lambda reason, _: JobCancelled(reason),
    "LeaseLost": lambda reason, _: LeaseLost(reason),
}


def _result(entry: RegisteredHandler, answer: dict[str, Any]) -> Any:
    if "result" in answer:
        text = answer["result"]
        return Result(**decode(text)) if answer["structured"] else entry.result.decode(text)
    if "unfit" in answer:
        return UnsendableResult(answer["unfit"])
    if "rested" in answer:
        raise Resting(Rested(rests=tuple(_rest(each) for each in answer["rested"])))
    raised = answer["raised"]
    if raised["as"]:
        error = _RAISED[raised["as"]](raised["reason"], raised["seconds"])
        error.add_note(raised["traceback"])  # the child's traceback
        raise error
    raise ChildFailed(
        raised["reason"], kind=raised["kind"], trace=raised["traceback"], lineage=tuple(raised["lineage"])
    )


def _rest(found: dict[str, Any]) -> Rest:
    signals = tuple(SignalWait(**each) for each in found.pop("signals"))
    return Rest(**{**found, "kind": StepKind(found["kind"]), "signals": signals})


async def _step_answer(message: dict[str, Any], job: Claimed, signal: Signal, reporter: AttemptReports) -> str:
    """What the store says to a step of a child process."""
    writer = reporter.step_writer
    try:
        if "record" in message:
            found = message["record"]
            answer = await writer.record(StepReport(job.lease, **{**found, "kind": StepKind(found["kind"])}), signal)
        else:
            key, signals = message["receive"]
            answer = await writer.receive(job.lease, key, [SignalWait(*each) for each in signals], signal)
    except TorilError as error:  # the attempt is to stop
        return json.dumps({"stopped": str(error)})
    return json.dumps(asdict(answer))


async def _answer(question: str, job: Claimed, signal: Signal, reporter: AttemptReports) -> str:
    """The answer to a question of the child process about its job."""
    if question == "unread":
        try:
            return json.dumps(list(await reporter.step_writer.unread(job.lease, signal)))
        except TorilError:  # the function has returned, and is not to fail by this
            return "[]"
    if question == "family":
        family = await reporter.family(job)
        names = ("open", "completed", "ignored", "failed")
        return json.dumps({name: getattr(family, name) for name in names})
    found = await (reporter.named_children(job) if question == "named_children" else reporter.children(job))
    return json.dumps([(each.ref.queue, each.ref.id, each.state, each.text, each.name, each.number) for each in found])
