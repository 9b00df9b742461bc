"""Every `toril` command and option that a page mentions exists."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from toril.cli.main import Commands

ROOT = Path(__file__).parents[2]
GENERATED = {"capabilities.md", "cli.md", "reliability.md"}
PAGES = [
    ROOT / "README.md",
    ROOT / "AGENTS.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in GENERATED),
]
FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def mentioned(text: str) -> Iterator[str]:
    """The calls in a page's blocks, and those in its sentences between backticks."""
    for block in FENCE.findall(text):
        yield from re.findall(r"^(?:\$ )?(toril [^#\n]+)", block, re.MULTILINE)
    for span in re.findall(r"`(toril [a-z][^`]*)`", FENCE.sub("", text)):
        yield " ".join(span.split())


def complaint(call: str) -> str | None:
    """What in a call does not exist. Arguments are not judged: prose shows them as names."""
    _, *words = call.split()
    command: click.Command = Commands(name="toril")
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return f"{call}: there is no {words[0]}"
        command, words = found, words[1:]
    known = {
        "--help",
        *(option for parameter in command.params for option in parameter.opts + parameter.secondary_opts),
    }
    options = [match[0] for word in words if (match := re.match(r"--[a-z-]+", word))]
    return next((f"{call}: there is no {option}" for option in options if option not in known | {"--help"}), None)


def test_every_command_that_a_page_mentions_exists() -> None:
    calls = {(page.name, call) for page in PAGES for call in mentioned(page.read_text("utf-8"))}

    assert len(calls) > 100
    assert [f"{page}: {wrong}" for page, call in sorted(calls) if (wrong := complaint(call)) is not None] == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("Say `toril rescue mail`.", "rescue"),
        ("Say `toril job mourn mail 7`.", "mourn"),
        ("Say `toril run jobs:app --fast`.", "--fast"),
        ("```sh\ntoril queues --jsonl  # all of them\n```\n", "--jsonl"),
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str, missing: str) -> None:
    (call,) = mentioned(text)

    assert complaint(call) == f"{call}: there is no {missing}"
