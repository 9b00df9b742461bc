"""Job options as BullMQ writes them: JSON with its names. Both directions are cached, as jobs share few sets of
options."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

from toril.engines.redis.layout import LAST_MOMENT, NUMBERS
from toril.errors import InvalidName, TorilError
from toril.model import (
    KEEP_ALL,
    KEEP_LOGS,
    MAX_ATTEMPTS,
    MAX_DELAY,
    MAX_KEEP_LOGS,
    MAX_TIMEOUT,
    MAX_TRACE,
    REMOVE,
    Backoff,
    DeadLetterRow,
    Dedup,
    Failure,
    JobOptions,
    Keep,
    NewJob,
    TransferJob,
    ttl_ms,
)
from toril.model.names import check_circuit_key

__all__ = [
    "RedisOptions",
    "dump_backoff",
    "dump_letter",
    "dump_options",
    "dump_trace",
    "dump_transfer_job",
    "is_plain",
    "load_dedup",
    "load_failure",
    "load_options",
    "load_traces",
    "moment",
    "number",
    "parsed",
]


_TO_DEAD_LETTERS = -1  # as `removeOnFail`: BullMQ keeps such a job in `failed`; Toril moves it to the dead letters


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """The options of a stored job, whoever wrote them."""

    options: JobOptions = JobOptions(keep_completed=KEEP_ALL, keep_failed=KEEP_ALL)
    attempts: int = 1
    trace: str | None = None
    unreadable: str | None = None  # why they cannot be read: the job then fails instead of running


def is_plain(job: NewJob) -> bool:
    """Whether it goes to the end of the line under a number of its own, as nearly every job does."""
    return (
        job.id is None
        and not (job.delay or job.priority or job.lifo)
        and job.due is None
        and job.expires is None
        and job.metadata is None
        and job.dedup is None
        and job.group is None
    )


def dump_options(job: NewJob) -> str:
    """A job's options as text."""
    shared = _dump(job.attempts, job.options)
    if job.id is None and job.dedup is None and job.trace is None and not (job.delay or job.priority or job.lifo):
        return shared
    own: dict[str, Any] = {}
    if job.id is not None:
        own["jobId"] = job.id
    if job.delay:
        own["delay"] = job.delay
    if job.priority:
        own["priority"] = job.priority
    if job.lifo:
        own["lifo"] = True
    if job.dedup is not None:
        own["de"] = _dump_dedup(job.dedup)
    if job.trace is not None:
        own["tm"] = job.trace
    return f"{json.dumps(own, ensure_ascii=False)[:-1]}, {shared[1:]}"


def dump_transfer_job(job: TransferJob, prefix: str) -> str:
    """The options of a job from another store, as text."""
    own: dict[str, Any] = {} if job.id.isdecimal() else {"jobId": job.id}
    if job.priority:
        own["priority"] = job.priority
    if job.delay:
        own["delay"] = job.delay
    if job.dedup is not None:
        own["de"] = _dump_dedup(job.dedup)
    if job.trace is not None:
        own["tm"] = job.trace
    if job.parent is not None:
        own["parent"] = {"id": job.parent.id, "queue": f"{prefix}:{job.parent.queue}"}
    shared = _dump(job.max_attempts, job.options)
    return f"{json.dumps(own, ensure_ascii=False)[:-1]}, {shared[1:]}" if own else shared


def dump_letter(letter: DeadLetterRow) -> str:
    """The options of a dead letter from another store, as text."""
    return _dump(letter.max_attempts, letter.options)


@lru_cache(maxsize=512)
def _dump(attempts: int, options: JobOptions) -> str:
    given: dict[str, Any] = {"attempts": attempts}
    if options.backoff is not None:
        given["backoff"] = dump_backoff(options.backoff)
    failed = options.keep_failed
    given["removeOnComplete"] = _dump_keep(options.keep_completed)
    given["removeOnFail"] = _TO_DEAD_LETTERS if failed.count == 0 else _dump_keep(failed)
    if options.keep_logs != KEEP_LOGS:
        given["kl"] = options.keep_logs
    own = {word: value for name, (word, _) in _OWN.items() if (value := getattr(options, name)) is not None}
    if own:
        given["toril"] = own
    return json.dumps(given, separators=(",", ":"))


def _dump_dedup(dedup: Dedup) -> dict[str, Any]:
    """The mode in BullMQ's words, which its own workers follow when the job ends."""
    given: dict[str, Any] = {"id": dedup.key}
    if dedup.ttl is not None and dedup.mode != "keep_last":
        given["ttl"] = ttl_ms(dedup)
    words = {"extend": ("extend",), "replace": ("extend", "replace"), "reschedule": ("reschedule",)}
    given |= dict.fromkeys(words.get(dedup.mode, ()), True)
    return given | ({"keepLastIfActive": True} if dedup.mode == "keep_last" else {})


def load_dedup(text: str | None) -> Dedup | None:
    """The deduplication in these options; None if there is none, or none that Toril knows."""
    try:
        given = parsed(text, {}).get("de")
        ttl = given.get("ttl")
        modes = {"keepLastIfActive": "keep_last", "reschedule": "reschedule", "replace": "replace", "extend": "extend"}
        mode = next((mode for word, mode in modes.items() if given.get(word)), "drop")
        return Dedup(str(given["id"]), None if ttl is None else ttl / 1000, mode)  # type: ignore[arg-type]
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError, TorilError):
        return None


def dump_backoff(backoff: Backoff) -> dict[str, Any]:
    given: dict[str, Any] = {"type": backoff.kind, "delay": backoff.delay}
    if backoff.jitter:
        given["jitter"] = backoff.jitter
    if backoff.cap is not None:
        given["cap"] = backoff.cap
    if backoff.strategy is not None:
        given["strategy"] = backoff.strategy
    if backoff.on:
        given["on"] = backoff.on
    if backoff.give_up_on:
        given["giveUpOn"] = backoff.give_up_on
    return given


def _dump_keep(keep: Keep) -> Any:
    if keep == REMOVE:
        return True
    if keep.age is None:
        return False if keep.count is None else keep.count
    return {"age": keep.age} if keep.count is None else {"age": keep.age, "count": keep.count}


@lru_cache(maxsize=1024)
def load_options(text: str | None) -> RedisOptions:
    """Read the text; parts that are invalid count as absent. It never raises."""
    given = {} if text is None else parsed(text, None)
    if not isinstance(given, dict):
        return RedisOptions(
            unreadable="its stored options cannot be read: they are not a JSON object, or are nested too deeply"
        )
    own, failed = given.get("toril"), given.get("removeOnFail")
    own = own if isinstance(own, dict) else {}
    options = JobOptions(
        backoff=_load_backoff(given.get("backoff")),
        keep_completed=_load_keep(given.get("removeOnComplete")),
        keep_failed=REMOVE if failed == _TO_DEAD_LETTERS else _load_keep(failed),
        keep_logs=_within(given.get("kl"), 0, MAX_KEEP_LOGS, KEEP_LOGS) or 0,
        **{name: read(own.get(word)) for name, (word, read) in _OWN.items()},
    )
    attempts = _within(given.get("attempts"), 1, MAX_ATTEMPTS) or 1
    return RedisOptions(options=options, attempts=attempts, trace=_trace(given))


def _trace(given: dict[str, Any]) -> str | None:
    """The producer's trace context, unless it says that the worker should not continue it."""
    text = given.get("tm")
    return text if isinstance(text, str) and len(text) <= MAX_TRACE and given.get("omc") is not True else None


def _load_backoff(given: Any) -> Backoff | None:
    """A backoff as BullMQ writes it, which may be a plain number of ms; of custom strategies in Node, only the delay is
    known."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = {"type": "fixed", "delay": given}
    if not isinstance(given, dict):
        return None
    jitter = given.get("jitter")
    strategy = given.get("strategy")
    return Backoff(
        kind="exponential" if given.get("type") == "exponential" else "fixed",
        delay=_within(given.get("delay"), 0, MAX_DELAY) or 0,
        cap=_within(given.get("cap"), 0, MAX_DELAY),
        jitter=jitter if isinstance(jitter, int | float) and not isinstance(jitter, bool) and 0 <= jitter <= 1 else 0.0,
        strategy=strategy if isinstance(strategy, str) else None,
        on=_names(given.get("on")),
        give_up_on=_names(given.get("giveUpOn")),
    )


def _line(given: Any) -> str | None:
    try:
        return None if given is None else check_circuit_key(given)
    except InvalidName:
        return None


def _names(given: Any) -> tuple[str, ...]:
    return tuple(name for name in given if isinstance(name, str)) if isinstance(given, list) else ()


def _load_keep(given: Any) -> Keep:
    if given is True:
        return REMOVE
    if given == -1:
        return KEEP_ALL
    if isinstance(given, dict):
        age = given.get("age")
        known = isinstance(age, int | float) and not isinstance(age, bool) and 0 <= age <= MAX_DELAY / 1000
        return Keep(_within(given.get("count"), 0, 2**53), age if known else None)
    count = _within(given, -1, 2**53)
    return KEEP_ALL if count is None or count < 0 else Keep(count)


def _within(value: Any, low: int, high: int, default: int | None = None) -> int | None:
    """A number from the wire as a whole number in this range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - NaN
        return default
    return int(min(max(value, low), high))


# Options that BullMQ does not have are in an object of our own: each option's name there, and its reader.
_OWN: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "timeout": ("timeout", partial(_within, low=1, high=MAX_TIMEOUT)),
    "result_ttl": ("resultTtl", partial(_within, low=1, high=MAX_DELAY)),
    "breaker": ("breaker", _line),
    "subject": ("subject", _line),
}


def parsed(text: str | None, default: Any) -> Any:
    """The value of JSON text in the hash; the default if it is missing, not JSON, or nested too deeply. A lone
    surrogate, which could not be sent back as a name or an id, becomes a question mark."""
    try:
        found = default if text is None else json.loads(text)
        if text is not None and ("\\ud" in text or "\\uD" in text):
            found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return default
    return found


def number(text: Any, most: int = NUMBERS["largest"]) -> int:
    """A number in the hash, from 0 to `most`. Other libraries may write it as a fraction, or write anything else."""
    try:
        value = int(text or 0)
    except (ValueError, TypeError, OverflowError):
        try:
            value = int(float(text))
        except (ValueError, TypeError, OverflowError):
            return 0
    return value if 0 <= value <= most else most if value > 0 else 0


def moment(text: Any) -> int:
    """A time in the hash, in ms, that can be shown as a date."""
    return number(text, LAST_MOMENT)


def dump_trace(failure: Failure) -> str:
    """One element for the list of stack traces; empty if there is none."""
    return json.dumps(failure.traceback, ensure_ascii=False) if failure.traceback else ""


def load_failure(reason: str | None, kind: str | None, traces: str | None) -> Failure | None:
    """The last failure of a job."""
    return None if reason is None else Failure(reason, kind or "", (load_traces(traces) or [""])[-1])


def load_traces(text: str | None) -> list[str]:
    """The stack traces of a job's failures, the oldest first."""
    known = parsed(text, None)
    return [each if isinstance(each, str) else "" for each in known] if isinstance(known, list) else []
