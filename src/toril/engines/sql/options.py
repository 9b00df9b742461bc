"""The rarer options of a job as one JSON text. Both directions are cached, as jobs share few sets of options."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from toril.codec.new_jobs import made, said
from toril.model import (
    DEFAULT_OPTIONS,
    KEEP_ALL,
    DeadLetterRow,
    Dedup,
    Failure,
    JobOptions,
    NewJob,
    RateLimit,
    TransferJob,
)

__all__ = [
    "NOTHING_STORED",
    "ParentLink",
    "StoredOptions",
    "dump_again",
    "dump_failure",
    "dump_options",
    "dump_rate",
    "dump_transferred",
    "load_failure",
    "load_options",
    "load_rate",
    "options_of",
]


class ParentLink(NamedTuple):
    """A job's parent, and what the job's failure does there."""

    queue: str
    id: str
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOptions:
    """A job's options, and other facts that only matter when it runs or ends."""

    options: JobOptions = DEFAULT_OPTIONS
    dedup: Dedup | None = None
    trace: str | None = None
    parent: ParentLink | None = None
    parked: int | None = None  # it has children, and how often it was parked with new ones
    deferred: str | None = None  # the child's failure for which it fails at its next claim
    ready: int | None = None  # since when it could start, if that differs from when it was added
    fault: str | None = None  # why they could not be read; the job then fails instead of running, and is kept

    @property
    def flow(self) -> str | None:
        """The parent, as in run records of flows: empty for the job at the top, None without a flow."""
        if self.parent is not None:
            return f"{self.parent.queue}:{self.parent.id}"
        return None if self.parked is None else ""

    @property
    def leaves_nothing(self) -> bool:
        """Whether nothing is left of the job once it has completed, and nobody needs to be notified."""
        options = self.options
        return (
            options.keep_completed.count == 0
            and options.result_ttl is None
            and self.dedup is None
            and self.parent is None
            and self.parked is None
        )


NOTHING_STORED: Final = StoredOptions()


def options_of(job: NewJob) -> str | None:
    """These options as text; None if all are the defaults."""
    if job.dedup is None and job.trace is None:
        return _shared(job.options)
    return dump_options(StoredOptions(options=job.options, dedup=job.dedup, trace=job.trace))


def dump_options(stored: StoredOptions) -> str | None:
    """The same, with the facts of the job itself."""
    shared, own = _shared(stored.options), said(stored)
    if not own:
        return shared
    text = json.dumps(own)
    return text if shared is None else f"{shared[:-1]}, {text[1:]}"


def dump_again(job: DeadLetterRow, ready: int) -> str | None:
    """The options of a job that is stored again, as text."""
    return dump_options(StoredOptions(options=job.options, parent=_link_of(job), ready=ready))


def dump_transferred(job: TransferJob) -> str | None:
    """The options of a job from another store, as text. What could not be read there cannot be read here."""
    if job.wire is not None and not _is_object(job.wire):
        return job.wire
    return dump_options(
        StoredOptions(
            options=job.options,
            dedup=job.dedup,
            trace=job.trace,
            parent=_link_of(job),
            parked=job.parked,
            deferred=job.deferred,
            ready=job.ready,
        )
    )


def _link_of(job: DeadLetterRow | TransferJob) -> ParentLink | None:
    return None if job.parent is None else ParentLink(job.parent.queue, job.parent.id, job.on_failure.value)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


@lru_cache(maxsize=512)
def _shared(options: JobOptions) -> str | None:
    given = said(options)
    return json.dumps(given) if given else None


@lru_cache(maxsize=512)
def _load(text: str) -> StoredOptions:
    try:
        return _read(json.loads(text) or {})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        kept = JobOptions(keep_failed=KEEP_ALL)
        return StoredOptions(options=kept, fault=f"its stored options cannot be read: {error}")


def _read(given: object) -> StoredOptions:
    if not isinstance(given, dict):
        raise TypeError("they are not a JSON object")
    link = given.get("parent")
    return made(StoredOptions, given if link is None else {**given, "parent": ParentLink(*link)})


def load_options(text: str | None) -> StoredOptions:
    """The options that `dump_options` wrote."""
    return NOTHING_STORED if text is None else _load(text)


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
