"""What another JSON codec would gain: for the drain of payloads of about 1 KB, for encoding and decoding them, and what
each makes of odd texts.

    python -m bench.json_codecs [--jobs N] [--rounds N]

The drain is a worker's, of jobs in Redis, 100 at once; what reads their payloads changes by turns, and the worker's CPU
time counts: the least of the rounds. Installs orjson under `.bench/`, and starts a server.
"""

import argparse
import asyncio
import json
import re
import sys
import time
import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic_core import from_json
from tests.servers import RedisServer

from bench.installing import library
from toril import App, JobContext
from toril.codec import encoding

__all__ = ["main"]

PAYLOADS: dict[str, dict[str, Any]] = {
    "one long text": {"user_id": 12345, "email": "someone@example.org", "text": "x" * 940},
    "forty fields": {f"field_{n}": n if n % 3 else f"value number {n}" for n in range(32)}
    | {"items": [{"sku": f"A-{n}", "count": n, "price": n * 1.5} for n in range(8)]},
}
ODD = ("123456789012345678901234567890", '"\\ud800"', "NaN")
LONG_NUMBER = re.compile(r"\d{19}")
TIMES = 20_000

Reader = Callable[[str], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    sys.path.append(str(library("orjson")))
    import orjson  # type: ignore[import-not-found, unused-ignore]

    usual = encoding._loads  # noqa: SLF001 - what the others would stand in for

    def strict(text: str) -> Any:
        """As strict as json: what may have a number that orjson would round is read by json."""
        return usual(text) if LONG_NUMBER.search(text) else orjson.loads(text)

    def kept(text: str) -> Any:
        """What pydantic_core refuses, json may read."""
        try:
            return from_json(text, allow_inf_nan=False)
        except ValueError:
            return usual(text)

    dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    readers: dict[str, Reader] = {"json": usual, "orjson": orjson.loads, "pydantic_core": from_json}
    drained = readers | {"orjson, strict": strict, "pydantic_core, else json": kept}
    for name, payload in PAYLOADS.items():
        text = dumps(payload)
        print(f"{name}, {len(text)} bytes")
        costs = asyncio.run(drains(payload, drained, options.jobs, options.rounds))
        for reader, least in costs.items():
            print(f"  drained: {reader:24} {least:5.1f} µs ({100 * (1 - least / costs['json']):+.1f} % gained)")
        print(f"  encoded: json {_micros(dumps, payload)} µs, orjson {_micros(orjson.dumps, payload)} µs")
        print(f"  decoded: {', '.join(f'{reader} {_micros(loads, text)} µs' for reader, loads in readers.items())}")
        print(f"  searched for numbers of 19 digits: {_micros(LONG_NUMBER.search, text)} µs")
    for text in ODD:
        print(f"{text}: {', '.join(f'{reader} {_outcome(loads, text)}' for reader, loads in readers.items())}")


async def drains(payload: dict[str, Any], readers: dict[str, Reader], jobs: int, rounds: int) -> dict[str, float]:
    """Microseconds of CPU that a job costs its worker at least, by what reads the payloads: other work on the machine
    only adds to it."""
    found: dict[str, list[float]] = {name: [] for name in readers}
    server = RedisServer().start()
    usual = encoding._loads  # noqa: SLF001 - what is measured stands in its place
    try:
        for turn in range(rounds):
            for name in list(readers)[:: 1 if turn % 2 else -1]:
                setattr(encoding, "_loads", readers[name])  # noqa: B010 - it is final for everybody else
                found[name].append(await drain(server.url, payload, jobs))
    finally:
        setattr(encoding, "_loads", usual)  # noqa: B010
        server.stop()
    return {name: min(costs) for name, costs in found.items()}


async def drain(url: str, payload: dict[str, Any], jobs: int) -> float:
    """Microseconds of CPU a job, from the first handler to the last."""
    started = 0
    first = last = 0.0

    async def noop(_: JobContext[Any]) -> None:  # of no type, or pydantic would read it
        nonlocal started, first, last
        started += 1
        if started == 1:
            first = time.process_time()
        last = time.process_time()

    app = App(url)
    queue = app.queue("bench", {"noop": noop}, concurrency=100)
    async with app:
        for _ in range(jobs // 1000):
            await queue.add_many([("noop", payload)] * 1000)
        await app.run(burst=True)
    return (last - first) / (started - 1) * 1e6


def _micros(what: Callable[[Any], object], argument: object) -> str:
    return f"{min(timeit.repeat(partial(what, argument), number=TIMES, repeat=7)) / TIMES * 1e6:.1f}"


def _outcome(loads: Reader, text: str) -> str:
    try:
        return ascii(loads(text))
    except ValueError:
        return "refuses"


if __name__ == "__main__":
    main()
