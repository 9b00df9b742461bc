"""The help of each command: it shows how the command is used, in lines that can be typed as they are; and the headings
of what they list."""

import pkgutil
import shlex
from functools import partial
from importlib import import_module

import pytest

import toril.cli
from tests.cli.conftest import Toril, every_command
from toril.cli.examples import EXAMPLES
from toril.cli.terminal import Column

COMMANDS = dict(every_command())


def test_every_command_has_an_example_and_no_other_has() -> None:
    assert EXAMPLES.keys() == {"toril", *COMMANDS}
    assert all(EXAMPLES.values())


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_help_of_a_command_ends_with_its_examples(toril: Toril, path: str) -> None:
    shown = toril(*path.split()[1:], "--help").stdout.splitlines()

    assert shown[-len(EXAMPLES[path]) :] == [f"    {example}" for example in EXAMPLES[path]]
    assert max(map(len, shown)) <= 100


@pytest.mark.parametrize(("path", "example"), [(path, each) for path, lines in EXAMPLES.items() for each in lines])
def test_an_example_is_a_command_that_can_be_typed(
    toril: Toril, path: str, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken apart as it would be to be run: names, options and values."""
    called = list[str]()
    for each, found in COMMANDS.items():
        monkeypatch.setattr(found, "callback", partial(_note, called, each))
    name, *words = shlex.split(example)

    toril(*words)

    assert name == "toril"
    assert f"{called[-1]} ".startswith(f"{path} ")


def _note(called: list[str], path: str, *_: object, **__: object) -> None:
    called.append(path)


def test_every_column_has_a_heading_and_none_in_capitals() -> None:
    modules = [import_module(each.name) for each in pkgutil.iter_modules(toril.cli.__path__, "toril.cli.")]
    values = [value for module in modules for value in vars(module).values() if isinstance(value, list)]
    titles = [each.title for value in values for each in value if isinstance(each, Column)]

    assert len(titles) > 50
    assert [title for title in titles if not title or title != title.lower()] == []
