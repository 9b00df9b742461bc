"""Durable steps: what a job has recorded of its handler, what it rests for, and the signals sent to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Final

from toril.errors import InvalidOption, PayloadTooLarge, preview
from toril.model.durations import MAX_DELAY
from toril.model.flows import JobRef
from toril.model.jobs import check_int, check_text
from toril.model.names import (
    check_signal_id,
    check_signal_key,
    check_signal_name,
    check_step_key,
    check_step_name,
    check_stored_key,
)
from toril.model.values import fast_frozen

MAX_STEPS: Final = 10_000  # rows of a job
MAX_STEP_BYTES: Final = 16 * 1024 * 1024  # of keys and rows of a job
MANY_STEPS: Final = 1_000  # rows, and bytes, from which on the job's log warns
MANY_STEP_BYTES: Final = 4 * 1024 * 1024
RECORDED_AT_ONCE: Final = 100  # reports in one call
DELIVERED_AT_ONCE: Final = 100  # signals in one call
WAITED_AT_ONCE: Final = 100  # signals that one wait is for
RECORDED_BYTES: Final = 256 * 1024  # of reports that are gathered into one call; a single one may have more
MAX_BRANCHES: Final = 1_000  # of one gather
MAX_SIGNAL: Final = 256 * 1024  # bytes
MAX_INBOX: Final = 100  # signals of a job that nobody has read, and their bytes
MAX_INBOX_BYTES: Final = 1024 * 1024
SIGNAL_IDS: Final = 1_000  # ids of signals that a job remembers: the newest
MAX_KEPT_SIGNALS: Final = 10_000  # signals by key, of a queue, for which no job waits yet; and their bytes
MAX_KEPT_SIGNAL_BYTES: Final = 64 * 1024 * 1024
MAX_SENT_IDS: Final = 50_000  # ids of signals by key that a queue remembers until their ttl is over: the newest
MAX_SIGNAL_TTL: Final = 31 * 86_400_000
SIGNAL_TTL: Final = 86_400_000
CLAIMED_STEP_BYTES: Final = 8 * 1024 * 1024  # of rows, from which on a claim takes no more jobs


class StepKind(StrEnum):
    """What a row records. The values are stored."""

    DONE = "d"  # a value
    FAILED = "e"  # a failure that the handler has caught, which holds for its attempt
    RETRY = "t"  # tries of a step that runs again later
    SLEEP = "z"
    WAIT = "p"  # for signals
    RECEIVED = "w"  # a signal has been read, or the time was over
    CALLED = "c"  # other jobs
    VERSION = "v"


TIMED: Final = frozenset({StepKind.SLEEP, StepKind.WAIT, StepKind.RETRY, StepKind.RECEIVED})  # rows that have an until
RESTS: Final = frozenset({StepKind.SLEEP, StepKind.WAIT, StepKind.RETRY, StepKind.CALLED})  # for which a job rests


@dataclass(frozen=True, slots=True)
class StepRow:
    """What is recorded under one key.

    `seq` numbers the job's records, `at` is when the store wrote it, `took` how many ms the step ran. `reruns`, and
    `attempt`, how many attempts had been made, say in which attempt. `until` is when a sleep, a wait or the pause
    before a retry is over; None for a wait without a timeout. `text` is what else the kind has to say.
    """

    key: str
    kind: StepKind
    seq: int
    at: int
    took: int
    digest: str | None
    reruns: int
    attempt: int
    until: int | None
    text: str


@dataclass(frozen=True, slots=True)
class RecordedSteps:
    """What a claim tells of the steps of a job that has some, or was run again by hand: its rows as text by key, how
    often it was run again (`reruns`) and how often it is to do its steps anew (`epoch`), and the time of the claim."""

    rows: Mapping[str, str] = field(default_factory=dict, hash=False)
    reruns: int = 0
    epoch: int = 0
    now: int = 0


# What the rows of a kind say in their text


@dataclass(frozen=True, slots=True)
class StepFailure:
    """How a step failed. `lineage` has the full names of the error's class and its base classes, its own first."""

    kind: str
    reason: str
    lineage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepRetry:
    """How often a step was tried, and why the last time failed."""

    tries: int
    kind: str
    reason: str


@fast_frozen
class SignalWait:
    """A signal that a job waits for: one sent to the job itself or, with a key, to whoever waits for that key."""

    name: str
    key: str | None = None

    def __post_init__(self) -> None:
        check_signal_name(self.name)
        if self.key is not None:
            check_signal_key(self.key)


@dataclass(frozen=True, slots=True)
class ReceivedSignal:
    """A signal that was read, with its payload as text."""

    signal: SignalWait
    payload: str


# Resting


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """One reason for a job to rest, and the row that it leaves.

    A row of the same key that is there stays as it is, with its time; except that of a RETRY, which is replaced unless
    `recorded` says that it is the one that counts. `delay` is how long a sleep, a pause before a retry or a timeout
    takes; a wait without one has no timeout. A CALLED rest ends when all children have ended.
    """

    key: str
    kind: StepKind
    text: str = ""
    delay: int | None = None
    digest: str | None = None
    signals: tuple[SignalWait, ...] = ()
    recorded: bool = False

    def __post_init__(self) -> None:
        check_stored_key(self.key)
        check_text("a step's text", self.text)
        check_digest(self.digest)
        if self.kind not in RESTS:
            raise InvalidOption(f"a job cannot rest for a row of kind {preview(str(self.kind))}")
        check_step_delay(self.kind, self.delay, given=self.recorded)
        if bool(self.signals) is not (self.kind is StepKind.WAIT):
            raise InvalidOption("a wait names the signals that it is for, and no other rest does")


def check_digest(digest: object) -> None:
    """Refuse what is not 8 hexadecimal digits."""
    if digest is not None and not (isinstance(digest, str) and len(digest) == 8 and set(digest) <= _HEX):
        raise InvalidOption(f"a digest must have 8 hexadecimal digits, not {preview(digest)}")


_HEX: Final = frozenset("0123456789abcdef")


def check_step_delay(kind: StepKind, delay: int | None, *, given: bool) -> None:
    """Refuse a delay for a row that has no time, and a row that needs one and has none. `given`: its time is known."""
    if delay is not None and (kind not in TIMED or given):
        raise InvalidOption(f"a row of kind {str(kind)!r} takes no delay here")
    if delay is None and kind in {StepKind.SLEEP, StepKind.RETRY} and not given:
        raise InvalidOption(f"a row of kind {str(kind)!r} needs a delay")
    if delay is not None:
        check_int("a delay", delay, 0, MAX_DELAY)


@dataclass(frozen=True, slots=True)
class RestReason:
    """One of the reasons why a job rests, as `JobRow.rest` tells it."""

    key: str
    kind: StepKind
    until: int | None = None
    signals: tuple[SignalWait, ...] = ()


@dataclass(frozen=True, slots=True)
class RestRow:
    """Why a job rests: since when, until when at most, for what, and whether for its children."""

    since: int
    until: int | None = None
    reasons: tuple[RestReason, ...] = ()
    children: bool = False


# Writing and reading


class StepVerdict(StrEnum):
    """What became of a record, or of reading signals. `FULL`: the job would have more rows, or bytes of them, than it
    may. `CLASH`: another job of the queue waits for a signal by this key."""

    OK = "ok"
    LOST = "lost"
    MISSING = "missing"
    FULL = "full"
    CLASH = "clash"


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """The answer to a record or a read: the verdict, and the store's time. `row` is the text of the row that now
    counts, where the caller does not know it: because the store gave it a time, because a signal or its absence was
    recorded, or because another row had been there first. `steps` and `bytes` are how many rows the job has now."""

    verdict: StepVerdict
    now: int = 0
    row: str | None = None
    steps: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSignal:
    """A signal to send: to a job, or by `key` to the job of the queue that waits for that key, now or within `ttl`. A
    second one with the same `id` has no effect. `only_if_waiting` refuses it unless a job rests for it now."""

    name: str
    payload: str = "true"
    job_id: str | None = None
    key: str | None = None
    id: str | None = None
    ttl: int = SIGNAL_TTL
    only_if_waiting: bool = False

    def __post_init__(self) -> None:
        check_signal_name(self.name)
        check_text("a signal", self.payload)
        if len(self.payload) > MAX_SIGNAL or len(self.payload.encode()) > MAX_SIGNAL:
            raise PayloadTooLarge(f"a signal may have at most {MAX_SIGNAL} bytes; {preview(self.name)} has more")
        if (self.job_id is None) is (self.key is None):
            raise InvalidOption("a signal goes to a job_id or to a key: give one of them")
        if self.key is not None:
            check_signal_key(self.key)
        if self.id is not None:
            check_signal_id(self.id)
        check_int("a signal's ttl", self.ttl, 1, MAX_SIGNAL_TTL)


class SignalOutcome(StrEnum):
    """What became of a signal. `WOKEN`: a job that rested for it is ready. `KEPT`: it is in the inbox of its job, or
    kept for whoever will wait for its key. `DUPLICATE`: one with this id came before, to this job or by this key.
    Of the others nothing is stored: the job has ended, there is none, its inbox or the queue has no room, or nobody
    waits for it now."""

    WOKEN = "woken"
    KEPT = "kept"
    DUPLICATE = "duplicate"
    ENDED = "ended"
    MISSING = "missing"
    FULL = "full"
    NOT_WAITING = "not_waiting"


@dataclass(frozen=True, slots=True)
class DeliveredSignal:
    """What became of one signal, and to which job it went, as far as that is known."""

    outcome: SignalOutcome
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class SignalRow:
    """A signal that nobody has read yet. `number` gives the order, `at` is when it came. Only one that is kept by `key`
    has an `until`."""

    number: int
    name: str
    payload: str
    at: int
    id: str | None = None
    key: str | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class SentId:
    """The id of a signal that was sent by a key, which is known until then."""

    name: str
    key: str
    id: str
    until: int


# Moving


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSteps:
    """The steps of a job or dead letter that goes to another store: its rows as text by key, the last `seq`, its inbox,
    the ids of signals that it remembers (oldest first), and the text of its rest."""

    rows: Mapping[str, str] = field(default_factory=dict)
    seq: int = 0
    reruns: int = 0
    epoch: int = 0
    rest: str | None = None
    inbox: Sequence[SignalRow] = ()
    signal_ids: Sequence[str] = ()


def stored_key(scope: str, name: str, key: str | None = None, occurrence: int = 1) -> str:
    """The key under which a step is recorded: `scope/name:key`, or `scope/name#2` for the second one of a name.
    `scope` is empty, or ends with a slash: see `branch_scope`."""
    check_step_name(name)
    if key is not None:
        return check_stored_key(f"{scope}{name}:{check_step_key(key)}")
    return check_stored_key(f"{scope}{name}" if occurrence == 1 else f"{scope}{name}#{occurrence}")


def branch_scope(gather: str, branch: int) -> str:
    """The scope of a branch, from the stored key of its gather."""
    return f"{gather}[{branch}]/"


def called_job(job: JobRef, added_at: int, epoch: int, key: str, number: int = 0) -> str:
    """The id of the child that a job calls under this key, the same in each of its runs; `number` is its place among
    several that are called together."""
    return "c" + sha256(f"{job}:{added_at}:{epoch}:{key}:{number}".encode()).hexdigest()[:31]
