"""The plugin for pytest: loaded by itself, and free of charge."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toril import App, JobContext

TEST = """
import asyncio
import sys

from toril import App, JobContext


async def work(ctx: JobContext[int]) -> int:
    return 1 // ctx.data


async def run(toril_memory, number):
    app = App("memory://")
    queue = app.queue("q", [work])
    async with toril_memory(app) as test:
        await queue.add(work, number)
        await test.drain()


def test_fine(toril_memory):
    asyncio.run(run(toril_memory, 1))


def test_fails(toril_memory):
    asyncio.run(run(toril_memory, 0))
"""


@pytest.fixture
def outside(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs pytest in an empty folder, as a user does."""

    def run(text: str, *options: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "test_it.py").write_text(text, "utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    return run


def test_a_failing_job_fails_the_test_at_the_line_of_its_handler(outside: Callable[..., Any]) -> None:
    done = outside(TEST)

    assert "1 failed, 1 passed" in done.stdout
    assert re.search(r"^>? +return 1 // ctx.data$", done.stdout, re.MULTILINE)
    assert "ZeroDivisionError" in done.stdout


def test_the_plugin_loads_nothing_until_it_is_used(outside: Callable[..., Any]) -> None:
    loaded = """
import sys

def test_it():
    assert not {name for name in sys.modules if name.startswith(("toril.", "pydantic"))} - {"toril.pytest_plugin"}
"""

    done = outside(loaded)

    assert done.returncode == 0, done.stdout


async def test_the_fixture_is_there(toril_memory: Callable[..., Any]) -> None:
    async def work(ctx: JobContext[None]) -> None: ...

    app = App("memory://")
    queue = app.queue("q", [work])
    async with toril_memory(app) as test:
        await queue.add(work)
        await test.drain()
        test.assert_added(work, times=1)
