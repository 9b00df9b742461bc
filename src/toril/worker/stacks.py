"""The stack of a running job: the frames of its coroutine and of what it awaits, like a traceback."""

import asyncio
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

__all__ = ["of_frame", "of_task"]

_FRAMES: Final = 100  # of one task, innermost
_TASKS: Final = 10  # tasks to show that a task waits for
_DEEP: Final = 3  # levels of tasks that wait for tasks


def of_frame(frame: FrameType, limit: int = _FRAMES) -> str:
    """The stack of a thread, innermost frame last."""
    return "".join(traceback.format_list(traceback.extract_stack(frame, limit)))


def of_task(task: "asyncio.Task[Any]", deep: int = _DEEP) -> str:
    """The stack of a waiting task: each coroutine that waits for the next, then the tasks that the last one waits for.
    asyncio itself shows only the outermost frame."""
    frames = list(_frames(task.get_coro()))
    rows = [(frame, frame.f_lineno) for frame in frames[-_FRAMES:]]
    text = "".join(traceback.StackSummary.extract(iter(rows)).format())
    awaited = [each for each in _awaited(task, frames) if not each.done() and each is not task]
    if not awaited or deep <= 1:
        return text
    shown = [f"It is waiting for {each.get_name()}:\n{of_task(each, deep - 1)}" for each in awaited[:_TASKS]]
    left = [f"and for {len(awaited) - _TASKS} more\n"] if len(awaited) > _TASKS else []
    return text + "".join(shown + left)


def _frames(coroutine: Any) -> Iterator[FrameType]:
    """The frames of a coroutine or generator, and of those that it waits for in turn."""
    for _ in range(10 * _FRAMES):
        frame = _first(coroutine, "cr_frame", "gi_frame", "ag_frame")
        if frame is None:
            return
        yield frame
        coroutine = _first(coroutine, "cr_await", "gi_yieldfrom", "ag_await")


def _first(of: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(of, name, None)) is not None), None)


def _awaited(task: "asyncio.Task[Any]", frames: list[FrameType]) -> "list[asyncio.Task[Any]]":
    """The tasks that a task waits for: one that it awaits, those of a `gather`, or those of its task groups."""
    waiter = getattr(task, "_fut_waiter", None)
    found = [waiter, *(getattr(waiter, "_children", None) or ())]
    for frame in frames:
        owner = frame.f_locals.get("self")
        if isinstance(owner, asyncio.TaskGroup):
            found += getattr(owner, "_tasks", ())
    return [each for each in dict.fromkeys(found) if isinstance(each, asyncio.Task)]
