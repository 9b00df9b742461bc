"""Writes docs/cli.md: the commands, with their arguments and options, as click has them.

python -m tools.commands            say whether the page is up to date
python -m tools.commands --write    write it
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from toril.cli.examples import EXAMPLES
from toril.cli.main import Commands

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
_HEAD = """# Commands

This page is generated from the commands by `make reference`.

Commands that need a store take it from an app (`-A jobs:app` or `$TORIL_APP`) or from a URL (`--url` or `$TORIL_URL`);
without either, they use `toril.db` in the current folder. `--url` takes precedence over `$TORIL_APP`. With an app, they
import its code, so they know what it declares about payloads, limits and `redact`. Commands print tables for people
or, with `--json`, JSON Lines for programs. Destructive commands ask for confirmation unless you pass `--yes`. You can
also set every option of `toril run` and `toril reaper` with an environment variable: `--max-jobs` is `TORIL_MAX_JOBS`.

| exit code | |
|---:|---|
| 0 | success |
| 1 | the command failed: one line on stderr says why |
| 2 | the command line is invalid |
| 3 | a destructive command was not confirmed |
| 130 | interrupted by Ctrl-C |
| 141 | the reader of the output, such as `head`, has closed it |

Your shell can complete commands, options, and the names of queues, jobs, schedules and workers:

```sh
eval "$(_TORIL_COMPLETE=bash_source toril)"    # in ~/.bashrc
eval "$(_TORIL_COMPLETE=zsh_source toril)"     # in ~/.zshrc
_TORIL_COMPLETE=fish_source toril | source     # in ~/.config/fish/completions/toril.fish
```

If a command fails unexpectedly, it prints one line that says where to report the bug. To see the traceback, use
`toril --debug COMMAND`.
"""


def page() -> str:
    """The page as it should be."""
    group = Commands(name="toril")
    sections = [section for name in group.list_commands(click.Context(group)) for section in _sections(group, name)]
    return "\n".join([_HEAD, *sections])


def _sections(group: click.Group, name: str, above: str = "toril") -> Iterator[str]:
    command = group.get_command(click.Context(group), name)
    if command is None or command.hidden:
        return
    ctx = click.Context(command, info_name=f"{above} {name}")
    yield "\n".join(_lines(command, ctx, depth=above.count(" ") + 2))
    if isinstance(command, click.Group):
        for each in command.list_commands(ctx):
            yield from _sections(command, each, f"{above} {name}")


def _lines(command: click.Command, ctx: click.Context, depth: int) -> Iterator[str]:
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    yield f"{'#' * depth} {ctx.command_path}\n\n```\n{usage}\n```\n"
    if command.help:
        yield " ".join(command.help.split("\f")[0].split()) + "\n"
    yield "```sh\n" + "\n".join(EXAMPLES[ctx.command_path]) + "\n```\n"
    options = [record for param in command.get_params(ctx) if (record := param.get_help_record(ctx)) is not None]
    rows = [(name, text) for name, text in options if text and not name.endswith("--help")]
    if rows:
        yield "| option | meaning |\n|---|---|"
        yield from (f"| `{_cell(name)}` | {_cell(text)} |" for name, text in rows)
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    wanted = page()
    if "--write" in sys.argv:
        PAGE.write_text(wanted, "utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text("utf-8") != wanted:
        print("docs/cli.md is out of date: run  make reference")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
