"""Where the server's time goes when a queue grows: each command of the exchange, behind a small and a large backlog.

    python -m bench.growth [--backlog N] [--shape waiting] [--rounds N]

Two servers have a backlog each, of 1,000 jobs and of N. By turns, a caller claims and settles 2,000 jobs on each of
them, 50 a call. Microseconds that the server spends a job on each command, by its own statistics, and on everything
beside them: the least of the rounds. Then single commands on keys drawn by lot, in which no script of ours has a part:
what they lose in a large table of keys, the server loses by itself.
"""

import argparse
import asyncio
import random
import re
from contextlib import closing

from bench.engine import DATA
from bench.stand import Stand
from toril.engines.redis import RedisEngine, connect
from toril.model import Call, Claim, Completed, NewJob, Settlement

__all__ = ["main"]

SMALL = 1_000
JOBS = 2_000
BATCH = 50
SHAPES = {
    "waiting": NewJob(name="noop", data=DATA),
    "delayed": NewJob(name="noop", data=DATA, delay=3_600_000),
    "prioritized": NewJob(name="noop", data=DATA, priority=5),
}
BARE = (("GET", "lock"), ("HGET", "name"), ("EXISTS", ""))  # commands on keys of jobs, and what follows the key
LOOKS = 20_000

Costs = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--shape", choices=list(SHAPES), default="waiting")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with closing(Stand()) as small, closing(Stand()) as large:
        urls = {SMALL: small.server.url, options.backlog: large.server.url}
        found = asyncio.run(measured(urls, options.shape, options.rounds))
    print(f"{options.shape}, µs of the server {SMALL:>9,} {options.backlog:>10,} {'more':>7}")
    few, many = found[SMALL], found[options.backlog]
    for name in sorted(few, key=lambda name: few[name] - many[name]):
        print(f"{name:27} {few[name]:10.2f} {many[name]:10.2f} {many[name] - few[name]:+7.2f}")


async def measured(urls: dict[int, str], shape: str, rounds: int) -> dict[int, Costs]:
    """The least that each thing cost, by the size of the backlog."""
    backlogs = {size: Backlog(connect(url), size, shape) for size, url in urls.items()}
    for each in backlogs.values():
        await each.fill()
    found: dict[int, Costs] = {size: {} for size in urls}
    for turn in range(rounds + 1):
        for size in list(backlogs)[:: 1 if turn % 2 else -1]:
            if turn == 0:  # the server learns the scripts
                await backlogs[size].worked_off()
                continue
            for name, cost in (await backlogs[size].worked_off() | await backlogs[size].looked_up()).items():
                found[size][name] = min(cost, found[size].get(name, cost))
    for each in backlogs.values():
        await each.engine.close()
    return found


class Backlog:
    """A queue with so many jobs in it, on a server of its own."""

    def __init__(self, engine: RedisEngine, size: int, shape: str) -> None:
        self.engine = engine
        self._size = size
        self._shape = shape
        self._calls = 0
        self._last = 0  # the number of the last job

    async def fill(self) -> None:
        await self.engine.open()
        job = SHAPES[self._shape]
        for first in range(0, self._size, 1000):
            await self._add([job] * min(1000, self._size - first))

    async def worked_off(self) -> Costs:
        """What each command costs a job, of as many as are added for it."""
        job = SHAPES["waiting" if self._shape == "delayed" else self._shape]
        for _ in range(0, JOBS, 1000):
            await self._add([job] * 1000)
        await self._ask("CONFIG", "RESETSTAT")
        batch: list[Settlement] = []
        for turn in range(JOBS // BATCH + 1):
            call = self._call("w")
            want = BATCH if turn < JOBS // BATCH else 0
            claim = Claim(want=want, token=f"w:{call.seq}", lease=30_000, worker="w")
            batch = [
                Settlement(job.lease, Completed())
                for job in (await self.engine.exchange("q", batch, claim, call=call)).jobs
            ]
        costs = {name: used / JOBS for name, (_, used) in (await self._statistics()).items()}
        whole = costs.pop("evalsha") + costs.pop("eval", 0.0)
        return {"all of an exchange": whole, "beside its commands": whole - sum(costs.values())} | costs

    async def looked_up(self) -> Costs:
        """What a command on any of the jobs' keys costs by itself, a call."""
        chance, found = random.Random(self._calls), Costs()
        for command, end in BARE:
            await self._ask("CONFIG", "RESETSTAT")
            for _ in range(LOOKS // 1000):
                keys = [f"bull:q:{chance.randint(max(1, self._last - self._size), self._last)}" for _ in range(1000)]
                more = (end,) if command == "HGET" else ()
                await asyncio.gather(
                    *(self._ask(command, f"{key}:{end}" if command == "GET" else key, *more) for key in keys)
                )
            calls, used = (await self._statistics())[command.lower()]
            found[f"bare {command}, a call"] = used / calls
        return found

    async def _add(self, jobs: list[NewJob]) -> None:
        await self.engine.add("q", jobs, call=self._call("p"))
        self._last += len(jobs)

    def _call(self, sender: str) -> Call:
        self._calls += 1
        return Call(sender, self._calls)

    async def _ask(self, *command: str) -> object:
        return await self.engine._runner.client.ask(*command)  # noqa: SLF001

    async def _statistics(self) -> dict[str, tuple[int, int]]:
        """Calls and microseconds of each command."""
        told = str(await self._ask("INFO", "commandstats"))
        found = re.findall(r"cmdstat_(\S+?):calls=(\d+),usec=(\d+)", told)
        return {
            name: (int(calls), int(used)) for name, calls, used in found if name not in {"info", "config|resetstat"}
        }


if __name__ == "__main__":
    main()
