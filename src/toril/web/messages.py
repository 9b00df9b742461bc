"""Reads request bodies and words problems."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn
from urllib.parse import parse_qs

from starlette.responses import Response
from starlette.types import Receive

from toril.errors import (
    AddUncertain,
    EngineUnavailable,
    EngineUnusable,
    InboxFull,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    NotFound,
    NotSerializable,
    PayloadTooLarge,
    QueueFull,
    TorilError,
    UnknownQueue,
    UsageError,
    WrongState,
)
from toril.policy.redaction import redacted

__all__ = [
    "Problem",
    "answer",
    "as_json",
    "form_field",
    "parsed",
    "problem_of",
    "read_fields",
    "read_form",
    "read_json",
]

_KIND: Final = "application/json; charset=utf-8"

# The first match applies, so subclasses come before their bases.
_STATUS: Final[tuple[tuple[type[TorilError], int, str], ...]] = (
    (NotFound, 404, "not_found"),
    (UnknownQueue, 404, "not_found"),
    (WrongState, 409, "wrong_state"),
    (InboxFull, 409, "inbox_full"),
    (PayloadTooLarge, 413, "too_large"),
    (InvalidName, 422, "invalid"),
    (InvalidOption, 422, "invalid"),
    (InvalidPayload, 422, "invalid"),
    (NotSerializable, 422, "invalid"),
    (UsageError, 400, "bad_request"),
    (QueueFull, 429, "queue_full"),
    (AddUncertain, 503, "uncertain"),
    (EngineUnavailable, 503, "store_unavailable"),
    (EngineUnusable, 503, "store_unusable"),
)


class Problem(Exception):
    """An error response. `code` is for programs, the message for people."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        self.headers = dict(headers or {})


def problem_of(error: TorilError) -> Problem:
    """The problem for one of Toril's errors."""
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            headers = {"retry-after": "1"} if status in (429, 503) else {}
            return Problem(status, code, redacted(str(error)), headers=headers)
    return Problem(500, "failed", redacted(str(error)))


def answer(problem: Problem, incident: str | None = None) -> Response:
    """`{"error": {"code", "message", "field", "incident"}}`; look for the incident in the log."""
    error: dict[str, Any] = {
        "code": problem.code, "message": problem.message, "field": problem.field, "incident": incident,
    }  # fmt: skip
    return as_json({"error": error}, problem.status, problem.headers)


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as the API sends it. A lone surrogate cannot be sent as UTF-8; it is sent as JSON escapes it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "backslashreplace"), status, headers, _KIND)


MAX_BODY: Final = 1024 * 1024
_FORM: Final = 8 * 1024
_FIELDS: Final = 10
_ALL_FIELDS: Final = 1_000
_DEPTH: Final = 100
_PATIENCE: Final = 5.0  # seconds between two parts of a body; for a form, which strangers may send, seconds in total


async def read_json(receive: Receive) -> bytes:
    """The body, checked to be well-formed JSON."""
    body = await _whole(receive)
    if body:
        parsed(body)
    return body


async def read_form(receive: Receive) -> bytes:
    """The body of one of our forms, which is small and arrives at once."""
    try:
        async with asyncio.timeout(_PATIENCE):
            return await _whole(receive, most=_FORM)
    except TimeoutError:
        raise _too_slow() from None


def form_field(form: bytes, name: str) -> str:
    """One field of a form; empty if it was not sent."""
    try:
        return parse_qs(form.decode("utf-8", "replace"), max_num_fields=_FIELDS).get(name, [""])[0]
    except ValueError:
        raise Problem(400, "bad_form", f"the form has more than {_FIELDS} fields") from None


async def read_fields(receive: Receive) -> dict[str, str]:
    """The fields of a form of someone who may act; of those given twice, the first."""
    body = await _whole(receive)
    try:
        found = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_ALL_FIELDS)
    except ValueError:
        raise Problem(400, "bad_form", f"the form is not UTF-8, or has more than {_ALL_FIELDS} fields") from None
    return {name: values[0] for name, values in found.items()}


async def _whole(receive: Receive, most: int = MAX_BODY) -> bytes:
    body = bytearray()
    while True:
        try:
            async with asyncio.timeout(_PATIENCE):
                message = await receive()
        except TimeoutError:
            raise _too_slow() from None
        if message["type"] == "http.disconnect":
            raise Problem(400, "gone", "the client disconnected before sending the whole body")
        body += message.get("body", b"")
        if len(body) > most:
            raise Problem(413, "too_large", f"the body is larger than {most} bytes", headers={"connection": "close"})
        if not message.get("more_body"):
            return bytes(body)


def _too_slow() -> Problem:
    return Problem(408, "too_slow", "the body did not arrive in time", headers={"connection": "close"})


def parsed(body: bytes) -> Any:
    """The JSON value of a text, or a Problem that says what is wrong with it."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise Problem(400, "bad_json", "the body is not valid UTF-8") from None
    if _depth(text) > _DEPTH:
        raise Problem(400, "bad_json", f"the JSON is nested deeper than {_DEPTH} levels")
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except ValueError as error:
        raise Problem(400, "bad_json", f"the body is not valid JSON: {error}"[:200]) from None


def _depth(text: str) -> int:
    """How deep brackets are nested, at most. Brackets within strings may make the result too high."""
    if text.count("[") + text.count("{") <= _DEPTH:
        return 0
    deepest = depth = 0
    within = skip = False
    for character in text:
        if skip:
            skip = False
        elif within:
            within, skip = character != '"', character == "\\"
        elif character == '"':
            within = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")
