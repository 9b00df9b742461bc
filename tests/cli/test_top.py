"""`toril top`: the fleet at a glance, in a terminal of eighty columns."""

import io
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Fresh, Toril, on
from tests.servers import RedisServer
from toril import App
from toril.cli.top import Frame, drawn, look
from toril.model import Heartbeat


async def fill(app: App) -> None:
    await app.queue("email").add_many([("greet", None)] * 3)
    await app.queue("a-queue-with-quite-a-long-name-that-goes-on-and-on-and-on").add_many([("x", None)] * 12)
    await app.queue("email").pause()
    beat = Heartbeat(
        worker="worker-1", queues=("email",), slots=5, running=2, host="h", pid=7, version="1", started_at=0
    )
    await app.store.heartbeat(beat, ttl=60_000)


@pytest.fixture(params=["sqlite", "redis"])
def filled(request: pytest.FixtureRequest, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store with two queues and a worker."""
    if request.param == "sqlite":
        on(url, fill)
        yield url
        return
    server = RedisServer().start()
    monkeypatch.setenv("TORIL_URL", f"redis://127.0.0.1:{server.port}/0")
    on(os.environ["TORIL_URL"], fill)
    yield os.environ["TORIL_URL"]
    server.stop()


def test_one_frame_has_queues_and_workers_in_eighty_columns(toril: Toril, filled: str) -> None:
    lines = toril("top", "--once").stdout.splitlines()
    document = json.loads(toril("top", "--json").stdout)

    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("2 queues  1 worker  2 of 5 slots")
    assert [line.split()[0] for line in lines[2:4]] == ["a-queue-with-quite…", "email"]
    assert lines[2].split()[1] == "12"
    assert "(paused)" in lines[3]
    assert lines[-1].split()[:4] == ["worker-1", "2", "of", "5"]
    assert [each["queue"] for each in document["queues"]] == sorted(each["queue"] for each in document["queues"])


def test_q_ends_it(url: str, fresh: Fresh) -> None:
    on(url, fill)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "toril", "top", "--every", "0.5s"],
        stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )  # fmt: skip
    os.close(theirs)
    try:
        shown = b""
        while b"email" not in shown or b"q to quit" not in shown:
            assert select.select([ours], [], [], 30)[0], shown
            shown += os.read(ours, 65536)
        os.write(ours, b"xq")
        code, errors = _ended(process, ours)
        assert (code, errors) == (0, b"")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _ended(process: "subprocess.Popen[bytes]", ours: int) -> tuple[int, bytes]:
    """The exit code; what is still written to the terminal is read meanwhile, or its end would be waited for."""
    while process.poll() is None:
        try:
            if select.select([ours], [], [], 0.05)[0]:
                os.read(ours, 65536)
        except OSError:
            break
    assert process.stderr is not None
    with process.stderr as errors:
        return process.wait(30), errors.read()


def test_a_low_window_shows_who_needs_someone_and_counts_the_rest(url: str) -> None:
    async def many(app: App) -> Frame:
        for n in range(30):
            await app.queue(f"q{n}").add_many([("x", None)] * (n + 1))
        return await look(app)

    from rich.console import Console

    frame = on(url, many)
    out = Console(width=80, record=True, file=io.StringIO())
    out.print(drawn(frame, 80, 12))
    lines = out.export_text().splitlines()

    assert len(lines) <= 12
    assert lines[2].split()[:2] == ["q29", "30"]
    assert "more queues" in lines[-1]
