"""A store of its own for every test, and the commands in this process or in a fresh one."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
import pytest
from click.testing import CliRunner, Result

from toril import App
from toril.cli.main import toril as command

T = TypeVar("T")

# What a terminal or a wish of the developer's might change.
_OURS = (
    "TORIL_APP",
    "TORIL_URL",
    "TORIL_OUTBOX",
    "NO_COLOR",
    "FORCE_COLOR",
    "TERM",
    "COLUMNS",
    "LINES",
    "PYTHONIOENCODING",
    "LC_ALL",
    "LANG",
)


class Toril(Protocol):
    """Runs a command in this process, on the test's store."""

    def __call__(self, *words: str, given: str | bytes | None = None, code: int = 0) -> Result: ...


class Fresh(Protocol):
    """Starts a command in a process of its own, on the test's store."""

    def __call__(self, *words: str, **options: Any) -> "subprocess.Popen[str]": ...


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: empty, and nothing in the environment names a store. Its modules are forgotten with it."""
    for name in _OURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORIL_NO_HTTP", "1")  # tests run beside each other, and the port is one
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def url(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The store of `TORIL_URL`, not made yet."""
    url = f"sqlite:///{folder / 'jobs.db'}"
    monkeypatch.setenv("TORIL_URL", url)
    return url


@pytest.fixture
def toril(folder: Path) -> Toril:
    def run(*words: str, given: str | bytes | None = None, code: int = 0) -> Result:
        result = CliRunner().invoke(command, list(words), input=given)
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def fresh(folder: Path) -> Fresh:
    def start(*words: str, **options: Any) -> "subprocess.Popen[str]":
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        env = os.environ | options.pop("env", {})
        args = options.pop("args", [sys.executable, "-m", "toril", *words])
        return subprocess.Popen(args, env=env, **given | options)

    return start


def on(url: str, work: Callable[[App], Awaitable[T]]) -> T:
    """What `work` answers, with an app that is open on the store."""

    async def worked() -> T:
        async with App(url) as app:
            return await work(app)

    return asyncio.run(worked())


def documents(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def every_command(group: click.Group | None = None, path: str = "toril") -> Iterator[tuple[str, click.Command]]:
    """All commands and subcommands, by what is typed for them."""
    group = command if group is None else group
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        found = group.get_command(ctx, name)
        assert found is not None
        yield f"{path} {name}", found
        if isinstance(found, click.Group):
            yield from every_command(found, f"{path} {name}")
