"""BullMQ's own port to Python: no-op jobs added in bulk and worked off, or the time until a job of another process
starts. Run by an interpreter that has bullmq:  python bullmq_python.py PORT drain|latency|produce JOBS CONCURRENCY
"""

import asyncio
import json
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from bullmq import Queue, Worker

port, what, wanted, concurrency = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
CONNECTION = {"host": "127.0.0.1", "port": int(port)}
DATA = {"user_id": 12345, "email": "someone@example.org", "text": "x" * 50}


def used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def work(name: str, each: Callable[[Any], bool]) -> None:
    """A worker that hands each job to `each` until that says so, and then is closed."""
    over = asyncio.Event()

    async def run(job: Any, _: str) -> None:
        if each(job):
            over.set()

    worker = Worker(name, run, {"connection": CONNECTION, "concurrency": concurrency})
    await over.wait()
    await worker.close()


async def drain() -> dict[str, float]:
    queue = Queue("drain", {"connection": CONNECTION})
    began = time.monotonic()
    for at in range(0, wanted, 1000):
        await queue.addBulk([{"name": "noop", "data": DATA, "opts": {}}] * min(1000, wanted - at))
    added = time.monotonic() - began
    await queue.close()
    before, times = used(), []

    def each(_: Any) -> bool:
        times.append(time.monotonic())
        return len(times) == wanted

    await work("drain", each)
    return {"jobs": wanted, "add": added, "drain": times[-1] - times[0], "cpu": used() - before}


async def latency() -> dict[str, float]:
    found: list[float] = []

    def each(job: Any) -> bool:
        found.append(time.monotonic() - job.data["at"])
        return len(found) == wanted

    command = [sys.executable, __file__, port, "produce", str(wanted), str(concurrency)]
    child = await asyncio.create_subprocess_exec(*command)
    await work("latency", each)
    await child.wait()
    ordered = sorted(found)
    p99 = ordered[min(wanted - 1, round(wanted * 0.99))]
    return {"jobs": wanted, "p50": statistics.median(ordered) * 1000, "p99": p99 * 1000}


async def produce() -> None:
    queue = Queue("latency", {"connection": CONNECTION})
    await asyncio.sleep(1)
    for _ in range(wanted):
        await queue.add("noop", {"at": time.monotonic()}, {})
        await asyncio.sleep(random.uniform(0.005, 0.02))
    await queue.close()


answer = asyncio.run({"drain": drain, "latency": latency, "produce": produce}[what]())
if answer:
    print(json.dumps(answer))
