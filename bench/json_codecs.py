"""What another JSON codec would gain: encoding and decoding payloads of about 1 KB, and what each makes of odd texts.

python -m bench.json_codecs      needs orjson beside what the project needs
"""

import json
import re
import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic_core import from_json

__all__ = ["main"]

PAYLOADS: dict[str, dict[str, Any]] = {
    "one long text": {"user_id": 12345, "email": "someone@example.org", "text": "x" * 940},
    "forty fields": {f"field_{n}": n if n % 3 else f"value number {n}" for n in range(32)}
    | {"items": [{"sku": f"A-{n}", "count": n, "price": n * 1.5} for n in range(8)]},
}
ODD = ("123456789012345678901234567890", '"\\ud800"', "NaN")
LONG_NUMBER = re.compile(r"\d{19}")
TIMES = 20_000


def main() -> None:
    import orjson  # type: ignore[import-not-found, unused-ignore]

    dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    readers: dict[str, Callable[[str], Any]] = {
        "json": json.loads,
        "orjson": orjson.loads,
        "pydantic_core": from_json,
    }
    for name, payload in PAYLOADS.items():
        text = dumps(payload)
        print(f"{name}, {len(text)} bytes")
        print(f"  encoded: json {_micros(dumps, payload)} µs, orjson {_micros(orjson.dumps, payload)} µs")
        print(f"  decoded: {', '.join(f'{reader} {_micros(loads, text)} µs' for reader, loads in readers.items())}")
        print(f"  searched for numbers of 19 digits: {_micros(LONG_NUMBER.search, text)} µs")
    for text in ODD:
        print(f"{text}: {', '.join(f'{reader} {_outcome(loads, text)}' for reader, loads in readers.items())}")


def _micros(what: Callable[[Any], object], argument: object) -> str:
    return f"{min(timeit.repeat(partial(what, argument), number=TIMES, repeat=7)) / TIMES * 1e6:.1f}"


def _outcome(loads: Callable[[str], Any], text: str) -> str:
    try:
        return ascii(loads(text))
    except ValueError:
        return "refuses"


if __name__ == "__main__":
    main()
