"""How a command line names one thing of a queue: `[QUEUE] ID`."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from toril.cli.completion import queue_words, schedule_words
from toril.cli.output import json_option
from toril.cli.place import store_options

__all__ = ["one"]

T = TypeVar("T")


def one(what: str, argument: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command its arguments `[QUEUE] ID`, as `queue` (None if left out) and `argument`."""
    complete = schedule_words if what == "schedule" else queue_words

    def decorate(fn: Callable[..., T]) -> Callable[..., T]:
        @click.argument("words", nargs=-1, required=True, metavar="[QUEUE] ID", shell_complete=complete)
        @store_options
        @json_option
        @functools.wraps(fn)
        def command(*, words: tuple[str, ...], **rest: Any) -> T:
            if len(words) > 2:
                raise click.UsageError(f"a {what} is named by QUEUE and ID, and there are {len(words)} words")
            return fn(queue=words[0] if len(words) == 2 else None, **{argument: words[-1]}, **rest)

        return command

    return decorate
