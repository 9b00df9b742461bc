"""A million jobs in the store, and every GET of the API and the dashboard asked for, many times.

    python -m bench.million [URL …] [--jobs N] [--rounds N]

Without a URL it takes a Redis of its own, and then an SQLite file. Prints p50, p99 and the longest time of each URL,
and the slowest commands that Redis noted. The bounds are 300 ms (p99) for a page and 20 ms for a command of Redis.

To measure another page, add its address to `PAGES`.
"""

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from tests.servers import RedisServer

from toril import App
from toril.model import Claim, Completed, Failed, Failure, Heartbeat, JobOptions, Keep, NewJob, Settlement
from toril.runtime.clock import SYSTEM
from toril.web import CustomAccess, Role, site
from toril.web.api import ENDPOINTS
from toril.web.server import HttpServer

PAGE_MS, COMMAND_MS = 300.0, 20.0
KEPT = Keep(10_000_000)
# queue -> its share of the jobs, and the state that they are in
SHARES = {"waiting": 0.45, "prioritized": 0.05, "delayed": 0.2, "failed": 0.2, "completed": 0.1}

# What is asked for beside each GET of the API as it stands; addresses of pages go here.
PAGES = (
    "/api/v1/queues/failed/jobs?state=failed&limit=100",
    "/api/v1/queues/failed/jobs?state=failed&error=user+7",
    "/api/v1/queues/failed/jobs?state=failed&key=user.id=77777",
    "/api/v1/queues/waiting/jobs?state=waiting&q=nothing+has+this",
    "/api/v1/queues/delayed/jobs?state=delayed&limit=100",
    "/api/v1/queues/prioritized/jobs?state=prioritized&limit=100",
    "/api/v1/queues/completed/jobs?state=completed&limit=100",
    "/api/v1/queues/failed/count?state=failed&error=timed",
    "/api/v1/queues/failed/count?state=failed",
    "/api/v1/queues/waiting/jobs.csv?state=waiting&limit=100",
    "/api/v1/queues/failed/runs?status=failed&limit=100",
    "/api/v1/queues/completed/metrics?range=7d",
    "/metrics", "/api/v1/openapi.json",
    "/", "/queues/waiting", "/queues/failed", "/queues/failed?state=failed", "/dead", "/dead?q=user", "/workers",
    "/schedules", "/flows", "/flows?show=ended", "/groups", "/breakers", "/audit", "/audit?q=nothing", "/find?q=77",
    "/find?q=nothing+has+this", "/find?q=error:user+7", "/find?q=group:nobody", "/queues/failed?names=all",
    "/queues/failed?state=failed&q=error:user",
)  # fmt: skip

_numbers = count()


def new(queue: str, number: int) -> NewJob:
    more: dict[str, Any] = {
        "delayed": {"delay": 86_400_000 + number % 1000},
        "prioritized": {"priority": 1 + number % 9},
    }
    data = f'{{"user": {{"id": {number}}}, "text": "{"x" * 50}"}}'
    return NewJob(
        name=f"job{number % 20}",
        data=data,
        options=JobOptions(keep_failed=KEPT, keep_completed=KEPT),
        **more.get(queue, {}),
    )


async def fill(app: App, total: int) -> None:
    for queue, share in SHARES.items():
        many = int(total * share)
        for first in range(0, many, 1000):
            await app.store.add(queue, [new(queue, n) for n in range(first, min(first + 1000, many))])
        if queue in ("failed", "completed"):
            await end(app, queue)
    await app.store.add("buried", [NewJob(name="job", data='{"n": 1}') for _ in range(1000)])
    await end(app, "buried")
    beat = Heartbeat(worker="worker-1", queues=tuple(SHARES), slots=50, running=50)
    await app.store.heartbeat(beat, ttl=3_600_000)
    await app.queue("failed").schedules.put("nightly", "job", cron="0 2 * * *")
    await app.store.exchange("waiting", [], Claim(want=50, token="held", lease=3_600_000, worker="worker-1"))


async def end(app: App, queue: str) -> None:
    """Claim and settle all that waits in a queue."""
    batch: list[Settlement] = []
    while True:
        claim = Claim(want=100, token=f"t{next(_numbers)}", lease=600_000, worker="filler")
        answer = await app.store.exchange(queue, batch, claim)
        good = queue == "completed"
        batch = [
            Settlement(job.lease, Completed('{"ok": true}') if good else Failed(_failure(number)))
            for number, job in enumerate(answer.jobs)
        ]
        if not batch:
            return


def _failure(number: int) -> Failure:
    return Failure(f"no user {number}" if number % 3 else "timed out", "LookupError", "Traceback\n" + "  line\n" * 20)


async def addresses(app: App) -> list[str]:
    """Every GET of the API with something that is there, then the rest."""
    job = (await app.queue("failed").jobs("failed", limit=1)).items[0].id
    letter = (await app.dead_letters.page(limit=1)).items[0].id.replace("/", "%2F")
    found = list(_endpoints(job, letter))
    deep = None
    for _ in range(20):  # a page in the middle of many
        page = await app.queue("waiting").jobs("waiting", deep, 1000)
        deep = page.cursor
    walks = [f"/api/v1/doctor?cursor={cursor}" for cursor in await _on_the_way(app)]
    shown = [f"/queues/failed/jobs/{job}", f"/dead/{letter}"]
    return [*found, f"/api/v1/queues/waiting/jobs?state=waiting&cursor={deep}", *walks, *shown, *PAGES]


async def _on_the_way(app: App) -> list[str]:
    """Where a doctor stands after a while: along the lines of the queues, and on Redis among the keys."""
    parts = [await app.doctor_page(patience=1), await app.doctor_page([], patience=0.2)]
    return [part.cursor for part in parts if part.cursor is not None]


def _endpoints(job: str, letter: str) -> Iterator[str]:
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET":
            path = endpoint.path.replace("/dead-letters/{id}", f"/dead-letters/{letter}")
            path = path.replace("{queue}", "failed").replace("/jobs/{id}", f"/jobs/{job}").replace("{id}", "nightly")
            path += "?q=nothing+has+this" if path == "/search" else ""
            yield "/api/v1" + path.replace("{worker}", "worker-1").replace("{group}", "none").replace("{key}", "none")


async def asked(port: int, paths: list[str], rounds: int) -> dict[str, tuple[int, list[float]]]:
    """Of each address, its status and the times that its answers took, in ms."""
    found: dict[str, tuple[int, list[float]]] = {}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        for path in paths:
            status, times = 0, []
            for _ in range(rounds):
                start = SYSTEM.monotonic()
                status = (await client.get(path)).status_code
                times.append((SYSTEM.monotonic() - start) * 1000)
            found[path] = (status, sorted(times))
    return found


async def slow(app: App, *words: Any) -> Any:
    store: Any = app.store
    return await store._server.ask(*words)  # noqa: SLF001


async def measure(url: str, total: int, rounds: int) -> bool:
    """Whether all is within its bounds."""
    app = App(url)
    is_redis = url.startswith("redis")
    async with app:
        start = SYSTEM.monotonic()
        await fill(app, total)
        print(f"{url.partition('://')[0]}: {total} jobs in {SYSTEM.monotonic() - start:.0f} s")
        if is_redis:
            await slow(app, "CONFIG", "SET", "slowlog-log-slower-than", "1000")
            await slow(app, "CONFIG", "SET", "slowlog-max-len", "10000")
            await slow(app, "SLOWLOG", "RESET")
        server = HttpServer(site(app, access=CustomAccess(lambda _: Role.ADMIN)), "127.0.0.1", 0)
        port = await server.start()
        found = await asked(port, await addresses(app), rounds)
        await server.close()
        over = show(found)
        if is_redis:
            over |= show_slow(await slow(app, "SLOWLOG", "GET", "10000"))
    return not over


def show(found: dict[str, tuple[int, list[float]]]) -> bool:
    over = False
    print(f"{'p50':>8} {'p99':>8} {'max':>8}  ms")
    for path, (status, times) in sorted(found.items(), key=lambda each: -each[1][1][-1]):
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        mark = " OVER" if p99 > PAGE_MS else ""
        over |= bool(mark)
        print(f"{statistics.median(times):8.1f} {p99:8.1f} {times[-1]:8.1f}  {status} {path[:90]}{mark}")
    return over


def show_slow(entries: Any) -> bool:
    """The slowest of each kind of command."""
    worst: dict[str, tuple[float, int]] = {}
    for _, _, micros, words, *_ in entries:
        name = " ".join(str(word)[:30] for word in words[:2])
        most, many = worst.get(name, (0.0, 0))
        worst[name] = (max(most, micros / 1000), many + 1)
    print("commands of Redis over 1 ms:")
    for name, (most, many) in sorted(worst.items(), key=lambda each: -each[1][0])[:12]:
        print(f"{most:8.1f} ms  {many:6} times  {name}{' OVER' if most > COMMAND_MS else ''}")
    return any(most > COMMAND_MS for most, _ in worst.values())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("urls", nargs="*")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        redis = None if given.urls else RedisServer().start()
        urls = given.urls or [redis.url if redis else "", f"sqlite:///{Path(folder) / 'million.db'}"]
        fine = [asyncio.run(measure(url, given.jobs, given.rounds)) for url in urls]
        if redis is not None:
            redis.stop()
    print("within the bounds" if all(fine) else "NOT within the bounds")


if __name__ == "__main__":
    main()
