"""Steps as text. Every store keeps the same text of a row, and later versions must read it: it does not change.

A row is `KIND SEQ AT TOOK DIGEST ATTEMPT TEXT`: the letter of its kind; the number of the record within the job; when
the store wrote it; how many ms the step took; eight hexadecimal digits of its arguments, or `-`; how often the job had
been run again by hand and how many attempts it had made, as in `0.2`; and what the kind has to say, to the end. Where
the kind has a time, the text is `UNTIL`, or `UNTIL MORE`; `-` is no time at all::

    d  the value                        z  UNTIL
    e  [kind,reason,[class,…]]          t  UNTIL [tries,kind,reason]
    c  [[queue,id],…]                   p  UNTIL [[signal,key],…]
    v  a number                         w  UNTIL [signal,key] PAYLOAD, or UNTIL null: the time was over
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final

from toril.codec.encoding import encode
from toril.errors import Undecodable, UsageError
from toril.model import (
    MAX_REASON_BYTES,
    TIMED,
    JobRef,
    ReceivedSignal,
    RestReason,
    RestRow,
    SignalWait,
    StepFailure,
    StepKind,
    StepRetry,
    StepRow,
    storable,
)

__all__ = [
    "digest_of",
    "dump_calls",
    "dump_failure",
    "dump_received",
    "dump_rest",
    "dump_retry",
    "dump_step",
    "dump_waits",
    "load_calls",
    "load_failure",
    "load_received",
    "load_rest",
    "load_retry",
    "load_step",
    "load_version",
    "load_waits",
]

_ROW: Final = re.compile(
    r"([a-z]) (\d{1,16}) (\d{1,16}) (\d{1,16}) ([0-9a-f]{8}|-) (\d{1,9})\.(\d{1,9}) (.*)\Z", re.ASCII | re.DOTALL
)
_TIMED: Final = re.compile(r"(\d{1,16}|-)(?: (.*))?\Z", re.ASCII | re.DOTALL)
_LETTERS: Final = {kind.value: kind for kind in StepKind}
_DIGEST_BYTES: Final = 64 * 1024  # of arguments
_LINEAGE: Final = 50  # classes
_parse: Final = json.JSONDecoder().raw_decode


def dump_step(row: StepRow) -> str:
    """The row as stores keep it, under its key."""
    head = f"{row.kind.value} {row.seq} {row.at} {row.took} {row.digest or '-'} {row.reruns}.{row.attempt}"
    if row.kind not in TIMED:
        return f"{head} {row.text}"
    until = "-" if row.until is None else row.until
    return f"{head} {until} {row.text}" if row.text else f"{head} {until}"


def load_step(key: str, text: str) -> StepRow | None:
    """The row again; None if this version cannot read it."""
    found = _ROW.match(text)
    kind = None if found is None else _LETTERS.get(found[1])
    if found is None or kind is None:
        return None
    until, more = None, found[8]
    if kind in TIMED:
        timed = _TIMED.match(more)
        if timed is None:
            return None
        until, more = None if timed[1] == "-" else int(timed[1]), timed[2] or ""
    digest = None if found[5] == "-" else found[5]
    return StepRow(
        key, kind, int(found[2]), int(found[3]), int(found[4]), digest, int(found[6]), int(found[7]), until, more
    )


def dump_failure(failure: StepFailure) -> str:
    """How a step failed: the text of a row of kind `e`."""
    return _json([_cut(failure.kind), _cut(failure.reason), [_cut(each) for each in failure.lineage[:_LINEAGE]]])


def load_failure(text: str) -> StepFailure:
    with _reading("a failure"):
        kind, reason, lineage = json.loads(text)
        return StepFailure(_text(kind), _text(reason), tuple(_text(each) for each in _list(lineage)))


def dump_retry(retry: StepRetry) -> str:
    """How often a step was tried: of kind `t`."""
    return _json([retry.tries, _cut(retry.kind), _cut(retry.reason)])


def load_retry(text: str) -> StepRetry:
    with _reading("a retry"):
        tries, kind, reason = json.loads(text)
        return StepRetry(_number(tries), _text(kind), _text(reason))


def dump_waits(signals: Sequence[SignalWait]) -> str:
    """Which signals a job waits for: of kind `p`."""
    return _json(_pairs(signals))


def load_waits(text: str) -> tuple[SignalWait, ...]:
    with _reading("a wait"):
        return tuple(_wait(each) for each in _list(json.loads(text)))


def dump_received(received: ReceivedSignal | None) -> str:
    """Which signal was read, or that the time was over: of kind `w`."""
    if received is None:
        return "null"
    return f"{_json([received.signal.name, received.signal.key])} {received.payload}"


def load_received(text: str) -> ReceivedSignal | None:
    with _reading("a signal"):
        head, end = _parse(text)
        return None if head is None else ReceivedSignal(_wait(head), text[end + 1 :])


def dump_calls(jobs: Sequence[JobRef]) -> str:
    """Which jobs a step has called: of kind `c`."""
    return _json([[each.queue, each.id] for each in jobs])


def load_calls(text: str) -> tuple[JobRef, ...]:
    with _reading("a call"):
        return tuple(JobRef(_text(queue), _text(identity)) for queue, identity in _list(json.loads(text)))


def load_version(text: str) -> int:
    """The number of kind `v`."""
    with _reading("a version"):
        return _number(json.loads(text))


def dump_rest(rest: RestRow) -> str:
    """Why a job rests, as stores keep it beside the job."""
    reasons = [
        [each.key, each.kind.value, each.until, [[wait.name, wait.key] for wait in each.signals]]
        for each in rest.reasons
    ]
    return _json({"since": rest.since, "until": rest.until, "children": rest.children, "for": reasons})


def load_rest(text: str | None) -> RestRow | None:
    """The same again; None if the job does not rest, or this version cannot read why."""
    if text is None:
        return None
    try:
        found = json.loads(text)
        reasons = tuple(
            RestReason(_text(key), StepKind(kind), _time(until), tuple(_wait(each) for each in _list(signals)))
            for key, kind, until, signals in _list(found["for"])
        )
        return RestRow(_number(found["since"]), _time(found["until"]), reasons, bool(found["children"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def digest_of(arguments: Iterable[Any]) -> str | None:
    """Eight hexadecimal digits that tell a step's arguments from others; None where these are not plain JSON, or have
    more than 64 KB."""
    try:
        return sha256(encode(list(arguments), limit=_DIGEST_BYTES).encode()).hexdigest()[:8]
    except UsageError:
        return None


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Says what could not be read, whatever is wrong with it."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        raise Undecodable(f"{what} of a step cannot be read: {error}") from None


def _pairs(signals: Sequence[SignalWait]) -> list[list[str | None]]:
    return [[each.name, each.key] for each in signals]


def _wait(pair: Any) -> SignalWait:
    name, key = pair
    return SignalWait(_text(name), None if key is None else _text(key))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"{type(value).__name__} in place of a text")


def _list(value: object) -> list[Any]:
    if isinstance(value, list):
        return value
    raise TypeError(f"{type(value).__name__} in place of a list")


def _number(value: object) -> int:
    if type(value) is int:
        return value
    raise TypeError(f"{type(value).__name__} in place of a number")


def _time(value: object) -> int | None:
    return None if value is None else _number(value)


def _cut(text: str) -> str:
    return storable(text, MAX_REASON_BYTES)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
