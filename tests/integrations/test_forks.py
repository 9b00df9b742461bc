"""Programs that fork with an app in hand: gunicorn that loads it before, and pools of processes as Celery has them."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from tests.conformance.jobs import claim, settle
from tests.integrations.programs import answer, started, until
from tests.servers import running
from toril import App
from toril.model import Completed

# The app has been used by the parent when it forks, and is used by it again when its children are gone.
FORKED = """
import os, time
from flask import Flask
from toril import App

app = App()
orders = app.queue("orders")
first = orders.sync.add("of the parent", os.getpid())
web = Flask(__name__)

@web.post("/orders")
def order():
    time.sleep(0.02)  # so that one worker cannot answer all
    return {"pid": os.getpid(), "job": orders.sync.add("of a child", os.getpid()).id}
"""
SETTINGS = """
def on_exit(server):
    import forked
    forked.orders.sync.add("of the parent", 0)
"""

# Children that live long and use it both ways, while the parent goes on.
POOL = """
import asyncio, multiprocessing, os, sys
from toril import App

app = App(sys.argv[1], prefix=sys.argv[2])
orders = app.queue("orders")

async def twice():
    async with app:
        await orders.add("of a child", os.getpid())

def work(number):
    orders.sync.add("of a child", number)
    asyncio.run(twice())
    return orders.sync.counts().waiting > 0

if __name__ == "__main__":
    orders.sync.add("of the parent", 0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        told = pool.map_async(work, range(4), chunksize=1)
        orders.sync.add("of the parent", 1)
        assert told.get(120) == [True] * 4
    orders.sync.add("of the parent", 2)
"""


# Parent and child wait for results at the same time, each in an event loop of its own.
WAITING = """
import asyncio, multiprocessing, os, sys
from toril import App

app = App(sys.argv[1], prefix=sys.argv[2])
orders = app.queue("orders")

async def wait(name):
    async with app:
        job = await orders.add(name)
        print(name, job.id, flush=True)
        assert await job.result(timeout=120) == "done"

def work():
    asyncio.run(wait("child"))

async def main():
    async with app:
        waiting = asyncio.create_task(wait("parent"))
        while not os.path.exists("fork"):
            await asyncio.sleep(0.05)
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        await waiting
        await asyncio.to_thread(child.join)
        assert child.exitcode == 0

asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "redis"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    """The app as the test sees it, in a store that forked programs share."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}" if request.param == "sqlite" else running("redis").url
    app = App(url, prefix=f"forks-{tmp_path.name}"[:60])
    app.queue("orders")
    async with app:
        yield app
        await app.queues["orders"].obliterate()


async def test_gunicorn_may_load_an_app_that_is_used_before_it_forks(app: App, tmp_path: Path) -> None:
    (tmp_path / "forked.py").write_text(FORKED.replace("App()", f"App(prefix={app.prefix!r})"), "utf-8")
    (tmp_path / "settings.py").write_text(SETTINGS, "utf-8")
    words = ("gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:0", "--config", "settings.py")

    with started(tmp_path, tmp_path / "web.log", *words, "forked:web", TORIL_URL=app.url) as site:
        base = site.said(r"Listening at: (http://\S+)")
        told: list[dict[str, int | str]] = []
        with ThreadPoolExecutor(4) as clients:

            def both() -> bool | None:
                asked = [clients.submit(answer, "POST", f"{base}/orders") for _ in range(8)]
                told.extend(each.result().json() for each in asked)
                return True if len({each["pid"] for each in told}) == 2 else None

            until(both, lambda: site.output)
        assert site.end() == 0, site.output

    assert len({each["job"] for each in told}) == len(told)
    assert (await app.queues["orders"].counts()).waiting == len(told) + 2, site.output


async def test_a_pool_of_forked_processes_shares_an_app_with_its_parent(app: App, tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL, "utf-8")

    with started(tmp_path, tmp_path / "pool.log", "python", "pool.py", app.url, app.prefix) as pool:
        assert (pool.wait(), pool.output) == (0, "")

    assert (await app.queues["orders"].counts()).waiting == 3 + 2 * 4


async def test_a_forked_child_hears_of_results_as_its_parent_does(tmp_path: Path) -> None:
    server = running("redis")
    app = App(server.url, prefix=f"forks-{tmp_path.name}"[:60])
    (tmp_path / "waiting.py").write_text(WAITING, "utf-8")
    client = redis.Redis(port=server.port, decode_responses=True)
    channel = f"{app.prefix}:orders:toril:ended"

    def listeners(count: int) -> bool | None:
        return True if client.pubsub_numsub(channel) == [(channel, count)] else None

    orders = app.queue("orders")
    command = ("python", "waiting.py", app.url, app.prefix)
    async with app:
        with started(tmp_path, tmp_path / "waiting.log", *command) as both:
            until(lambda: listeners(1), lambda: both.output)
            (tmp_path / "fork").touch()
            until(lambda: listeners(2), lambda: both.output)
            for job in (await claim(app.store, 2, queue="orders")).jobs:
                await settle(app.store, job.lease, Completed('"done"'))
            assert both.wait() == 0, both.output
        await orders.obliterate()
    client.close()
