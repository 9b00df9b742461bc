"""How commands end: with one line on stderr and an exit code.

0 success · 1 the command failed · 2 the command line is wrong · 3 not confirmed · 130 interrupted · 141 nobody reads
the output any more
"""

import os
import shlex
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Final

import click

from toril import InboxFull, NotFound, TorilError, UnknownQueue, UsageError, WrongState
from toril.cli.escaping import plain

__all__ = ["CommandFailed", "NeedsConfirmation", "code_of", "say", "shown_usage"]

_OURS: Final = str(Path(__file__).parents[1])
_NOT_THE_COMMAND_LINE: Final = (NotFound, WrongState, UnknownQueue, InboxFull)
_LIBRARIES: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class CommandFailed(click.ClickException):
    """The command was understood but could not be carried out."""

    exit_code = 1


class NeedsConfirmation(click.ClickException):
    """The command is destructive, and nobody has confirmed it."""

    exit_code = 3


def say(text: str) -> None:
    """Print a line for people, on stderr."""
    click.echo(plain(text), err=True)


def shown_usage(error: click.ClickException) -> int:
    """Say what is wrong with a command line, and how the command is written."""
    if type(error).__name__ == "NoArgsIsHelpError":  # of click 8.2 and later; its message is the whole help
        click.echo(error.format_message(), err=True)
        return error.exit_code
    say(f"Error: {error.format_message()}")
    if isinstance(error, click.UsageError):
        say("Usage: toril COMMAND [ARGS]..." if error.ctx is None else " ".join(error.ctx.get_usage().split()))
    return error.exit_code


def code_of(error: BaseException) -> int:
    """Report the error and return the exit code. Unexpected errors are reported as bugs."""
    match _innermost(error):
        case KeyboardInterrupt():
            return 130
        case click.Abort() as abort:
            click.echo(err=True)  # the question is still on the line
            return 3 if isinstance(abort.__context__, EOFError) else 130
        case BrokenPipeError():
            _discard_output()
            return 141
        case TorilError() | OSError() as failed:
            wrong_call = isinstance(failed, UsageError) and not isinstance(failed, _NOT_THE_COMMAND_LINE)
            return _reported(failed, 2 if wrong_call else 1)
        case Exception() as unforeseen:
            return _bug(unforeseen)
        case _:
            raise error


def _bug(error: Exception) -> int:
    """Say whose bug it is: Toril's, or the application's if its code raised the error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(("<", _OURS, *_LIBRARIES))]
    place = next(iter([*reversed(own), *reversed(frames)]), None)
    what = f"{type(error).__name__}: {error}" + (
        "" if place is None else f" ({Path(place.filename).name}, line {place.lineno})"
    )
    again = shlex.join(["toril", "--debug", *sys.argv[1:]])
    if own:
        say(f"Error: {what}. For the traceback: {again}")
    else:
        report = "Please report it as an issue in Toril's repository, with the output of"
        say(f"Error: this is a bug in Toril: {what}. {report}: {again}")
    return 1


def _innermost(error: BaseException) -> BaseException:
    """The first error of a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _reported(error: BaseException, code: int) -> int:
    say(f"Error: {error}")
    return code


def _discard_output() -> None:
    """Point stdout at nothing, so that the interpreter can flush at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return  # a stream that is no file has nothing left to flush
