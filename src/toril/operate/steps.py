"""What a job has recorded of its durable steps, to be shown."""

from typing import Any, Final, Literal

from toril.codec.encoding import Serializer
from toril.codec.payload import payload_for
from toril.codec.steps import load_calls, load_failure, load_received, load_retry, load_step, load_version
from toril.errors import Undecodable, preview
from toril.model import StepKind, moment
from toril.records import StepRecord

__all__ = ["step_record"]

_KINDS: Final[dict[StepKind, Literal["step", "failed", "retry", "sleep", "wait", "signal", "call", "version"]]] = {
    StepKind.DONE: "step",
    StepKind.FAILED: "failed",
    StepKind.RETRY: "retry",
    StepKind.SLEEP: "sleep",
    StepKind.WAIT: "wait",
    StepKind.RECEIVED: "signal",
    StepKind.CALLED: "call",
    StepKind.VERSION: "version",
}


def step_record(key: str, text: str, serializer: Serializer | None) -> StepRecord:
    """The record of a row. Raises `Undecodable` if this version of Toril cannot read it."""
    row = load_step(key, text)
    if row is None:
        raise Undecodable(f"what is recorded of step {key!r} cannot be read: {preview(text)}")
    value = error = tries = None
    match row.kind:
        case StepKind.DONE:
            value = _value(row.text, serializer)
        case StepKind.FAILED:
            failure = load_failure(row.text)
            error = f"{failure.kind}: {failure.reason}"
        case StepKind.RETRY:
            retry = load_retry(row.text)
            error, tries = f"{retry.kind}: {retry.reason}", retry.tries
        case StepKind.RECEIVED:
            received = load_received(row.text)
            value = None if received is None else _value(received.payload, serializer)
        case StepKind.CALLED:
            value = load_calls(row.text)
        case StepKind.VERSION:
            value = load_version(row.text)
        case StepKind.SLEEP | StepKind.WAIT:
            pass  # they have a time only
    return StepRecord(
        key=key,
        kind=_KINDS[row.kind],
        number=row.seq,
        at=moment(row.at),
        took=row.took / 1000,
        attempt=row.attempt + 1,
        value=value,
        error=error,
        tries=tries,
        until=None if row.until is None else moment(row.until),
    )


def _value(text: str, serializer: Serializer | None) -> Any:
    """The value, or its text if it cannot be read."""
    try:
        return payload_for(Any, what="a step's value", serializer=serializer).decode(text)
    except Undecodable:
        return text
