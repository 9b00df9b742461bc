"""What open dashboards cost: 50 tabs on a store where nothing happens, and on one whose workers are busy.

    python -m bench.dashboards

The site runs in a process of its own, with no worker in it, on a Redis of our own. Two figures are measured: the
processor time of the site while nothing happens, and how many jobs a worker ends in a second without tabs and with
them, by turns.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median

from tests.servers import RedisServer, free_port

from toril import App, JobContext

__all__: list[str] = []

VIEWS = ("", "workers", "dead", "groups", "flows", "breakers", "schedules")
REQUEST = "GET /live?view={view} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n"


async def nothing(_: JobContext[None]) -> None:
    """A job that costs only what the store and the worker cost."""


@contextlib.asynccontextmanager
async def tabs(port: int, many: int) -> AsyncIterator[None]:
    """So many open pages that read what they are sent."""

    async def follow(view: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST.format(view=view).encode())
        try:
            while await reader.read(65536):
                pass
        finally:
            writer.close()

    tasks = [asyncio.create_task(follow(VIEWS[n % len(VIEWS)])) for n in range(many)]
    await asyncio.sleep(2)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def site(url: str, port: int) -> AsyncIterator[int]:
    """The dashboard in a process of its own; its number."""
    code = (
        "import asyncio, sys\nfrom toril import App\nfrom toril.web import Open, site\n"
        "from toril.web.server import Server\n"
        "async def main():\n    shown = site(App(sys.argv[1]), access=Open())\n"
        "    await Server(shown, '127.0.0.1', int(sys.argv[2])).start()\n"
        "    await asyncio.Event().wait()\nasyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, url, str(port))
    for _ in range(200):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            break
        await asyncio.sleep(0.1)
    try:
        yield process.pid
    finally:
        process.terminate()
        await process.wait()


def spent(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def idle(pid: int, seconds: float) -> float:
    """Its share of a core, in percent."""
    before, start = spent(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (spent(pid) - before) / (time.monotonic() - start) * 100


async def rate(url: str, jobs: int) -> float:
    """Jobs that one worker ends in a second."""
    app = App(url)
    queue = app.queue("bench", {"nothing": nothing}, concurrency=50)
    async with app:
        await queue.add_many([("nothing", None)] * jobs)
        start = time.monotonic()
        await app.run(burst=True, signals="leave")
        return jobs / (time.monotonic() - start)


async def measured(many: int, seconds: float, jobs: int, rounds: int) -> None:
    redis = RedisServer().start()
    port = free_port()
    try:
        async with site(redis.url, port) as pid:
            await rate(redis.url, 100)
            connections = len(redis.clients().splitlines())
            alone = await idle(pid, seconds)
            async with tabs(port, many):
                more = len(redis.clients().splitlines()) - connections
                print(
                    f"{many} tabs, nothing happens: {await idle(pid, seconds):.1f} % of a core ({alone:.1f} % without)"
                )
                print(f"connections to Redis that they add: {more}")
            without, beside = [], []
            for _ in range(rounds):
                without.append(await rate(redis.url, jobs))
                async with tabs(port, many):
                    beside.append(await rate(redis.url, jobs))
            change = (median(beside) / median(without) - 1) * 100
            print(
                f"jobs a second: {median(without):,.0f} without tabs, {median(beside):,.0f} with them ({change:+.1f} %)"
            )
    finally:
        redis.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tabs", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    asyncio.run(measured(given.tabs, given.seconds, given.jobs, given.rounds))


if __name__ == "__main__":
    main()
