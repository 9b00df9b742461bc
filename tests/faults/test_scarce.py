"""A worker that runs out of what the machine lends, or whose handlers do not give it back."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests import servers

_PROGRAM = """
import asyncio, json, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
import toril

app = toril.App(sys.argv[1])
queue = app.queue("q", lease=1, renew=0.2, retry=toril.Retry(attempts=3, backoff=toril.Fixed(0)), keep_completed=True)
told = []

@queue.handler
async def hungry(ctx):
    held = []
    await asyncio.sleep(0.3)
    if ctx.attempt == 1:
        try:
            while True:
                held.append(open("/dev/null"))
        except OSError as error:
            told.append(error.errno)
        await asyncio.sleep(2.5)  # longer than its lease, without a file to be had
        for file in held:
            file.close()
        raise ConnectionError("again")

async def main():
    async with app:
        job = await queue.add(hungry)
        await app.run(burst=True)
        await job.refresh()
        print(json.dumps({"state": (await job.state()).value, "stalls": job.stalls, "told": told}))

asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    server = servers.running()
    server.tell("FLUSHALL")
    return server.url


@pytest.mark.covers("F128")
def test_a_worker_without_a_file_to_open_keeps_its_lease_and_goes_on(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM), url], check=True, capture_output=True, text=True, timeout=60
    )

    found = json.loads(done.stdout)
    assert found == {"state": "completed", "stalls": 0, "told": [24]}


_LEAKING = """
import os, subprocess, threading, time
from toril import App

app = App()
queue = app.queue("q")

@queue.handler
async def leak(ctx):
    threading.Thread(target=time.sleep, args=(600,), name="left-by-a-handler").start()
    subprocess.Popen(["sleep", "600"])
    open(os.devnull)
"""


@pytest.mark.covers("F19")
def test_what_handlers_leave_behind_is_told_and_does_not_keep_a_worker_from_ending(url: str, tmp_path: Path) -> None:
    (tmp_path / "leaking.py").write_text(_LEAKING)
    env = os.environ | {"TORIL_URL": url, "PYTHONPATH": str(tmp_path)}
    toril = [sys.executable, "-m", "toril"]
    subprocess.run(
        [*toril, "add", "--create", "q", "leak", "null"], cwd=tmp_path, env=env, check=True, capture_output=True
    )

    told = tmp_path / "told"
    with told.open("wb") as log:  # a pipe would not end before the process that is left behind
        command = [*toril, "run", "leaking:app", "--burst", "--no-http"]
        done = subprocess.run(command, cwd=tmp_path, env=env, stderr=log, timeout=60, check=False)

    assert done.returncode == 0
    assert "threads started by handlers are still running: left-by-a-handler" in told.read_text()
    left = re.search(r"processes started by handlers are still running: (\d+)", told.read_text())
    assert left is not None
    os.kill(int(left[1]), signal.SIGKILL)
