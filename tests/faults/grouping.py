"""A worker of groups in a process of its own, to be killed. It notes each start, and each end before handing it in."""

import asyncio
import json
import os
import sys
import time
from itertools import count

from toril.model import Claim, Claimed, Completed, Settlement
from toril.store.engine import connect

LEASE = 500
_JOB = 0.02


async def work(url: str, ledger: str) -> None:
    engine, name = connect(url), f"w{os.getpid()}"
    handle = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(word: str, jobs: tuple[Claimed, ...]) -> None:
        lines = [f"{word} {json.loads(job.data)} {job.fence} {time.monotonic()}\n" for job in jobs]
        os.write(handle, "".join(lines).encode())

    await engine.open()
    done: tuple[Claimed, ...] = ()
    for number in count():
        claim = Claim(want=5, token=f"{name}-{number}", lease=LEASE, worker=name, alone=True, max_stalls=1000)
        answer = await engine.exchange("q", [Settlement(job.lease, Completed()) for job in done], claim)
        note("start", answer.jobs)
        await asyncio.sleep(_JOB)
        note("end", answer.jobs)
        done = answer.jobs
        recovered = await engine.recover("q")
        if not done:
            counts = await engine.counts("q")
            if not (recovered.returned or counts.active or counts.waiting):
                break
    await engine.close()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2]))
