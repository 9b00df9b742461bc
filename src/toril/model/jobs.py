"""New jobs and their options."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, repeat
from typing import Final, Literal, TypeAlias, get_args, overload

from toril.errors import InvalidOption, NotSerializable, preview
from toril.model.durations import MAX_DELAY, Duration, checked_seconds
from toril.model.names import check_circuit_key, check_group, check_job_id, check_job_name, check_label, check_subject
from toril.model.values import fast_frozen_kw

MAX_PRIORITY: Final = 2_097_151  # 21 bits: the rest of a float's 53 next to a 32-bit counter
MAX_RATE: Final = 2**31  # jobs that may start within the time of a rate
MAX_RATE_WINDOW: Final = 31 * 86_400_000
MAX_ATTEMPTS: Final = 10_000
MAX_TIMEOUT: Final = 7 * 86_400_000
KEEP_LOGS: Final = 1000  # lines kept of a job's log by default
MAX_KEEP_LOGS: Final = 1_000_000
BATCH: Final = 1_000  # jobs in one atomic add
EXCHANGE: Final = 100  # settled, and claimed, in one exchange
MAX_TRACE: Final = 8192  # characters of a trace context
MAX_REASON_BYTES: Final = 64 * 1024
MAX_LINE_BYTES: Final = 16 * 1024
ATTEMPT_ERRORS: Final = 50  # errors of earlier attempts that are kept: the newest
ATTEMPT_REASON_BYTES: Final = 1024  # of each error
ATTEMPT_TRACEBACK_BYTES: Final = 4 * 1024


def check_int(what: str, value: object, low: int, high: int) -> int:
    """The value if it is a whole number in range; booleans are not numbers here."""
    if type(value) is int and low <= value <= high:
        return value
    raise InvalidOption(f"{what} must be a whole number from {low} to {high}, not {preview(value)}")


def check_priority(value: object) -> int:
    """The value if it is a priority: 0 for none; from 1 on, lower is more urgent."""
    if type(value) is int and 0 <= value <= MAX_PRIORITY:
        return value
    raise InvalidOption(
        f"priority must be a whole number from 0 to {MAX_PRIORITY}, not {preview(value)}. 1 is the most urgent; 0 "
        "means no priority, and such jobs run first unless the queue is declared with priority_first=True"
    )


def _set(value: object, **fields: object) -> None:
    """Set the fields of a frozen value."""
    for name, each in fields.items():
        object.__setattr__(value, name, each)


@dataclass(frozen=True, slots=True, init=False)
class Keep:
    """How many finished jobs to keep, and for how long. None means no limit.

    Args:
        count: Keep this many, those that ended last.
        age: Keep them for this long. It reads back as seconds.
    """

    count: int | None
    age: float | None

    def __init__(self, count: int | None = None, age: Duration | None = None) -> None:
        if count is not None:
            check_int("a count to keep", count, 0, 2**53)
        _set(self, count=count, age=None if age is None else checked_seconds("an age to keep", age))


def age_ms(keep: Keep) -> int | None:
    """How long finished jobs are kept, in the stores' unit."""
    return None if keep.age is None else int(keep.age * 1000)


REMOVE: Final = Keep(count=0)
KEEP_ALL: Final = Keep()


@dataclass(frozen=True, slots=True, init=False)
class RateLimit:
    """How many jobs may start within a time, in all processes together.

    Args:
        max: How many jobs may start within `per`.
        per: The length of that time. It reads back as seconds.
        window: `"sliding"` counts any period of that length; `"fixed"` starts counting again after each period.
    """

    max: int
    per: float
    window: Literal["sliding", "fixed"]

    def __init__(self, max: int, per: Duration = 1.0, window: Literal["sliding", "fixed"] = "sliding") -> None:  # noqa: A002 - as everyone calls it
        check_int("a rate limit's max", max, 1, MAX_RATE)
        if window not in ("sliding", "fixed"):
            raise InvalidOption(f"a rate limit's window must be 'sliding' or 'fixed', not {preview(window)}")
        _set(self, max=max, per=checked_seconds("a rate limit's per", per, 1, MAX_RATE_WINDOW), window=window)


def per_ms(rate: RateLimit) -> int:
    """The window of a rate, in the stores' unit."""
    return max(1, round(rate.per * 1000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before a retry, as on the wire; `strategy` names one that only Toril knows. `on` and
    `give_up_on` are the full names of errors that a job's own options say to retry or not."""

    kind: Literal["fixed", "exponential"]
    delay: int
    cap: int | None = None
    jitter: float = 0.0
    strategy: str | None = None
    on: tuple[str, ...] = ()
    give_up_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ("fixed", "exponential"):
            raise InvalidOption(f"a backoff must be 'fixed' or 'exponential', not {preview(self.kind)}")
        check_int("a backoff's delay", self.delay, 0, MAX_DELAY)
        if self.cap is not None:
            check_int("a backoff's cap", self.cap, 0, MAX_DELAY)
        if not (_is_number(self.jitter) and 0 <= self.jitter <= 1):
            raise InvalidOption(f"a backoff's jitter must be from 0 to 1, not {preview(self.jitter)}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


DedupMode: TypeAlias = Literal["drop", "extend", "replace", "reschedule", "keep_last"]


@dataclass(frozen=True, slots=True, init=False)
class Dedup:
    """At most one job per key: until that job ends or, with `ttl`, for that long, whatever becomes of the job.

    Args:
        key: What identifies the job. By default it is made of the job's name and payload.
        ttl: How long the key stays taken, counted from the add. It reads back as seconds.
        mode: What an add does if the key is taken. `"drop"` leaves the owner as it is. `"extend"` also restarts `ttl`.
            `"replace"` replaces an owner that is still delayed, and restarts `ttl`. `"reschedule"` gives a delayed
            owner the new delay. `"keep_last"` runs the last job that was added while the owner ran, after it.
    """

    key: str | None
    ttl: float | None
    mode: DedupMode

    def __init__(self, key: str | None = None, ttl: Duration | None = None, mode: DedupMode = "drop") -> None:
        if key is not None:
            key = check_label("a deduplication key", key)
            if key in ("meta", "id"):
                raise InvalidOption(f"{preview(key)} is reserved and cannot be a deduplication key")
        if mode not in get_args(DedupMode):
            raise InvalidOption(
                f"a Dedup's mode must be 'drop', 'extend', 'replace', 'reschedule' or 'keep_last', not {preview(mode)}"
            )
        if mode == "extend" and ttl is None:
            raise InvalidOption("Dedup(mode='extend') needs a ttl to extend")
        seconds = None if ttl is None else checked_seconds("a deduplication's ttl", ttl, 1)
        _set(self, key=key, ttl=seconds, mode=mode)


def ttl_ms(dedup: Dedup) -> int | None:
    """How long a key is taken whatever becomes of its job, in the stores' unit."""
    return None if dedup.ttl is None or dedup.mode == "keep_last" else max(1, round(dedup.ttl * 1000))


@fast_frozen_kw
class JobOptions:
    """How a job is run, and what is kept of it. The value checks itself when it is created, and travels with the job
    unchanged, to the dead letters and to another store. Most jobs of a queue share one."""

    backoff: Backoff | None = None
    timeout: int | None = None
    keep_completed: Keep = REMOVE
    keep_failed: Keep = REMOVE
    keep_logs: int = KEEP_LOGS
    result_ttl: int | None = None
    breaker: str | None = None  # the circuit that it depends on, if its producer names one
    subject: str | None = None  # what it is about: a tenant, an account

    def __post_init__(self) -> None:
        if type(self.keep_completed) is not Keep or type(self.keep_failed) is not Keep:
            odd = self.keep_failed if type(self.keep_completed) is Keep else self.keep_completed
            raise InvalidOption(f"keep_completed and keep_failed must be a Keep(…), not {preview(odd)}")
        if self.backoff is not None and type(self.backoff) is not Backoff:
            raise InvalidOption(f"a job's backoff must be a Backoff(…) or None, not {preview(self.backoff)}")
        check_int("keep_logs", self.keep_logs, 0, MAX_KEEP_LOGS)
        if self.timeout is not None:
            check_int("timeout", self.timeout, 1, MAX_TIMEOUT)
        if self.result_ttl is not None:
            check_int("result_ttl", self.result_ttl, 1, MAX_DELAY)
        if self.breaker is not None:
            check_circuit_key(self.breaker)
        if self.subject is not None:
            check_subject(self.subject)


DEFAULT_OPTIONS: Final = JobOptions()


@fast_frozen_kw
class NewJob:
    """A job to add. It checks itself when it is created, so every instance is valid. Its `options` may be shared with
    other jobs; the other fields are its own."""

    name: str
    data: str = "{}"
    id: str | None = None
    delay: int = 0
    due: int | None = None
    priority: int = 0
    lifo: bool = False
    attempts: int = 1
    expires: int | None = None
    metadata: str | None = None
    dedup: Dedup | None = None
    group: str | None = None
    trace: str | None = None  # what a worker needs to continue the producer's trace
    options: JobOptions = DEFAULT_OPTIONS

    def __post_init__(self) -> None:
        _replace(self, "name", check_job_name(self.name))
        if type(self.data) is not str or not self.data.isascii():
            check_text("data", self.data)
        if type(self.options) is not JobOptions:
            raise InvalidOption(f"a job's options must be a JobOptions(…), not {preview(self.options)}")
        check_priority(self.priority)
        check_int("attempts", self.attempts, 1, MAX_ATTEMPTS)
        check_int("delay", self.delay, 0, MAX_DELAY)
        if self.id is not None:
            _replace(self, "id", check_job_id(self.id))
        if self.due is not None:
            check_int("due", self.due, 0, 2**42)
            if self.delay:
                raise InvalidOption("give delay or due, not both")
        if self.expires is not None:
            check_int("expires", self.expires, 1, MAX_DELAY)
        if self.metadata is not None:
            check_text("metadata", self.metadata)
        if self.group is not None:
            _replace(self, "group", check_group(self.group))
        if self.dedup is not None and (type(self.dedup) is not Dedup or self.dedup.key is None):
            raise InvalidOption(f"a job's dedup must be a Dedup(key, …), not {preview(self.dedup)}")
        if self.trace is not None and (not isinstance(self.trace, str) or len(self.trace) > MAX_TRACE):
            raise InvalidOption(f"trace must be a string of at most {MAX_TRACE} characters, not {preview(self.trace)}")


def _replace(job: object, name: str, value: str) -> None:
    """Store a name that the check has changed, for example from a member of an enum."""
    if getattr(job, name) is not value:
        object.__setattr__(job, name, value)


def check_text(what: str, text: object) -> str:
    """`text` if it is a string that UTF-8 can carry."""
    if not isinstance(text, str):
        raise NotSerializable(f"{what} must be JSON text, not {preview(text)}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise NotSerializable(
                f"{what} has a lone surrogate at character {error.start}, which UTF-8 cannot represent"
            ) from None
    return text


def storable(text: str, limit: int) -> str:
    """The text as any store can keep it: valid UTF-8, at most `limit` bytes, with a mark where it was cut."""
    if len(text) <= limit and text.isascii():
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    return data[: limit - 3].decode("utf-8", "ignore") + "…"


def storable_end(text: str, limit: int) -> str:
    """The same for texts whose end matters most, such as tracebacks: the mark is in front."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    return "…" + data[len(data) - limit + 3 :].decode("utf-8", "ignore")


class Precedence(StrEnum):
    """Which jobs run first: those without a priority (as in BullMQ), or those with one."""

    PLAIN_FIRST = "plain_first"
    PRIORITY_FIRST = "priority_first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that a claim observes in addition to the queue's settings, which take precedence."""

    rate: RateLimit | None = None
    precedence: Precedence = Precedence.PLAIN_FIRST


AlikeJobs: TypeAlias = tuple[NewJob, Sequence[str]]


class NewJobs(Sequence[NewJob]):
    """Jobs to add, in order. Consecutive jobs that differ only in their data form a run: one template, and the data of
    each. A thousand jobs of a kind are then checked and encoded once."""

    __slots__ = ("_size", "runs")

    def __init__(self, runs: Sequence[AlikeJobs]) -> None:
        self.runs = runs
        self._size = sum(len(texts) for _, texts in runs)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[NewJob]:
        for job, texts in self.runs:
            for text in texts:
                yield job if text is job.data else replace(job, data=text)

    @overload
    def __getitem__(self, place: int) -> NewJob: ...

    @overload
    def __getitem__(self, place: slice) -> list[NewJob]: ...

    def __getitem__(self, place: int | slice) -> NewJob | list[NewJob]:
        return list(self)[place]

    def names(self) -> Iterator[str]:
        """The name of each job."""
        return chain.from_iterable(repeat(job.name, len(texts)) for job, texts in self.runs)


def runs_of(jobs: Sequence[NewJob]) -> Sequence[AlikeJobs]:
    """The jobs in runs; without known runs, each job is one."""
    return jobs.runs if isinstance(jobs, NewJobs) else [(job, (job.data,)) for job in jobs]
