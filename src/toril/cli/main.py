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

# name -> module, and its line in the help. A command is imported when it is used.
_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("demo.command", "Watch a small demo shop process jobs for ten seconds."),
    "run": ("run", "Run the workers of an app until stopped."),
    "dashboard": ("dashboard", "Serve the dashboard for a store."),
    "reaper": ("reaper", "Return jobs held by dead workers to their queues."),
    "ping": ("ping", "Check whether a running worker is ready."),
    "add": ("add", "Add a job to a queue."),
    "queues": ("queues", "List queues and their job counts."),
    "metrics": ("metrics", "Show a queue's recent throughput, failures and latency."),
    "workers": ("workers", "List live workers; quiet or stop one."),
    "top": ("top", "Watch queues and workers live."),
    "jobs": ("jobs", "List the jobs of a queue."),
    "job": ("job", "Show, explain, retry, cancel, promote, signal, rewind or remove a job."),
    "flow": ("flow", "Draw the flow a job belongs to."),
    "signal": ("signals", "Send a signal to whichever job waits for it by a key."),
    "waits": ("signals", "List the jobs that wait for a signal."),
    "events": ("events", "Show recent queue events, or follow them live."),
    "schedules": ("schedules", "List, show, run, pause, resume or remove schedules."),
    "scan": ("scan", "Run one of the app's scanners once."),
    "dlq": ("dlq", "List, show, replay or discard dead letters."),
    "outbox": ("outbox", "Create, list or relay the outbox in an application's database."),
    "breakers": ("breakers", "List, trip or reset circuit breakers."),
    "doctor": ("doctor", "Check a store for problems and repair them."),
    "move": ("move", "Move everything from one store to another while workers run."),
    "torture": ("torture", "Stress-test a store: kill processes and count lost jobs."),
    "bench": ("bench.command", "Benchmark a store on this machine."),
    "pause": ("queues", "Pause a queue on all workers."),
    "resume": ("queues", "Resume a paused queue."),
    "groups": ("groups", "List, pause, resume or limit the groups of a queue."),
    "limit": ("queues", "Show or set a queue's rate and concurrency limits."),
    "cancel": ("cancel", "Cancel many jobs in a queue."),
    "drain": ("sweep", "Remove jobs that have not started."),
    "clean": ("sweep", "Remove old jobs in one state."),
    "obliterate": ("sweep", "Remove a queue and everything in it."),
}


_STORE: Final = (
    "Commands that need a store take it from an app (-A jobs:app or $TORIL_APP), else from --url or $TORIL_URL, else "
    "from toril.db in the current folder."
)


class Commands(click.Group):
    """Imports commands when they are used, and turns errors into one line and an exit code."""

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
            hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(_COMMANDS)}"
            raise click.UsageError(f"unknown command {args[0]!r}; {hint}", ctx)
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
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def toril(ctx: click.Context, *, debug: bool) -> None:  # noqa: ARG001 - read where commands end
    """Run, add and manage background jobs."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        # Characters that the terminal's encoding lacks are escaped, so that no job's name makes a listing fail.
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    toril()


def _program() -> str:
    return "python -m toril" if sys.argv and sys.argv[0].endswith("__main__.py") else "toril"
