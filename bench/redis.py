"""The Redis engine: bulk adds, whole lives in batches of 100, and a no-op drain through `app.run()`.

    python -m bench.redis [URL] [--jobs N] [--rounds N] [--concurrency N]

Without a URL it starts a server of its own, without persistence. Prints medians and ranges, the server's and this
process's CPU time a job, and the commands a job inside scripts.
"""

import argparse
import asyncio
import resource
import statistics
from collections.abc import Awaitable, Callable

from tests.servers import RedisServer

from bench.engine import BATCH, jobs, lives, rate_of_adds
from toril import App, JobContext
from toril.clock import SYSTEM
from toril.engines.redis import RedisEngine, connect
from toril.model import Call, NewJob

Figures = tuple[float, float, float, float]  # jobs a second; µs of the server and of us, and commands, a job


async def usage(engine: RedisEngine) -> tuple[float, float, int]:
    """CPU seconds of the server and of this process, and commands so far."""
    cpu = str(await engine._server.ask("INFO", "cpu"))  # noqa: SLF001
    stats = str(await engine._server.ask("INFO", "commandstats"))  # noqa: SLF001
    server = sum(
        float(line.split(":")[1]) for line in cpu.splitlines() if line.startswith(("used_cpu_sys:", "used_cpu_user:"))
    )
    calls = sum(int(line.split("calls=")[1].split(",")[0]) for line in stats.splitlines() if "calls=" in line)
    own = resource.getrusage(resource.RUSAGE_SELF)
    return server, own.ru_utime + own.ru_stime, calls


async def measured(url: str, total: int, work: Callable[[], Awaitable[float]]) -> Figures:
    engine = connect(url)
    await engine.open()
    before = await usage(engine)
    took = await work()
    after = await usage(engine)
    await engine._server.ask("FLUSHALL")  # noqa: SLF001
    await engine.close()
    server, own, calls = (b - a for a, b in zip(before, after, strict=True))
    return total / took, server / total * 1e6, own / total * 1e6, calls / total


async def adds(url: str, total: int) -> float:
    return total / await rate_of_adds(url, total)


async def whole_lives(url: str, total: int) -> float:
    engine = connect(url)
    await engine.open()
    start = SYSTEM.monotonic()
    await lives(engine, total // BATCH * BATCH, 0)
    took = SYSTEM.monotonic() - start
    await engine.close()
    return took


async def drain(url: str, total: int, concurrency: int) -> float:
    """From the first handler to the last, as the peers are measured. The queue is filled before."""
    done, times = 0, [0.0, 0.0]
    app = App(url)

    async def noop(ctx: JobContext[dict[str, object]]) -> None:  # noqa: ARG001
        nonlocal done
        if not done:
            times[0] = SYSTEM.monotonic()
        done += 1
        if done == total:
            times[1] = SYSTEM.monotonic()
            app.stop()

    app.queue("noop", {"noop": noop}, concurrency=concurrency)
    await app.run()
    return times[1] - times[0]


async def fill(url: str, total: int) -> None:
    engine = connect(url)
    await engine.open()
    for number in range(0, total, 1000):
        await engine.add("noop", jobs(min(1000, total - number)), call=Call("fill", number + 1))
    await engine.close()


async def one_by_one(url: str, total: int) -> float:
    engine = connect(url)
    await engine.open()
    start = SYSTEM.monotonic()
    for number in range(total):
        await engine.add("one", [NewJob(name="noop", data="{}")], call=Call("one", number + 1))
    took = SYSTEM.monotonic() - start
    await engine.close()
    return took


def show(name: str, rounds: list[Figures]) -> None:
    rates = [figures[0] for figures in rounds]
    server, own, calls = (statistics.median(f[n] for f in rounds) for n in (1, 2, 3))
    print(
        f"{name:<28} {statistics.median(rates):>9,.0f}/s ({min(rates):,.0f}-{max(rates):,.0f})"
        f"   server {server:5.1f} µs  own {own:5.1f} µs  commands {calls:5.2f} a job"
    )


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url", nargs="?")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=100)
    options = parser.parse_args()
    server = None if options.url else RedisServer().start()
    url = options.url or (server.url if server else "")
    total = options.jobs
    found: dict[str, list[Figures]] = {}
    try:
        for _ in range(options.rounds):
            found.setdefault("bulk add", []).append(await measured(url, total, lambda: adds(url, total)))
            found.setdefault("one by one", []).append(
                await measured(url, total // 5, lambda: one_by_one(url, total // 5))
            )
            found.setdefault("whole lives, batches of 100", []).append(
                await measured(url, total, lambda: whole_lives(url, total))
            )
            for slots in (options.concurrency, 1):
                size = total if slots > 1 else total // 5
                await fill(url, size)
                found.setdefault(f"drain by app.run(), {slots}", []).append(
                    await measured(url, size, lambda size=size, slots=slots: drain(url, size, slots))  # type: ignore[misc]
                )
    finally:
        if server is not None:
            server.stop()
    for name, rounds in found.items():
        show(name, rounds)


if __name__ == "__main__":
    asyncio.run(main())
