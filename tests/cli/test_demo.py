"""`toril demo`, for real: only the waiting is shorter."""

import asyncio
import io
import os
import pty
import re
import shlex
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.cli.conftest import Fresh, on
from toril import App
from toril.cli.demo.screen import DemoView, Moment, picture
from toril.model import RunStatus
from toril.operate.search import JobSearch

WAITS = 120.0


@pytest.fixture
def _temporary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))


@pytest.mark.usefixtures("_temporary")
def test_the_demo_ends_by_itself_with_a_summary_that_adds_up(fresh: Fresh) -> None:
    process = fresh("demo", "--pace", "0.1")
    out, told = process.communicate(timeout=WAITS)

    assert process.returncode == 0, told
    assert told == ""
    assert "\x1b" not in out
    rows = {line.split()[0]: [int(n) for n in line.split()[1:6]] for line in _table(out)}
    together = rows.pop("total")
    assert set(rows) == {"emails", "thumbnails", "payments", "exports"}
    assert [sum(column) for column in zip(*rows.values(), strict=True)] == together
    assert together[0] == sum(together[1:4])
    assert together[2:4] == [1, 1]  # the poisoned and the cancelled one
    assert together[4] > 0
    assert f"{together[0]} of {together[0]} jobs ended in" in out
    assert _runs(_url(out)) == together[0]
    _try_next(fresh, out)


def _table(out: str) -> Iterator[str]:
    lines = iter(out.splitlines())
    for line in lines:
        if line.startswith("queue ") and "retries" in line:
            break
    for line in lines:
        if not line:
            return
        yield line


def _url(out: str) -> str:
    found = re.search(r"export TORIL_URL=(\S+)", out)
    assert found is not None
    return found[1]


def _runs(url: str) -> int:
    async def look(app: App) -> int:
        many = 0
        for name in await app.store.queues():
            for ending in RunStatus:
                many += len((await JobSearch(app.queue(name)).run_rows(ending, limit=1000)).items)
        return many

    return on(url, look)


def _try_next(fresh: Fresh, out: str) -> None:
    """What the demo says to try next works, word for word."""
    lines = [shlex.split(line) for line in out.partition("Try next:")[2].splitlines() if "toril " in line]
    commands = [words[words.index(next(word for word in words if word.endswith("toril"))) + 1 :] for words in lines]

    assert len(commands) == 5
    for command in commands:
        process = fresh(*command, env={"TORIL_URL": _url(out), "TORIL_DEMO_PACE": "0.05"})
        shown, told = process.communicate(timeout=WAITS)
        assert process.returncode == 0, told
        assert shown or "job completed" in told


@pytest.mark.usefixtures("_temporary")
def test_ctrl_c_ends_the_demo(fresh: Fresh) -> None:
    process = fresh("demo")
    assert process.stdout is not None
    while "started" not in process.stdout.readline():
        pass

    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=WAITS)

    assert process.returncode == 130
    assert told == "Stopped. Running jobs were returned to their queues.\n"


@pytest.mark.usefixtures("_temporary")
def test_on_a_terminal_the_demo_draws_and_leaves_the_summary(fresh: Fresh) -> None:
    ours, its = pty.openpty()
    process = fresh("demo", "--pace", "0.1", stdout=its, stdin=its, stderr=its, env={"TERM": "xterm"})
    os.close(its)
    shown = b""
    with suppress(OSError):  # an error is how a terminal ends
        while read := os.read(ours, 65536):
            shown += read
    os.close(ours)

    assert process.wait(WAITS) == 0
    text = shown.decode()
    assert "last events" in text
    assert "━" in text
    assert text.index("jobs ended in") > text.rindex("last events")


@pytest.mark.parametrize(("width", "height"), [(100, 30), (60, 24), (40, 20), (200, 60)])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_picture_fits_the_terminal(width: int, height: int, encoding: str) -> None:
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict" if encoding == "utf-8" else "replace")
    out = Console(file=buffer, width=width, height=height, color_system=None, force_terminal=True)

    async def work(app: App) -> DemoView:
        for name in ("emails", "thumbnails", "payments", "exports"):
            queue = app.queue(name, [_hold], concurrency=4)
            await queue.add_many([("_hold", None)] * 9)
        started: list[object] = []
        all_run = asyncio.Event()

        def count(event: object) -> None:
            started.append(event)
            if len(started) == 16:
                all_run.set()

        app.on("active", count)
        sight: list[DemoView] = []

        async def look() -> None:
            await all_run.wait()
            sight.append(await DemoView.of(app, 1.0, [Moment(1.0, "failed", "emails", "_hold 1", "x" * 300)] * 30))
            app.stop()
            app.stop()

        app.poller(look)
        await app.run(grace=0)
        return sight[0]

    with out.capture() as captured:
        out.print(picture(on("memory://", work), out))
    lines = captured.get().splitlines()

    assert len(lines) < height
    assert all(len(line.rstrip()) <= width for line in lines)
    for name in ("emails", "thumb", "payments", "exports"):
        assert any(name in line for line in lines)
    assert any("more" in line for line in lines)


async def _hold(ctx: Any) -> None:
    await ctx.update_progress(40)
    await ctx.signal.wait()
