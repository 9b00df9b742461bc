"""Arguments that several commands share: store, queue, id, JSON, HOST:PORT, `--yes`."""

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import click

from toril.cli.completion import queue_words, schedule_words
from toril.cli.escaping import plain
from toril.cli.exit import NeedsConfirmation
from toril.cli.store_option import store_options
from toril.cli.terminal import json_option

__all__ = ["DEFAULT", "address", "agreed", "complete_queues", "json_given", "one", "queue_choice", "yes_option"]

DEFAULT: Final = ("127.0.0.1", 8484)


def address(written: str) -> tuple[str, int]:
    """`127.0.0.1:8484`, `[::1]:8484`, `:8484`."""
    host, colon, port = written.rpartition(":")
    if not (colon and port.isascii() and port.isdecimal() and int(port[:6]) <= 65_535):
        raise click.BadParameter(f"invalid address {written!r}; expected HOST:PORT, such as 127.0.0.1:8484")
    return host.removeprefix("[").removesuffix("]") or DEFAULT[0], int(port)


T = TypeVar("T")


def yes_option(fn: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--yes`, as its argument `yes`."""

    @click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
    @functools.wraps(fn)
    def command(**rest: Any) -> T:
        return fn(**rest)

    return command


def agreed(what: str, *, yes: bool) -> None:
    """Raise unless the user has confirmed with `--yes`, or confirms now."""
    if yes:
        return
    if not on_a_terminal():
        raise NeedsConfirmation(f"{what} Nothing was changed; pass --yes to confirm")
    if not click.confirm(plain(f"{what} Continue?"), err=True):
        raise NeedsConfirmation("nothing was changed")


def on_a_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def complete_queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete queue names in a shell. It needs the code of apps, which a supervisor does not load."""
    from toril.cli.completion import queue_names  # noqa: PLC0415 - as above

    return queue_names(ctx, param, incomplete)


def queue_choice(written: str) -> tuple[str, int | None]:
    """Parse `name` or `name:concurrency`."""
    name, colon, slots = written.partition(":")
    if not colon:
        return name, None
    if not (slots.isascii() and slots.isdecimal() and 1 <= int(slots[:9]) <= 10_000):
        raise click.BadParameter(f"the concurrency of {name!r} must be a whole number from 1 to 10,000, not {slots!r}")
    return name, int(slots)


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
                raise click.UsageError(f"a {what} is named by [QUEUE] ID; got {len(words)} arguments")
            return fn(queue=words[0] if len(words) == 2 else None, **{argument: words[-1]}, **rest)

        return command

    return decorate


_MOST: Final = 4 * 1024 * 1024  # bytes to read at most; the limit for a payload itself is lower


def json_given(given: str, hint: str = "JSON") -> Any:
    """Parse a payload: JSON, or `-` for stdin, or `@FILE`. `hint` is the name of its argument."""
    text = _text(given, hint)
    try:
        return json.loads(text)
    except RecursionError:
        raise click.BadParameter("the payload is nested too deeply", param_hint=hint) from None
    except ValueError as error:
        raise click.BadParameter(f"the payload is not valid JSON: {error}", param_hint=hint) from None


def _text(given: str, hint: str) -> str:
    if given == "-":
        return _bounded(sys.stdin.buffer, "stdin", hint)
    if given.startswith("@"):
        try:
            with Path(given[1:]).open("rb") as file:
                return _bounded(file, given[1:], hint)
        except (OSError, ValueError) as error:  # a name with a NUL in it is a ValueError
            raise click.BadParameter(f"cannot read {given[1:]!r}: {error}", param_hint=hint) from None
    return given


def _bounded(file: BinaryIO, name: str, hint: str) -> str:
    read = file.read(_MOST + 1)
    if len(read) > _MOST:
        raise click.BadParameter(f"{name!r} is larger than {_MOST // 1024**2} MiB", param_hint=hint)
    try:
        return read.decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{name!r} is not UTF-8: {error}", param_hint=hint) from None
