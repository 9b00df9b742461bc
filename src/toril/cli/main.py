"""The command `toril` and its subcommands."""

import importlib
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final

import click

from toril import __version__
from toril.cli.examples import examples_of, illustrate
from toril.cli.exit import code_of, shown_usage

__all__ = ["main"]

# name -> where it is, and its line in the help. A command is imported when it is used, and not before.
_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("demo.command", "Watch a small shop of queues at work, for ten seconds."),
    "run": ("run", "Work the queues of an app until stopped."),
    "dashboard": ("dashboard", "Serve the dashboard of a store."),
    "reaper": ("reaper", "Give back the jobs of workers that are gone, in all queues."),
    "ping": ("ping", "Ask a running worker whether it is ready."),
    "add": ("add", "Add a job to a queue."),
    "queues": ("queues", "List the queues with their counts."),
    "metrics": ("metrics", "What ended in a queue of late, and how long it took."),
    "workers": ("workers", "List the workers that are alive, stop one or have it claim nothing more."),
    "top": ("top", "Watch the fleet, live."),
    "jobs": ("jobs", "List the jobs of a queue."),
    "job": ("job", "Show, retry, cancel, promote or remove one job."),
    "flow": ("flow", "Draw the flow that a job belongs to."),
    "events": ("events", "Show what happens, as it happens."),
    "schedules": ("schedules", "List, show, run, pause, resume or remove schedules."),
    "scan": ("scan", "Run a scanner of an app once, dry or in earnest."),
    "dlq": ("dlq", "List, show, replay or discard dead letters."),
    "outbox": ("outbox", "Create, list or relay the outbox in an application's database."),
    "breakers": ("breakers", "List, trip or reset circuit breakers."),
    "doctor": ("doctor", "Find what is wrong with a store, and mend it."),
    "move": ("move", "Move everything from one store to another, while they work."),
    "torture": ("torture", "Count what is lost while processes are killed and cut off."),
    "bench": ("bench.command", "Measure what a store does on this machine."),
    "pause": ("queues", "Start nothing new in a queue, anywhere."),
    "resume": ("queues", "Let a paused queue go on."),
    "groups": ("groups", "List, pause, resume or limit the groups of a queue."),
    "limit": ("queues", "Show or set how fast a queue may go."),
    "cancel": ("cancel", "Cancel many jobs of a queue."),
    "drain": ("sweep", "Remove what has not started."),
    "clean": ("sweep", "Remove old jobs of one state."),
    "obliterate": ("sweep", "Remove a queue with everything in it."),
}


_STORE: Final = (
    "The commands that look after queues take the store from an app (-A jobs:app or $TORIL_APP), else from --url or "
    "$TORIL_URL, else toril.db here."
)


class Commands(click.Group):
    """Imports its commands one by one, and turns whatever ends one into a line and an exit code."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"toril.cli.{_COMMANDS[name][0]}"), name)
        illustrate(command, f"toril {name}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], _COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_COMMANDS)}"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> int:
        try:
            code = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except (click.ClickException, click.exceptions.Exit):
            raise
        except BaseException as error:
            if ctx.params.get("debug") and not isinstance(error, KeyboardInterrupt | BrokenPipeError):
                raise
            return code_of(error)
        return code if isinstance(code, int) else 0

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        try:
            code = super().main(args, prog_name or _program(), **extra)
        except click.ClickException as error:
            code = shown_usage(error)
        except click.Abort:
            code = 130
        sys.exit(code)


@click.group(
    cls=Commands,
    no_args_is_help=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"{_STORE}\n\n{examples_of('toril')}",
)
@click.version_option(__version__, "-V", "--version", message="toril %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of what goes wrong.")
@click.pass_context
def toril(ctx: click.Context, *, debug: bool) -> None:  # noqa: ARG001 - read where commands end
    """Background jobs: run them, add them, look after them."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        # What a terminal's encoding has no sign for is escaped: a job's name cannot make a listing fail.
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    toril()


def _program() -> str:
    return "python -m toril" if sys.argv and sys.argv[0].endswith("__main__.py") else "toril"
