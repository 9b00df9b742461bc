"""The engine alone: whole lives (add, claim, settle) in batches of 100, and bulk adds of 1,000.

    python -m bench.engine [URL] [--jobs N] [--rounds N]

Beside it, in the same rounds, SQLite by itself: one table, one index, and the same three steps in commits of 100, with
no ids, leases, records, events or figures. Lanes are callers at the same time, whose steps share commits. Prints
medians, the range, and the share of what bare SQLite does.
"""

import argparse
import asyncio
import json
import platform
import sqlite3
import statistics
import tempfile
from itertools import count
from pathlib import Path

from toril.model import Call, Claim, Completed, NewJob, Settlement
from toril.runtime.clock import SYSTEM
from toril.store.engine import Store, connect

BATCH = 100
DATA = json.dumps({"user_id": 12345, "email": "someone@example.org", "text": "x" * 50})
_numbers = count()


def jobs(size: int) -> list[NewJob]:
    return [NewJob(name="noop", data=DATA) for _ in range(size)]


async def lives(engine: Store, total: int, lane: int) -> None:
    """One lane: add a batch; hand in the last one and claim the next; over and over."""
    queue, sender = f"lane{lane}", f"bench-{lane}-{SYSTEM.unique()}"
    batch: list[Settlement] = []
    new = jobs(BATCH)
    for _ in range(total // BATCH):
        await engine.add(queue, new, call=Call(f"{sender}-p", next(_numbers)))
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
    if url == "memory://":
        await engine.obliterate("bulk", limit=10_000)
    await engine.close()
    return total / took


def rate_of_bare_sqlite(folder: str, total: int) -> float:
    """Insert, claim and delete, a commit for each batch of each."""
    connection = sqlite3.connect(Path(folder, "bare.db"), isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, state INTEGER, data TEXT)")
    connection.execute("CREATE INDEX by_state ON jobs (state, id)")
    claim = "SELECT id, data FROM jobs WHERE state = 0 ORDER BY id LIMIT ?"
    start = SYSTEM.monotonic()
    for _ in range(total // BATCH):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO jobs (state, data) VALUES (0, ?)", [(DATA,)] * BATCH)
        connection.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        taken = [(key,) for key, _ in connection.execute(claim, (BATCH,)).fetchall()]
        connection.executemany("UPDATE jobs SET state = 1 WHERE id = ?", taken)
        connection.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("DELETE FROM jobs WHERE id = ?", taken)
        connection.execute("COMMIT")
    took = SYSTEM.monotonic() - start
    connection.close()
    return total / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="the store; by default a file in a new temporary folder, fully synced")
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    figures: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            url = options.url or f"sqlite:///{Path(folder, 'bench.db')}"
            figures.setdefault("bare SQLite", []).append(rate_of_bare_sqlite(folder, options.jobs))
            for lanes in (1, 2):
                name = f"whole lives, {lanes} lane{'s' * (lanes > 1)}"
                figures.setdefault(name, []).append(asyncio.run(rate_of_lives(url, options.jobs, lanes)))
            figures.setdefault("bulk add", []).append(asyncio.run(rate_of_adds(url, options.jobs)))
    bare = statistics.median(figures["bare SQLite"])
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.machine()}")
    for name, rates in figures.items():
        median = statistics.median(rates)
        print(f"{name:22} {median:>9,.0f}/s  {median / bare:5.2f} of bare  ({min(rates):,.0f} to {max(rates):,.0f})")


if __name__ == "__main__":
    main()
