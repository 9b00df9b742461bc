"""The engine alone: whole lives (add, claim, settle) in batches of 100, and bulk adds of 1,000.

    python -m bench.engine [URL] [--jobs N] [--rounds N]

Two lanes run side by side, as a worker and a producer do, so that their steps share commits. Prints medians.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
from itertools import count
from pathlib import Path

from toril.clock import SYSTEM
from toril.engine import Store, connect
from toril.model import Call, Claim, Completed, NewJob, Settlement

BATCH = 100
LANES = 2
DATA = json.dumps({"user_id": 12345, "email": "someone@example.org", "text": "x" * 50})
_numbers = count()


def jobs(size: int) -> list[NewJob]:
    return [NewJob(name="noop", data=DATA) for _ in range(size)]


async def lives(engine: Store, total: int, lane: int) -> None:
    """One lane: add a batch; hand in the last one and claim the next; over and over."""
    queue, sender = f"lane{lane}", f"bench-{lane}-{SYSTEM.unique()}"
    batch: list[Settlement] = []
    for _ in range(total // BATCH):
        await engine.add(queue, jobs(BATCH), call=Call(f"{sender}-p", next(_numbers)))
        number = next(_numbers)
        claim = Claim(want=BATCH, token=f"{sender}:{number}", lease=30_000, worker=sender)
        answer = await engine.exchange(queue, batch, claim, call=Call(sender, number))
        assert len(answer.jobs) == BATCH
        batch = [Settlement(job.lease, Completed()) for job in answer.jobs]
    number = next(_numbers)
    claim = Claim(want=0, token=f"{sender}:{number}", lease=30_000, worker=sender)
    answer = await engine.exchange(queue, batch, claim, call=Call(sender, number))
    assert all(verdict == "ok" for verdict in answer.verdicts)


async def rate_of_lives(url: str, total: int, lanes: int) -> float:
    engine = connect(url)
    await engine.open()
    start = SYSTEM.monotonic()
    async with asyncio.TaskGroup() as group:
        for lane in range(lanes):
            group.create_task(lives(engine, total // lanes, lane))
    took = SYSTEM.monotonic() - start
    await engine.close()
    return total / took


async def rate_of_adds(url: str, total: int) -> float:
    engine = connect(url)
    await engine.open()
    batches = [jobs(1000) for _ in range(total // 1000)]
    sender = f"bench-bulk-{SYSTEM.unique()}"
    start = SYSTEM.monotonic()
    for batch in batches:
        await engine.add("bulk", batch, call=Call(sender, next(_numbers)))
    took = SYSTEM.monotonic() - start
    await engine.close()
    return total / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="the store; by default a file in a new temporary folder, fully synced")
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    figures: dict[str, list[float]] = {"whole lives, 1 lane": [], f"whole lives, {LANES} lanes": [], "bulk add": []}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            url = options.url or f"sqlite:///{Path(folder, 'bench.db')}"
            figures["whole lives, 1 lane"].append(asyncio.run(rate_of_lives(url, options.jobs, 1)))
            figures[f"whole lives, {LANES} lanes"].append(asyncio.run(rate_of_lives(url, options.jobs, LANES)))
            figures["bulk add"].append(asyncio.run(rate_of_adds(url, options.jobs)))
    for name, rates in figures.items():
        print(f"{name:24} {statistics.median(rates):>9,.0f}/s   ({min(rates):,.0f} to {max(rates):,.0f})")


if __name__ == "__main__":
    main()
