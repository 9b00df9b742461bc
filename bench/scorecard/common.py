"""What the processes of every peer do alike. It stands on the standard library alone: peers have environments of their
own, without Toril."""

import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

__all__ = ["NAME", "PORT", "URL", "add_all", "ended", "main", "started"]

PORT = int(os.environ.get("SCORECARD_PORT", "6379"))
URL = f"redis://127.0.0.1:{PORT}/0"
NAME = os.environ.get("SCORECARD_NAME", "none")
_LOG = Path(os.environ.get("SCORECARD_FOLDER", os.devnull)) / f"{NAME}.log"
_LANES = 4
_PATIENCE = 10.0  # seconds that a producer waits for an answer, where the peer itself would wait for ever


def note(word: str, *facts: object) -> None:
    """One line in one write: a process that dies leaves no half of one."""
    handle = os.open(_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(handle, (" ".join([word, f"{time.monotonic():.4f}", str(os.getpid()), *map(str, facts)]) + "\n").encode())
    os.close(handle)


def started(data: dict[str, Any]) -> float:
    """A run of a job begins; how long it is to last, in seconds."""
    note("start", data["nonce"])
    return float(data["ms"]) / 1000


def ended(data: dict[str, Any]) -> None:
    note("end", data["nonce"])


async def add_all(add: Callable[[dict[str, Any]], Awaitable[object]]) -> None:
    """Add this producer's share of the jobs in step with the clock. What was not answered is not asked for again."""
    seed, jobs, seconds = (os.environ[f"SCORECARD_{name}"] for name in ("SEED", "JOBS", "SECONDS"))
    lane, producers = int(os.environ["SCORECARD_LANE"]), int(os.environ["SCORECARD_PRODUCERS"])
    numbers, began = iter(range(lane, int(jobs), producers)), time.monotonic()

    async def keep_adding() -> None:
        for number in numbers:
            await asyncio.sleep(max(0.0, began + number * float(seconds) / int(jobs) - time.monotonic()))
            chance = random.Random(f"{seed} order {number}")
            data = {"nonce": f"n{number}", "ms": chance.choice((0, 5, 20, 100, 400))}
            note("attempt", data["nonce"])
            try:
                await asyncio.wait_for(add(data), _PATIENCE)
            except Exception as error:
                note("unknown", data["nonce"], type(error).__name__)
            else:
                note("ack", data["nonce"])

    await asyncio.gather(*(keep_adding() for _ in range(_LANES)))
    note("done")


def main(produce: Callable[[], Awaitable[None]], work: Callable[[int], None]) -> None:
    """`producer` or `worker`, until the input ends."""
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    if sys.argv[1] == "producer":
        asyncio.run(produce())  # type: ignore[arg-type]
        os._exit(0)  # some leave threads behind that never end
    note("hello", NAME)
    work(8)


def _end_with_the_driver() -> None:
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)
