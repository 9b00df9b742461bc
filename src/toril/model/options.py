"""What one can ask for a job, and for a queue's claims."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from toril.errors import InvalidOption, NotSerializable, shown
from toril.model.value import hot_by_keyword
from toril.names import check_circuit_key, check_group, check_job_id, check_job_name, check_label, check_subject

MAX_PRIORITY: Final = 2_097_151  # 21 bits: what is left of a float's 53 beside a 32-bit counter
MAX_ATTEMPTS: Final = 10_000
MAX_DELAY: Final = 10 * 366 * 86_400_000  # ten years
MAX_TIMEOUT: Final = 7 * 86_400_000
BATCH: Final = 1_000  # jobs in one atomic add
EXCHANGE: Final = 100  # settled, and claimed, in one exchange
MAX_TRACE: Final = 8192  # characters of what travels for tracing
MAX_REASON_BYTES: Final = 64 * 1024
MAX_LINE_BYTES: Final = 16 * 1024


def whole(what: str, value: object, low: int, high: int) -> int:
    """`value` if it is a whole number in range; booleans are not numbers here."""
    if type(value) is int and low <= value <= high:
        return value
    raise InvalidOption(f"{what} must be a whole number from {low} to {high}, not {shown(value)}")


@dataclass(frozen=True, slots=True)
class Keep:
    """How many finished jobs to keep, and for how many seconds; `None` sets no bound."""

    count: int | None = None
    age: float | None = None

    def __post_init__(self) -> None:
        if self.count is not None:
            whole("a count to keep", self.count, 0, 2**53)
        if self.age is not None and not (_is_number(self.age) and 0 <= self.age <= MAX_DELAY / 1000):
            raise InvalidOption(f"an age to keep must be seconds from 0 to ten years, not {shown(self.age)}")


def age_ms(keep: Keep) -> int | None:
    """For how long finished jobs are kept, as stores count it."""
    return None if keep.age is None else int(keep.age * 1000)


REMOVE: Final = Keep(count=0)
KEEP_ALL: Final = Keep()


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `max` starts in any `per` seconds, over the whole fleet."""

    max: int
    per: float = 1.0
    window: Literal["sliding", "fixed"] = "sliding"

    def __post_init__(self) -> None:
        whole("a rate limit's max", self.max, 1, 2**31)
        if not (_is_number(self.per) and 0.001 <= self.per <= 31 * 86_400):
            raise InvalidOption(f"a rate limit's window must be from 0.001 s to 31 days, not {shown(self.per)}")
        if self.window not in ("sliding", "fixed"):
            raise InvalidOption(f"a rate limit's window must be 'sliding' or 'fixed', not {shown(self.window)}")


def per_ms(rate: RateLimit) -> int:
    """The window of a rate, as stores count it."""
    return max(1, round(rate.per * 1000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before a retry, as the wire carries it; `strategy` names one that only Toril knows. `on` and
    `give_up_on` are the full names of errors for which a job's own options say whether to retry at all."""

    kind: Literal["fixed", "exponential"]
    delay: int
    cap: int | None = None
    jitter: float = 0.0
    strategy: str | None = None
    on: tuple[str, ...] = ()
    give_up_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ("fixed", "exponential"):
            raise InvalidOption(f"a backoff must be 'fixed' or 'exponential', not {shown(self.kind)}")
        whole("a backoff's delay", self.delay, 0, MAX_DELAY)
        if self.cap is not None:
            whole("a backoff's cap", self.cap, 0, MAX_DELAY)
        if not (_is_number(self.jitter) and 0 <= self.jitter <= 1):
            raise InvalidOption(f"a backoff's jitter must be from 0 to 1, not {shown(self.jitter)}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Dedup:
    """At most one job a key: until it ends, or, with `ttl`, for that many seconds whatever becomes of it.

    What an add does that finds the key taken is its `mode`: `"drop"` leaves the owner as it is; `"extend"` also begins
    the time anew; `"replace"` puts the new job in the place of one that is still delayed, and begins the time anew;
    `"reschedule"` gives the delayed one the new delay; `"keep_last"` has the last that was asked for while the owner
    ran come after it. Without a key, it is made of the job's name and data.
    """

    key: str | None = None
    ttl: float | None = None
    mode: Literal["drop", "extend", "replace", "reschedule", "keep_last"] = "drop"

    def __post_init__(self) -> None:
        if self.key is not None:
            object.__setattr__(self, "key", check_label("a deduplication key", self.key))
            if self.key in ("meta", "id"):
                raise InvalidOption(f"a deduplication key must not be a word of the layout, and {shown(self.key)} is")
        if self.ttl is not None and not (_is_number(self.ttl) and 0.001 <= self.ttl <= MAX_DELAY / 1000):
            raise InvalidOption(f"a deduplication's ttl must be seconds from 0.001 to ten years, not {shown(self.ttl)}")
        if self.mode not in ("drop", "extend", "replace", "reschedule", "keep_last"):
            raise InvalidOption(
                f"a deduplication's mode must be drop, extend, replace, reschedule or keep_last, not {shown(self.mode)}"
            )
        if self.mode == "extend" and self.ttl is None:
            raise InvalidOption("a deduplication that extends its time needs one: give it a ttl")


def ttl_ms(dedup: Dedup) -> int | None:
    """For how long a key is taken whatever becomes of its job, as stores count it."""
    return None if dedup.ttl is None or dedup.mode == "keep_last" else max(1, round(dedup.ttl * 1000))


@hot_by_keyword
class NewJob:
    """A job to add. Whoever holds one holds a valid one: it checks itself."""

    name: str
    data: str = "{}"
    id: str | None = None
    delay: int = 0
    due: int | None = None
    priority: int = 0
    lifo: bool = False
    attempts: int = 1
    backoff: Backoff | None = None
    timeout: int | None = None
    expires: int | None = None
    keep_completed: Keep = REMOVE
    keep_failed: Keep = REMOVE
    keep_logs: int = 1000
    result_ttl: int | None = None
    metadata: str | None = None
    dedup: Dedup | None = None
    breaker: str | None = None  # the circuit it hangs on, where its producer says so
    subject: str | None = None  # whom it is about: a tenant, an account
    group: str | None = None
    trace: str | None = None  # what a worker needs to go on with the producer's trace

    def __post_init__(self) -> None:
        _replace(self, "name", check_job_name(self.name))
        if type(self.data) is not str or not self.data.isascii():
            check_text("data", self.data)
        if type(self.keep_completed) is not Keep or type(self.keep_failed) is not Keep:
            odd = self.keep_failed if type(self.keep_completed) is Keep else self.keep_completed
            raise InvalidOption(f"what to keep must be a Keep(…), not {shown(odd)}")
        if self.backoff is not None and type(self.backoff) is not Backoff:
            raise InvalidOption(f"a job's backoff must be a Backoff(…) or None, not {shown(self.backoff)}")
        whole("priority", self.priority, 0, MAX_PRIORITY)
        whole("attempts", self.attempts, 1, MAX_ATTEMPTS)
        whole("delay", self.delay, 0, MAX_DELAY)
        whole("keep_logs", self.keep_logs, 0, 1_000_000)
        if self.id is not None:
            _replace(self, "id", check_job_id(self.id))
        if self.due is not None:
            whole("due", self.due, 0, 2**42)
            if self.delay:
                raise InvalidOption("delay and due exclude each other")
        if self.timeout is not None:
            whole("timeout", self.timeout, 1, MAX_TIMEOUT)
        if self.expires is not None:
            whole("expires", self.expires, 1, MAX_DELAY)
        if self.result_ttl is not None:
            whole("result_ttl", self.result_ttl, 1, MAX_DELAY)
        if self.metadata is not None:
            check_text("metadata", self.metadata)
        if not (self.breaker is None and self.subject is None and self.dedup is None and self.group is None):
            self._check_keys()
        if self.trace is not None and (not isinstance(self.trace, str) or len(self.trace) > MAX_TRACE):
            raise InvalidOption(f"trace must be a text of at most {MAX_TRACE} characters, not {shown(self.trace)}")

    def _check_keys(self) -> None:
        if self.breaker is not None:
            check_circuit_key(self.breaker)
        if self.subject is not None:
            check_subject(self.subject)
        if self.group is not None:
            _replace(self, "group", check_group(self.group))
        if self.dedup is not None and (type(self.dedup) is not Dedup or self.dedup.key is None):
            raise InvalidOption(f"a job's dedup must be a Dedup(key, …), not {shown(self.dedup)}")


def _replace(job: object, name: str, value: str) -> None:
    """Write back a name that checking has changed, as it does with a member of an enum."""
    if getattr(job, name) is not value:
        object.__setattr__(job, name, value)


def check_text(what: str, text: object) -> str:
    """`text` if it is a string that UTF-8 can carry."""
    if not isinstance(text, str):
        raise NotSerializable(f"{what} must be JSON text, not {shown(text)}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise NotSerializable(f"{what} has a lone surrogate at character {error.start}") from None
    return text


def storable(text: str, limit: int) -> str:
    """`text` as any store can keep it: valid UTF-8, at most `limit` bytes, with a mark where it was cut."""
    if len(text) <= limit and text.isascii():
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    return data[: limit - 3].decode("utf-8", "ignore") + "…"


class Precedence(StrEnum):
    """Who goes first: jobs without a priority (as in BullMQ), or those with one."""

    PLAIN_FIRST = "plain_first"
    PRIORITY_FIRST = "priority_first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the claim has to honour beside the queue's own settings, which win where both speak."""

    rate: RateLimit | None = None
    precedence: Precedence = Precedence.PLAIN_FIRST
