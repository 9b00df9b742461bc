"""What recording figures costs a Redis server: microseconds of its CPU a job, in batches of several sizes.

    python -m bench.figures [URL] [--jobs N]

It runs the very text of the scripts, many batches in one call, on jobs whose times are spread over some thirty buckets;
and reads two fields more of each job, as settling does, and one more of the queue, which is the minute under way. Only
CPU time counts. Without a URL it starts a server.
"""

import argparse
import asyncio
import json
import re

from tests.servers import RedisServer

from toril.engines.redis import RedisEngine, connect
from toril.engines.redis.layout import FIELDS
from toril.engines.redis.scripts import script

READ = (
    "name timestamp processedOn atm stc pb opts priority toril:cancel parent defa toril:group toril:held toril:parked"
)
FEW = READ.split()
MORE = [*FEW, *(FIELDS[name] for name in ("starts", "ready"))]
START = """
local P, W, call, now = 'bench:figures:', '', redis.call, 1800000000000
local batches, size, jobs = tonumber(ARGV[1]), tonumber(ARGV[2]), {}
local function options_of() return {} end
"""
READING = """
call('HSET', P .. 'job', 'name', 'n', 'timestamp', 1, 'opts', '{}', 'ats', '1')
local fields = cjson.decode(ARGV[3])
for i = 1, batches * size do call('HMGET', P .. 'job', unpack(fields)) end
"""
RECORDING = """
for i = 1, 2 * size do
  jobs[i] = {started = tostring(now - i * i % 5000), added = tostring(now - 9000 - i * 37 % 4000), starts = '1'}
end
local minute
for n = 1, batches do
  now = now + 10
  if n % 6000 == 1 then minute = string.format('%d', now / 60000) end
  figures.minute = minute
  for i = 1, size do figures.attempt(jobs[i + n % 2 * size], 'c') end
  figures.flush()
end
"""


def recording() -> str:
    """The parts of the exchange's script that record, and what they call."""
    patterns = (
        r"local function as_number\(.*?\nend\n",
        r"local function noted\(\)\n.*?function figures\.flush\(\).*?\n  end\nend\n",
    )
    found = [re.search(pattern, script("exchange").source, re.DOTALL) for pattern in patterns]
    return "".join(part[0] for part in found if part is not None)


async def spent(engine: RedisEngine) -> float:
    """Microseconds of CPU time that the server has used."""
    cpu = str(await engine._runner.client.ask("INFO", "cpu"))  # noqa: SLF001
    return 1e6 * sum(float(used) for used in re.findall(r"used_cpu_(?:sys|user):([\d.]+)", cpu))


async def cost(engine: RedisEngine, text: str, jobs: int, size: int, fields: list[str]) -> float:
    """Microseconds a job, at best."""
    found = []
    for _ in range(7):
        before = await spent(engine)
        await engine._runner.client.ask("EVAL", START + text, 0, jobs // size, size, json.dumps(fields))  # noqa: SLF001
        found.append((await spent(engine) - before) / jobs)
    return min(found)


async def measure(url: str, jobs: int) -> None:
    engine = connect(url)
    await engine.open()
    reads = await cost(engine, READING, jobs, 1, MORE) - await cost(engine, READING, jobs, 1, FEW)
    for size in (100, 20, 5, 1):
        took = await cost(engine, recording() + RECORDING, jobs, size, [])
        more = reads + reads / 2 / size
        print(f"batches of {size:3}: {took + more:.2f} µs a job: {took:.2f} to record, {more:.2f} to read more fields")
    names = ("job", "toril", "toril:figures", "toril:figures:noted", "toril:figures:past", "toril:figures:all")
    await engine._runner.client.ask("DEL", *(f"bench:figures:{name}" for name in names))  # noqa: SLF001
    await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--jobs", type=int, default=50_000)
    given = parser.parse_args()
    server = RedisServer().start() if given.url is None else None
    try:
        asyncio.run(measure(given.url or (server.url if server else ""), given.jobs))
    finally:
        if server is not None:
            server.stop()


if __name__ == "__main__":
    main()
