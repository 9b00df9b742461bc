"""A worker that runs out of what the machine lends: files, mainly. Its job is kept, and goes on when there are some."""

import json
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
