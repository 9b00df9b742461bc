"""A job's rarer options as one JSON text. Jobs of a queue share few sets of options, so both ways are remembered."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from toril.model import (
    KEEP_ALL,
    REMOVE,
    Backoff,
    DeadLetterRow,
    Dedup,
    Failure,
    Keep,
    NewJob,
    RateLimit,
    TransferJob,
    check_int,
)

__all__ = [
    "DEFAULTS",
    "ParentLink",
    "StoredOptions",
    "dump_failure",
    "dump_options",
    "dump_rate",
    "dump_transferred",
    "load_failure",
    "load_options",
    "load_rate",
    "options_of",
    "with_flow",
]


class ParentLink(NamedTuple):
    """Whose child a job is, and what its failure does there."""

    queue: str
    id: str
    policy: str


@dataclass(frozen=True, slots=True)
class StoredOptions:
    """What of a `NewJob` only matters once it runs or ends."""

    backoff: Backoff | None = None
    timeout: int | None = None
    keep_completed: Keep = REMOVE
    keep_failed: Keep = REMOVE
    keep_logs: int = 1000
    result_ttl: int | None = None
    dedup: Dedup | None = None
    breaker: str | None = None
    subject: str | None = None
    trace: str | None = None
    parent: ParentLink | None = None
    parked: int | None = None  # it has children, and was parked so often with new ones
    deferred: str | None = None  # why a child's failure is its own; whoever claims it carries that out
    ready: int | None = None  # since when it could start, where that is not told by when it was added
    fault: str | None = None  # why they could not be read; the job then fails instead of running, and is kept

    @property
    def flow(self) -> str | None:
        """The parent, as run records of jobs of flows have it: empty for the job at the top; None without a flow."""
        if self.parent is not None:
            return f"{self.parent.queue}:{self.parent.id}"
        return None if self.parked is None else ""


DEFAULTS = StoredOptions()
_BACKOFF = ("kind", "delay", "cap", "jitter", "strategy")  # what stands before its errors


def options_of(job: NewJob) -> str | None:
    """The text for these options; None where all are the defaults."""
    if (
        job.backoff is None
        and job.timeout is None
        and job.keep_completed is REMOVE
        and job.keep_failed is REMOVE
        and job.result_ttl is None
        and job.keep_logs == 1000
        and job.dedup is None
        and job.breaker is None
        and job.subject is None
        and job.trace is None
    ):
        return None
    text = _dump(
        job.backoff,
        job.timeout,
        job.keep_completed,
        job.keep_failed,
        job.keep_logs,
        job.result_ttl,
        job.dedup,
        job.breaker,
        job.subject,
    )
    if job.trace is None:
        return text
    return json.dumps(json.loads(text or "{}") | {"trace": job.trace})  # one of each job's own is not remembered


def dump_options(job: DeadLetterRow, ready: int) -> str | None:
    """The text for the options of a job that is stored again."""
    parent = None if job.parent is None else ParentLink(job.parent.queue, job.parent.id, job.on_failure.value)
    text = _dump(
        job.backoff,
        job.timeout,
        job.keep_completed,
        REMOVE,
        job.keep_logs,
        job.result_ttl,
        None,
        job.breaker,
        job.subject,
    )
    return json.dumps(json.loads(with_flow(text, parent=parent) or "{}") | {"ready": ready})


def dump_transferred(job: TransferJob) -> str | None:
    """The text for the options of a job that comes from another store. What could not be read there cannot be here."""
    if job.wire is not None and not _is_object(job.wire):
        return job.wire
    text = _dump(
        job.backoff,
        job.timeout,
        job.keep_completed,
        job.keep_failed,
        job.keep_logs,
        job.result_ttl,
        job.dedup,
        job.breaker,
        job.subject,
    )
    parent = None if job.parent is None else ParentLink(job.parent.queue, job.parent.id, job.on_failure.value)
    own = {"trace": job.trace, "deferred": job.deferred, "ready": job.ready}
    said = {name: value for name, value in own.items() if value is not None}
    text = with_flow(text, parent=parent, parked=job.parked)
    return json.dumps(json.loads(text or "{}") | said) if said else text


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def with_flow(text: str | None, *, parent: ParentLink | None = None, parked: int | None = None) -> str | None:
    """The text for the same options of a job that has a parent, or children."""
    if parent is None and parked is None:
        return text
    flow = {"parent": parent, "parked": parked}
    return json.dumps(json.loads(text or "{}") | {name: value for name, value in flow.items() if value is not None})


@lru_cache(maxsize=512)
def _dump(
    backoff: Backoff | None,
    timeout: int | None,
    completed: Keep,
    failed: Keep,
    logs: int,
    ttl: int | None,
    dedup: Dedup | None,
    breaker: str | None,
    subject: str | None,
) -> str | None:
    given: dict[str, Any] = {}
    if backoff is not None:
        given["backoff"] = [
            backoff.kind,
            backoff.delay,
            backoff.cap,
            backoff.jitter,
            backoff.strategy,
            backoff.on,
            backoff.give_up_on,
        ]
    if timeout is not None:
        given["timeout"] = timeout
    if completed != REMOVE:
        given["keep_completed"] = [completed.count, completed.age]
    if failed != REMOVE:
        given["keep_failed"] = [failed.count, failed.age]
    if logs != DEFAULTS.keep_logs:
        given["keep_logs"] = logs
    if ttl is not None:
        given["result_ttl"] = ttl
    if dedup is not None:
        given["dedup"] = [dedup.key, dedup.ttl, dedup.mode]
    if breaker is not None:
        given["breaker"] = breaker
    if subject is not None:
        given["subject"] = subject
    return json.dumps(given) if given else None


@lru_cache(maxsize=512)
def _load(text: str) -> StoredOptions:
    try:
        return _read(json.loads(text) or {})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return StoredOptions(keep_failed=KEEP_ALL, fault=f"its stored options cannot be read: {error}")


def _read(given: dict[str, Any]) -> StoredOptions:
    backoff = given.get("backoff")
    if backoff:
        *plain, on, give_up_on = backoff
        known = dict(zip(_BACKOFF, plain, strict=True))
        backoff = Backoff(**known, on=tuple(on), give_up_on=tuple(give_up_on))
    numbers = {
        name: check_int(name, given[name], 0, 2**53) for name in ("timeout", "keep_logs", "result_ttl") if name in given
    }
    keeps = {name: Keep(*given[name]) for name in ("keep_completed", "keep_failed") if name in given}
    dedup = Dedup(*given["dedup"]) if "dedup" in given else None
    texts = {name: given.get(name) for name in ("breaker", "subject", "trace", "parked", "deferred", "ready")}
    parent = ParentLink(*given["parent"]) if "parent" in given else None
    return StoredOptions(backoff=backoff, dedup=dedup, parent=parent, **texts, **numbers, **keeps)  # type: ignore[arg-type]


def load_options(text: str | None) -> StoredOptions:
    """The options that `options_of` wrote."""
    return DEFAULTS if text is None else _load(text)


def dump_failure(failure: Failure) -> str:
    return json.dumps([failure.reason, failure.kind, failure.traceback])


def load_failure(text: str | None) -> Failure | None:
    return None if text is None else Failure(*json.loads(text))


def dump_rate(rate: RateLimit | None) -> str | None:
    return None if rate is None else json.dumps([rate.max, rate.per, rate.window])


@lru_cache(maxsize=64)
def _load_rate(text: str) -> RateLimit:
    return RateLimit(*json.loads(text))


def load_rate(text: str | None) -> RateLimit | None:
    return None if text is None else _load_rate(text)
