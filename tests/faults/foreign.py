"""Jobs as another program may have left them in Redis: every field of a BullMQ hash, with every kind of bad value."""

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import hiredis

from tests.servers import RedisServer

__all__ = ["FIELDS", "PLACES", "SERIOUS", "VALUES", "Foreign", "Odd", "cases"]

Odd = tuple[str, bytes]  # a field, and what stands in it

DEEP: Final = 100_000
_DEEP_LIST: Final = b"[" * DEEP + b"]" * DEEP
_NESTED: Final = b"[" * 900 + b"]" * 900  # within what Redis's own reader of JSON allows
_NUMBERS: Final = (
    b"nan",
    b"NaN",
    b"-nan",
    b"inf",
    b"-inf",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"-1e999",
    b"-1",
    b"-0",
    b"1.5",
    b"1e3",
    b"0x10",
    b"9" * 400,
    b"-" + b"9" * 400,
    b"9" * 5000,
    b"9007199254740993",
    b"253402300800000",
    b"1_0",
    " ٣".encode(),
)
_TEXTS: Final = (
    b"",
    b" ",
    b"\0",
    b"a\0b",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    "\N{SNOWMAN}\u202e".encode(),
    b"x" * 300_000,
    b"'",
    b"\r\n",
)
_JSON: Final = (
    b"null",
    b"true",
    b"7",
    b'"text"',
    b"[]",
    b"{}",
    b"[1,]",
    b"{",
    b'{"a":',
    b"[null]",
    b"[[],{}]",
    b"{'a':1}",
    b'{"":""}',
    b'"\\ud800"',
    b'{"id":7}',
    _NESTED,
    _DEEP_LIST,
    b'{"a":' * DEEP + b"1" + b"}" * DEEP,
)
VALUES: Final = (*_NUMBERS, *_TEXTS, *_JSON)
# What the hash of a job has in BullMQ and in Toril.
FIELDS: Final = (
    "name",
    "data",
    "opts",
    "timestamp",
    "delay",
    "priority",
    "processedOn",
    "pb",
    "ats",
    "atm",
    "attemptsMade",
    "stc",
    "progress",
    "returnvalue",
    "failedReason",
    "stacktrace",
    "finishedOn",
    "deid",
    "rjk",
    "parent",
    "parentKey",
    "defa",
    "toril:held",
    "toril:expires",
    "toril:metadata",
    "toril:checkpoint",
    "toril:cancel",
    "toril:parked",
    "toril:kind",
    "toril:cause",
    "toril:waited",
    "toril:ready",
    "toril:group",
    "toril:order",
)
# Options, each of which may be anything.
_OPTIONS: Final = (
    "attempts",
    "backoff",
    "delay",
    "priority",
    "lifo",
    "jobId",
    "removeOnComplete",
    "removeOnFail",
    "kl",
    "stackTraceLimit",
    "de",
    "tm",
    "omc",
    "parent",
    "toril",
    "repeat",
    "timestamp",
)
_INNER: Final = (
    '{"backoff":{"type":%s}}',
    '{"backoff":{"type":"fixed","delay":%s}}',
    '{"backoff":{"type":"fixed","delay":1,"jitter":%s}}',
    '{"backoff":{"delay":1,"cap":%s}}',
    '{"backoff":{"delay":1,"strategy":%s}}',
    '{"backoff":{"delay":1,"on":%s}}',
    '{"removeOnFail":{"age":%s}}',
    '{"removeOnFail":{"count":%s}}',
    '{"removeOnComplete":{"age":%s,"count":%s}}',
    '{"de":{"id":%s}}',
    '{"de":{"id":"k","ttl":%s}}',
    '{"toril":{"timeout":%s}}',
    '{"toril":{"resultTtl":%s}}',
    '{"toril":{"breaker":%s}}',
    '{"toril":{"subject":%s}}',
    '{"removeOnFail":-1,"attempts":%s}',
    '{"removeOnFail":-1,"kl":%s}',
)
_LITERALS: Final = (
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "-1e999",
    "1e999",
    "NaN",
    "9" * 400,
    "-" + "9" * 400,
    '"x"',
    '""',
    "[]",
    "{}",
    "[1]",
    '{"a":1}',
    '"\\u0000"',
    '"\\ud800"',
    "[" * 500 + "]" * 500,
    "9007199254740993",
    '"9007199254740993"',
)
PLACES: Final = ("wait", "prioritized", "delayed", "waiting-children", "completed", "failed", "active")
# The slice of `make test`: what has broken something once, for the fields that are read as more than text.
SERIOUS: Final = tuple(
    (field, value)
    for field, values in {
        "opts": (b'{"attempts":-1e999}', b'{"attempts":%s}' % (b"9" * 400), _NESTED, _DEEP_LIST, b"", b"nan"),
        "parent": (_DEEP_LIST, _NESTED, b"{}", b'{"id":7}'),
        "stacktrace": (_DEEP_LIST, b"[7]"),
        "data": (_DEEP_LIST, b"\xff"),
        "priority": (b"nan", b"inf", b"-1e999", b"9" * 400),
        "timestamp": (b"nan", b"inf", b"9" * 400, b"253402300800000"),
        "delay": (b"nan", b"-inf"),
        "atm": (b"nan", b"inf", b"9" * 400),
        "stc": (b"nan", b"1e999"),
        "ats": (b"nan", b"9" * 400),
        "processedOn": (b"9" * 400, b"nan"),
        "finishedOn": (b"9" * 400, b"nan"),
        "toril:expires": (b"nan", b"9" * 400),
        "toril:held": (b"nan", b""),
        "toril:parked": (b"nan",),
        "toril:metadata": (_DEEP_LIST, b"7"),
        "toril:order": (b"nan",),
        "name": (b"\xff", b"\0"),
        "progress": (_DEEP_LIST,),
        "returnvalue": (_DEEP_LIST,),
    }.items()
    for value in values
)


def cases() -> Iterator[Odd]:
    """All there are."""
    for field in FIELDS:
        for value in VALUES:
            yield field, value
    for literal in _LITERALS:
        for option in _OPTIONS:
            yield "opts", f'{{"{option}":{literal}}}'.encode()
        for inner in _INNER:
            yield "opts", inner.replace("%s", literal).encode()
        yield "parent", f'{{"id":{literal},"queueKey":"bull:q"}}'.encode()
        yield "parent", f'{{"id":"1","queueKey":{literal}}}'.encode()
        yield "parent", f'{{"id":"1","queueKey":"bull:q","fpof":{literal}}}'.encode()
        yield "stacktrace", f"[{literal}]".encode()


@dataclass(frozen=True, slots=True)
class Foreign:
    """Another program that writes to the same Redis."""

    server: RedisServer
    queue: str = "q"

    def send(self, *commands: Sequence[Any]) -> list[Any]:
        """Commands of bytes and texts, in one go, and their answers."""
        reader, answers = hiredis.Reader(), list[Any]()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as connection:
            connection.sendall(b"".join(hiredis.pack_command(tuple(command)) for command in commands))
            while len(answers) < len(commands):
                reader.feed(connection.recv(65536))
                while (answer := reader.gets()) is not False:
                    answers.append(answer)
        return answers

    def write(self, job: str, place: str, fields: dict[str, bytes]) -> None:
        """Store a job of the usual fields, and these, in a place of the queue."""
        self.send(*self.commands(job, place, fields))

    def commands(self, job: str, place: str, fields: dict[str, bytes]) -> Sequence[Sequence[Any]]:
        """What `write` sends, for those who send many in one go."""
        usual: dict[str, bytes] = {
            "name": b"note",
            "data": b"{}",
            "opts": b'{"attempts":3}',
            "timestamp": b"1700000000000",
            "delay": b"0",
            "priority": b"0",
        }
        if place in {"completed", "failed"}:
            usual |= {"processedOn": b"1700000000001", "finishedOn": b"1700000000002", "atm": b"1"}
            usual |= {"failedReason": b"broken"} if place == "failed" else {"returnvalue": b"1"}
        flat = [part for pair in (usual | fields).items() for part in pair]
        base = f"bull:{self.queue}:"
        stand: dict[str, tuple[Any, ...]] = {
            "wait": ("LPUSH", base + "wait", job),
            "active": ("LPUSH", base + "active", job),
            "prioritized": ("ZADD", base + place, 2**32 + 1, job),
            "delayed": ("ZADD", base + place, 1_700_000_000_000 * 4096, job),
        }
        return (
            ("HSET", base + job, *flat),
            stand.get(place, ("ZADD", base + place, 1_700_000_000_002, job)),
            ("HSET", base + "meta", "opts.maxLenEvents", 10000),
            ("ZADD", base + "marker", 0, "0"),
        )
