"""The API reference shows every public name, and nothing that does not exist."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import toril

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")
ENTRY = re.compile(r"^::: ([\w.]+)\n((?:    .*\n)*)", re.MULTILINE)
IN_PROSE = {"Duration", "SyncJob", "SyncQueue", "SyncTask"}


def entries() -> list[tuple[str, list[str]]]:
    """What the page takes from the docstrings: a module with the members that it shows, or one class or function."""
    found = []
    for path, options in ENTRY.findall(PAGE):
        members = re.search(r"members: \[(.*)\]", options)
        found.append((path, [] if members is None or not members[1] else members[1].split(", ")))
    return found


def named(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("path", "members"), entries())
def test_what_the_reference_shows_exists_and_has_a_docstring(path: str, members: list[str]) -> None:
    shown = named(path)

    assert [name for name in members if not hasattr(shown, name)] == []
    assert [name for name in members if not getattr(shown, name).__doc__] == []
    assert shown.__doc__


def test_the_reference_shows_every_public_name() -> None:
    shown = {name for path, members in entries() for name in [path.rpartition(".")[2], *members]}

    assert set(toril.__all__) - shown == IN_PROSE | {"__version__"}
    assert [name for name in IN_PROSE if f"`{name}`" not in PAGE] == []
