"""How a command ends: one line on stderr, and a code.

0 done · 1 understood, but it failed · 2 the command line is wrong · 3 it would destroy, and nobody said --yes ·
130 interrupted · 141 nobody reads the output any more
"""

import os
import sys

import click

from toril import NotFound, TorilError, UnknownQueue, UsageError, WrongState
from toril.cli.escaping import plain

__all__ = ["Failure", "Refused", "code_of", "say", "shown_usage"]


class Failure(click.ClickException):
    """The command was understood, and could not be carried out."""

    exit_code = 1


class Refused(click.ClickException):
    """It would destroy something, and nobody has agreed to that."""

    exit_code = 3


def say(text: str) -> None:
    """A line for people, beside the output."""
    click.echo(plain(text), err=True)


def shown_usage(error: click.ClickException) -> int:
    """Tell what is wrong with a command line, and how the command is written."""
    say(f"Error: {error.format_message()}")
    if isinstance(error, click.UsageError):
        say("Usage: toril COMMAND [ARGS]..." if error.ctx is None else " ".join(error.ctx.get_usage().split()))
    return error.exit_code


def code_of(error: BaseException) -> int:
    """Tell what went wrong, and say the exit code. What no one foresaw is raised again."""
    match _innermost(error):
        case KeyboardInterrupt():
            return 130
        case click.Abort() as abort:
            click.echo(err=True)  # the question is still on the line
            return 3 if isinstance(abort.__context__, EOFError) else 130
        case BrokenPipeError():
            _discard_output()
            return 141
        case NotFound() | WrongState() | UnknownQueue() as failed:
            return _told(failed, 1)
        case UsageError() as wrong:
            return _told(wrong, 2)
        case TorilError() | OSError() as failed:
            return _told(failed, 1)
        case _:
            raise error


def _innermost(error: BaseException) -> BaseException:
    """The first that went wrong of those that went wrong together."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _told(error: BaseException, code: int) -> int:
    say(f"Error: {error}")
    return code


def _discard_output() -> None:
    """So that the interpreter, when it flushes at exit, has somewhere to write to."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return  # a stream that is no file has nothing left to flush
