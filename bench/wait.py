"""How soon a job that another process adds is noticed, and what waiting costs while nothing comes.

    python -m bench.wait [--times N] [--idle SECONDS]

A child process answers each ping with a job that carries the time at which it was added; the clock is the machine's,
so that both processes read the same one. Prints the time from there to the end of the wait, and the share of one core
that this process uses while it waits for nothing.
"""

import argparse
import asyncio
import resource
import statistics
import sys
import tempfile
from itertools import count
from pathlib import Path

from toril.model import Claim, Claimed, NewJob
from toril.runtime.clock import SYSTEM
from toril.store.engine import Store, connect

LONG = 60_000
_tokens = count(1)


async def take(engine: Store, queue: str) -> Claimed:
    """Wait for a job, and claim it."""
    while True:
        await engine.wait([queue], timeout=LONG)
        token = f"{queue}-{next(_tokens)}"
        jobs = (await engine.exchange(queue, [], Claim(want=2, token=token, lease=LONG, worker="bench"))).jobs
        if jobs:
            return jobs[0]


async def answer(url: str, times: int) -> None:
    """The child: a job in `pong` for each one in `ping`."""
    engine = connect(url)
    await engine.open()
    for _ in range(times):
        await take(engine, "ping")
        await SYSTEM.sleep(SYSTEM.random() * 0.1)  # so that it falls anywhere between two looks
        await engine.add("pong", [NewJob(name="n", data=str(SYSTEM.monotonic()))])
    await engine.close()


async def delays(engine: Store, times: int) -> list[float]:
    """Seconds from the end of each add in the child to the end of the wait here."""
    found = []
    for _ in range(times):
        await engine.add("ping", [NewJob(name="n")])
        added = float((await take(engine, "pong")).data)
        found.append(SYSTEM.monotonic() - added)
    return found


async def idle_share(engine: Store, seconds: int) -> float:
    """The share of one core that waiting for nothing takes."""
    before, began = _used(), SYSTEM.monotonic()
    await engine.wait(["nothing"], timeout=seconds * 1000)
    return (_used() - before) / (SYSTEM.monotonic() - began)


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def measure(url: str, times: int, idle: int) -> None:
    engine = connect(url)
    await engine.open()
    command = [sys.executable, "-m", "bench.wait", "--answer", url, "--times", str(times)]
    child = await asyncio.create_subprocess_exec(*command)
    try:
        found = sorted(await delays(engine, times))
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
    share = await idle_share(engine, idle)
    await engine.close()
    p99 = found[min(len(found) - 1, round(len(found) * 0.99))]
    print(f"noticed after   p50 {statistics.median(found) * 1000:.0f} ms   p99 {p99 * 1000:.0f} ms   "
          f"longest {found[-1] * 1000:.0f} ms   ({times} times)")  # fmt: skip
    print(f"waiting idly    {share * 100:.2f} % of a core   ({idle} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--idle", type=int, default=10, help="seconds to wait for nothing")
    parser.add_argument("--answer", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        asyncio.run(answer(options.answer, options.times))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(f"sqlite:///{Path(folder, 'bench.db')}", options.times, options.idle))


if __name__ == "__main__":
    main()
