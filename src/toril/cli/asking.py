"""What destroys is asked for twice: once by the command, once by a person or by `--yes`."""

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from toril.cli.escaping import plain
from toril.cli.exit import Refused

__all__ = ["agreed", "yes_option"]

T = TypeVar("T")


def yes_option(fn: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--yes`, as its argument `yes`."""

    @click.option("--yes", "-y", is_flag=True, help="Do not ask.")
    @functools.wraps(fn)
    def command(**rest: Any) -> T:
        return fn(**rest)

    return command


def agreed(what: str, *, yes: bool) -> None:
    """Go on only if it was said, or is now said, that this may be done."""
    if yes:
        return
    if not on_a_terminal():
        raise Refused(f"{what} Nothing was done: say --yes if you mean it")
    if not click.confirm(plain(f"{what} Go on?"), err=True):
        raise Refused("nothing was done")


def on_a_terminal() -> bool:
    """Whether there is someone to ask."""
    return sys.stdin is not None and sys.stdin.isatty()
