"""A reaper in a process of its own, which notes every few milliseconds whether it may act."""

import asyncio
import os
import sys
import time

from toril.events import Events
from toril.operate.reaper import Reaper
from toril.runtime.clock import SYSTEM
from toril.store.engine import connect

_SAMPLE = 0.005


async def main(url: str, name: str, lease: float, ledger: str) -> None:
    store, events = connect(url), Events()
    notes = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    terms = 0

    def note(word: str, what: str, at: float) -> None:
        os.write(notes, f"{word} {name}.{os.getpid()}.{terms} {what} {at:.6f}\n".encode())

    def acquired(_: object) -> None:
        nonlocal terms
        terms += 1

    events.on("leadership_acquired", acquired)
    events.on("stalled", lambda event: note("moved", event.job_id, time.monotonic()))
    await store.open()
    reaper = Reaper(store, SYSTEM, events, name, lease=lease, stall_interval=0.1)
    working = asyncio.create_task(reaper.run())
    while not working.done():
        before = time.monotonic()  # taken first: who may act a moment later could act then too
        if reaper.leads:
            note("leads", "-", before)
        await asyncio.sleep(_SAMPLE)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]))
