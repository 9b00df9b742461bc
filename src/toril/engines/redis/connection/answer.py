"""An answer that somebody waits for."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVar

from toril.runtime.clock import plain_asyncio

__all__ = ["Answer", "PromptAnswer", "answer_kind"]

T = TypeVar("T")


class Answer(asyncio.Future[T]):
    """A future as asyncio has it: who waits for it goes on in the next turn of the event loop."""

    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)

    def come(self, value: T) -> None:
        """It is here."""
        self.set_result(value)


def answer_kind() -> type[Answer[Any]]:
    """The kind of answers to wait for in this process."""
    return Answer if plain_asyncio() else PromptAnswer


class PromptAnswer(Answer[T]):
    """A future whose `come` has who waits for it go on there and then. The usual one's waits for the next turn of the
    event loop, which for a job by itself is a good part of what it costs. All other ends are as usual."""

    __slots__ = ("_waits",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._waits: tuple[Callable[[Any], object], Context | None] | None = None

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        if self._waits is None and not self.done():
            self._waits = fn, context
        else:
            super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Callable[[Any], object], /) -> int:
        self._wait_as_usual()
        return super().remove_done_callback(fn)

    def come(self, value: T) -> None:
        """It is here. Called from anywhere but a task: one cannot go on within another."""
        if asyncio.current_task(self.get_loop()) is not None:
            self.set_result(value)
            return
        waits, self._waits = self._waits, None
        super().set_result(value)
        if waits is not None:
            self._go_on(*waits)

    def set_result(self, value: T, /) -> None:
        self._wait_as_usual()
        super().set_result(value)

    def set_exception(self, error: type[BaseException] | BaseException, /) -> None:
        self._wait_as_usual()
        super().set_exception(error)

    def cancel(self, msg: Any | None = None) -> bool:
        self._wait_as_usual()
        return super().cancel(msg)

    def _go_on(self, callback: Callable[[Any], object], context: Context | None) -> None:
        """As the event loop would call it: what it raises is no fault of whoever brought the answer."""
        try:
            if context is None:
                callback(self)
            else:
                context.run(callback, self)
        except Exception as error:
            told = {"message": f"a callback of {self!r} failed", "exception": error, "future": self}
            self.get_loop().call_exception_handler(told)

    def _wait_as_usual(self) -> None:
        waits, self._waits = self._waits, None
        if waits is not None:
            super().add_done_callback(waits[0], context=waits[1])
