"""What is answered when something is wrong: one shape for all, a status that fits, and never a stack."""

import json
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from toril.errors import (
    AddUncertain,
    EngineUnavailable,
    EngineUnusable,
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

__all__ = ["Problem", "answer", "as_json", "problem_of"]

_KIND: Final = "application/json; charset=utf-8"

# The first that fits; an error's subclasses stand before it.
_STATUS: Final[tuple[tuple[type[TorilError], int, str], ...]] = (
    (NotFound, 404, "not_found"),
    (UnknownQueue, 404, "not_found"),
    (WrongState, 409, "wrong_state"),
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
    """An answer that is not what was asked for. `code` is for programs, the message for people."""

    def __init__(
        self, status: int, code: str, message: str, *, field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        self.headers = dict(headers or {})


def problem_of(error: TorilError) -> Problem:
    """An error of ours, as those on the other side of HTTP hear of it."""
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            headers = {"retry-after": "1"} if status in (429, 503) else {}
            return Problem(status, code, redacted(str(error)), headers=headers)
    return Problem(500, "failed", redacted(str(error)))


def answer(problem: Problem, incident: str | None = None) -> Response:
    """`{"error": {"code", "message", "field", "incident"}}`; an incident is what to look for in the log."""
    error: dict[str, Any] = {
        "code": problem.code, "message": problem.message, "field": problem.field, "incident": incident,
    }  # fmt: skip
    return as_json({"error": error}, problem.status, problem.headers)


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as the API sends it. A lone surrogate cannot be sent as UTF-8; it is sent as JSON escapes it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "backslashreplace"), status, headers, _KIND)
