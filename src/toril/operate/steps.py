"""What a job has recorded of its durable steps, and which jobs wait for signals, to be shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from toril.codec.encoding import Serializer
from toril.codec.payload import payload_for
from toril.codec.steps import load_calls, load_failure, load_received, load_rest, load_retry, load_step, load_version
from toril.errors import InvalidOption, Undecodable, preview
from toril.model import JobRow, Kept, RestReason, SearchPage, SignalWait, StepKind, moment
from toril.records import StepRecord
from toril.store.engine import Store

__all__ = [
    "STEP_KINDS",
    "SignalWaiter",
    "StepWord",
    "recorded_value",
    "step_record",
    "step_rows",
    "waiting_for_signals",
    "waiting_job",
]

StepWord: TypeAlias = Literal["step", "failed", "retry", "sleep", "wait", "signal", "call", "version"]
STEP_KINDS: Final[dict[StepKind, StepWord]] = {
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
            value = recorded_value(row.text, serializer)
        case StepKind.FAILED:
            failure = load_failure(row.text)
            error = f"{failure.kind}: {failure.reason}"
        case StepKind.RETRY:
            retry = load_retry(row.text)
            error, tries = f"{retry.kind}: {retry.reason}", retry.tries
        case StepKind.RECEIVED:
            received = load_received(row.text)
            value = None if received is None else recorded_value(received.payload, serializer)
        case StepKind.CALLED:
            value = load_calls(row.text)
        case StepKind.VERSION:
            value = load_version(row.text)
        case StepKind.SLEEP | StepKind.WAIT:
            pass  # they have a time only
    return StepRecord(
        key=key,
        kind=STEP_KINDS[row.kind],
        number=row.seq,
        at=moment(row.at),
        took=row.took / 1000,
        attempt=row.attempt + 1,
        value=value,
        error=error,
        tries=tries,
        until=None if row.until is None else moment(row.until),
    )


def recorded_value(text: str, serializer: Serializer | None) -> Any:
    """The value of a step or a signal, or its text if it cannot be read."""
    try:
        return payload_for(Any, what="a step's value", serializer=serializer).decode(text)
    except Undecodable:
        return text


async def step_rows(store: Store, queue: str, job_id: str, where: Kept = "queue") -> list[tuple[str, str]]:
    """All rows of a job or dead letter, key and text, in the order in which they were recorded."""
    found: list[tuple[str, str]] = []
    cursor: str | None = None
    while True:
        page = await store.steps.page(queue, job_id, cursor=cursor, where=where)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalWaiter:
    """A job that rests until a signal comes: since when, until when at most, and its waits. `until` is None if it waits
    without a timeout."""

    job: JobRow
    since: int
    until: int | None
    waits: tuple[RestReason, ...]

    @property
    def signals(self) -> tuple[SignalWait, ...]:
        """The signals of which any one ends a wait."""
        return tuple(dict.fromkeys(signal for wait in self.waits for signal in wait.signals))


def waiting_job(row: JobRow, signal: str | None = None) -> SignalWaiter | None:
    """What the job waits for, with `signal` only its waits for a signal of this name; None if it waits for none."""
    rest = load_rest(row.rest)
    if rest is None:
        return None
    waits = tuple(each for each in rest.reasons if any(signal in (None, wait.name) for wait in each.signals))
    until = min((each.until for each in waits if each.until is not None), default=None)
    return SignalWaiter(job=row, since=rest.since, until=until, waits=waits) if waits else None


_CALLS: Final = 100  # to the store, for one page


async def waiting_for_signals(
    store: Store, queues: Sequence[str], signal: str | None = None, *, cursor: str | None = None, limit: int = 50
) -> SearchPage[SignalWaiter]:
    """The jobs of these queues that wait for a signal, or for one of this name: queue after queue, those whose time is
    over first come first. A page may be short and still have a cursor."""
    names = sorted(queues)
    at, inner = _place(cursor, names)
    found: list[SignalWaiter] = []
    looked = calls = 0
    while at < len(names):
        if len(found) == limit or calls == _CALLS:
            return SearchPage(tuple(found), f"{names[at]}:{inner or ''}", looked)
        page = await store.steps.resting(names[at], signal=signal, cursor=inner, limit=limit - len(found))
        found += [waiting for row in page.items if (waiting := waiting_job(row, signal)) is not None]
        looked, calls = looked + len(page.items), calls + 1
        at, inner = (at, page.cursor) if page.cursor is not None else (at + 1, None)
    return SearchPage(tuple(found), None, looked)


def _place(cursor: str | None, names: Sequence[str]) -> tuple[int, str | None]:
    """Where to go on: the queue, or the next one if it is gone, and the cursor within it."""
    if cursor is None:
        return 0, None
    queue, colon, inner = cursor.partition(":")
    if not colon:
        raise InvalidOption(f"{preview(cursor)} is not a cursor from this listing")
    if queue in names:
        return names.index(queue), inner or None
    return sum(name < queue for name in names), None
