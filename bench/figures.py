"""What recording figures costs the server: its CPU time a job, with the recording and without it.

    python -m bench.figures [URL] [--jobs N] [--rounds N] [--batch N]

Rounds of both take turns, so that what else the machine does hits both. Without a URL it starts a server of its own.
"""

import argparse
import asyncio
import hashlib
import re
import statistics

from tests.servers import RedisServer

from bench.engine import jobs
from toril.engines.redis import RedisEngine, connect, store
from toril.engines.redis.scripts import Script, script
from toril.model import Claim, Completed, Settlement

WITHOUT = "figures.attempt, figures.flush = function() end, function() end\n"


def silenced(name: str) -> Script:
    """The same script, in which nothing is recorded."""
    source = script(name).source
    if "function figures.flush()" not in source:
        return script(name)
    source = re.sub(
        r"(function figures\.flush\(\).*?\n  end\nend\n)", lambda found: found[1] + WITHOUT, source, flags=re.DOTALL
    )
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest())  # noqa: S324 - what Redis calls it by


async def spent(engine: RedisEngine) -> float:
    """Microseconds of CPU time that the server has used. Its own clocks in `commandstats` also count while it has to
    wait for a core."""
    cpu = str(await engine._server.ask("INFO", "cpu"))  # noqa: SLF001
    return 1e6 * sum(float(used) for used in re.findall(r"used_cpu_(?:sys|user):([\d.]+)", cpu))


async def lives(engine: RedisEngine, total: int, batch: int) -> float:
    """Microseconds of the server a job from claim to end, `batch` at a time. The adds are not counted."""
    for _ in range(0, total, 1000):
        await engine.add("bench", jobs(1000))
    before = await spent(engine)
    settlements: list[Settlement] = []
    for number in range(total // batch + 1):
        claim = Claim(want=batch if number < total // batch else 0, token=f"t{number}", lease=30_000, worker="w")
        answer = await engine.exchange("bench", settlements, claim)
        settlements = [Settlement(job.lease, Completed("null")) for job in answer.jobs]
    used = (await spent(engine) - before) / (total // batch * batch)
    await engine.obliterate("bench", running="remove")
    return used


async def compare(url: str, total: int, rounds: int, batch: int) -> None:
    engine = connect(url)
    await engine.open()
    found: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(rounds):
        for kind, given in (("with", script), ("without", silenced)):
            vars(store)["script"] = given
            found[kind].append(await lives(engine, total, batch))
    vars(store)["script"] = script
    await engine.close()
    low = {kind: min(each) for kind, each in found.items()}
    cost = low["with"] - low["without"]
    middle = statistics.median(a - b for a, b in zip(found["with"], found["without"], strict=True))
    print(
        f"batches of {batch}: {low['with']:.2f} µs with figures, {low['without']:.2f} without (best of {rounds}): "
        f"{cost:.2f} µs, median of the differences {middle:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, action="append")
    given = parser.parse_args()
    server = RedisServer().start() if given.url is None else None
    try:
        for batch in given.batch or [100, 20, 1]:
            asyncio.run(compare(given.url or (server.url if server else ""), given.jobs, given.rounds, batch))
    finally:
        if server is not None:
            server.stop()


if __name__ == "__main__":
    main()
