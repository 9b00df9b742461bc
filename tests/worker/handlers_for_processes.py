"""Functions at the top of a module, as those that run in processes must be."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any
from urllib.error import URLError

from toril import App, PermanentError, Snooze, SyncJobContext, UsageError
from toril.codec.new_jobs import said
from toril.errors import StepFailed
from toril.task import Task


def whoami(ctx: SyncJobContext[None]) -> int:
    return os.getpid()


def vanish(ctx: SyncJobContext[int]) -> None:
    os._exit(ctx.data)


def killed(ctx: SyncJobContext[None]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def talk(ctx: SyncJobContext[str]) -> str:
    ctx.log(f"about {ctx.data}")
    ctx.update_progress(50)
    ctx.checkpoint({"at": 1})
    return ctx.data.upper()


def total(ctx: SyncJobContext[None]) -> list[Any]:
    return [ctx.has_children(), sorted(ctx.children_values().values()), ctx.failed_children()]


def waits(ctx: SyncJobContext[None]) -> bool:
    ctx.wait_for_children()
    return ctx.has_children()


def _append(path: str) -> int:
    with open(path, "a") as file:  # noqa: PTH123 - it is short
        file.write("x")
    return os.getpid()


def counts(ctx: SyncJobContext[str]) -> list[Any]:
    pid = ctx.step("append", _append, ctx.data)
    if ctx.attempt == 1:
        raise ConnectionError("away")
    try:
        ctx.step("slow", time.sleep, 60, timeout=0.01)
    except StepFailed as error:
        return [pid != os.getppid(), error.caused_by(TimeoutError), ctx.step("last", len, [1])]
    return []


def naps(ctx: SyncJobContext[str]) -> list[Any]:
    ctx.step("before", _append, ctx.data)
    ctx.sleep("nap", 0.01)
    ctx.sleep_until("past", datetime(2020, 1, 1, tzinfo=UTC))
    return [ctx.attempt, ctx.version("layout", 3), ctx.step("after", _append, ctx.data) > 0]


def swallows(ctx: SyncJobContext[str]) -> str:
    try:
        ctx.sleep("nap", 0.01)
    except BaseException:
        if ctx.data == "raises":
            raise ValueError("while it is left") from None
        return "before its sleep was over"
    return f"attempt {ctx.attempt}"


def calls(ctx: SyncJobContext[None]) -> None:
    ctx.call("talk", Task(App("memory://").queue("q", {"talk": talk}), talk).new("x"))


def in_order(ctx: SyncJobContext[None]) -> list[Any]:
    try:
        ctx.children(talk)
    except UsageError as error:
        return [*ctx.children(talking), str(error)]
    raise AssertionError("a function alone says nothing of its names")


def refuse(ctx: SyncJobContext[None]) -> None:
    raise PermanentError("never")


def later(ctx: SyncJobContext[None]) -> str:
    if ctx.last_checkpoint is None:
        ctx.checkpoint("slept")
        raise Snooze("10ms")
    return "rested"


def forever(ctx: SyncJobContext[None]) -> None:
    ctx.log(str(os.getpid()))
    while True:
        time.sleep(0.01)


def signalled(ctx: SyncJobContext[None]) -> str:
    ctx.log(str(os.getpid()))
    time.sleep(0.5)
    return "done"


def terminate_others(ctx: SyncJobContext[None]) -> list[int | None]:
    """How programs and forks of its own end that it asks to."""
    program = subprocess.Popen(["sleep", "600"])
    fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    fork.start()
    program.terminate()
    fork.terminate()
    fork.join(60)
    return [program.wait(60), fork.exitcode]


def until_cancelled(ctx: SyncJobContext[None]) -> None:
    ctx.log("here")
    ctx.wait_for_cancel()
    ctx.raise_if_cancelled()


async def _double(ctx: SyncJobContext[int]) -> int:
    return ctx.data * 2


def forgets(ctx: SyncJobContext[int]) -> Any:
    return _double(ctx)


def nothing(ctx: SyncJobContext[None]) -> int:
    return None  # type: ignore[return-value]


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit("no words")


def misbehave(ctx: SyncJobContext[str]) -> Any:
    match ctx.data:
        case "exit":
            sys.exit(3)
        case "mute":
            raise Mute
        case "loud":
            raise ValueError("x" * 10_000_000)
        case "deep":
            return misbehave(ctx)
        case "nested":  # its `reason` is no text but another error
            raise URLError(OSError("no route"))
        case "odd":
            return object()
        case _:
            return os.getpid()


talking = App("memory://").queue("talks", [talk]).task(talk)


def asks(ctx: SyncJobContext[None]) -> list[Any]:
    return [ctx.wait_for("approval", bool, timeout=600), ctx.wait_for_any(["paid", "cancelled"], timeout=600)]


def options(ctx: SyncJobContext[None]) -> dict[str, Any]:
    return said(ctx._claimed.options)
