"""Handlers in processes of their own: how they are found and loaded there, and what is said when they are not."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worker import slow_to_load
from tests.worker.conftest import working
from toril import App, InvalidOption, JobContext, Retry, handler


async def double(ctx: JobContext[int]) -> int:
    return ctx.data * 2


class Shop:
    def method(self, ctx: Any) -> None: ...


def test_a_method_of_an_object_cannot_run_in_a_process() -> None:
    with pytest.raises(InvalidOption, match="'method' cannot have executor='process': it is a method"):
        handler(Shop().method, executor="process")


async def test_a_large_job_does_not_hold_up_the_loop_while_its_process_loads(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process reads nothing while it loads, and a pipe holds less than this job."""
    gate = tmp_path / "gate"
    monkeypatch.setenv("GATE", str(gate))
    made = handler(slow_to_load.size, executor="process", retry=Retry(1))
    queue = app.queue("q", {"size": made, "double": double}, concurrency=2)
    async with working(app):
        large = await queue.add("size", "x" * 900_000, result_ttl=60)
        assert await queue.add_and_wait(double, 2) == 4
        gate.touch()

        assert await large.result(60) == 900_000


PROGRAM = """
import asyncio, os, sys
from toril import App, Retry, handler
from .neighbour import word

if os.environ.get("BROKEN") and __name__ != "__main__":
    raise LookupError("no licence")

def say(ctx):
    return word

app = App("memory://")
queue = app.queue("q", {"say": handler(say, executor="process")}, retry=Retry(1))

async def main():
    async with app:
        run = asyncio.create_task(app.run())
        try:
            print(await queue.add_and_wait("say"))
        except Exception as error:
            print(error)
        app.stop()
        await run

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "neighbour.py").write_text("word = 'toril'\n")
    (folder / "jobs.py").write_text(PROGRAM)
    return tmp_path


def said_by(package: Path, **environment: str) -> str:
    command = [sys.executable, "-m", "shop.jobs"]
    done = subprocess.run(command, check=True, cwd=package, env=environment, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


def test_a_program_run_as_a_module_of_a_package_finds_its_neighbours_in_processes_too(package: Path) -> None:
    assert said_by(package) == "toril"


def test_a_function_that_its_process_cannot_load_fails_with_the_reason(package: Path) -> None:
    assert said_by(package, BROKEN="1").endswith(
        "failed: the handler could not be loaded in its process: LookupError: no licence"
    )


TYPED = """
import asyncio, sys
from toril import App, JobContext
from toril.model import NewJob

app = App("memory://")
seen = []

async def work(ctx: JobContext[int]) -> int:
    return ctx.data

app.on("active", lambda event: seen.append("pydantic" in sys.modules))
queue = app.queue("q", [work])

async def main():
    async with app:
        await queue.store.add("q", [NewJob(name="work", data="1")])
        await app.run(burst=True)
        print(seen)

asyncio.run(main())
"""


def test_a_job_does_not_pay_for_loading_what_checks_its_payload() -> None:
    """That takes a good part of a second, in which the loop stands still and the job's timeout runs."""
    done = subprocess.run([sys.executable, "-c", TYPED], check=True, capture_output=True, text=True, timeout=60)

    assert done.stdout == "[True]\n"
