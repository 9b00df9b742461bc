"""New jobs and their options as JSON text, without defaults, to be stored and read back later."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, Final, TypeVar

from toril.errors import InvalidOption, TorilError, Undecodable
from toril.model import Backoff, Dedup, JobOptions, Keep, NewJob

__all__ = ["after_waiting", "dump_new_job", "load_new_job", "made", "said"]

T = TypeVar("T")


def dump_new_job(job: NewJob) -> str:
    """The request as text. It is ASCII, without characters that a database would refuse."""
    return json.dumps(said(job) | said(job.options))


def load_new_job(text: str) -> NewJob:
    """The job again, checked as if it were new; `Undecodable` for anything else."""
    try:
        return made(NewJob, _known(json.loads(text)))
    except (ValueError, TypeError, AttributeError, RecursionError, TorilError) as error:
        raise Undecodable(f"this version of Toril cannot read the stored job: {error}") from None


def _known(given: dict[str, Any]) -> dict[str, Any]:
    """Raise for options that a later version has written: they must not be lost."""
    if unknown := given.keys() - _KNOWN:
        raise InvalidOption(f"unknown fields: {', '.join(sorted(unknown))}")
    return given


def said(value: object) -> dict[str, Any]:
    """The fields of a value that differ from their defaults, as JSON. Job options convert themselves."""
    kind: Any = type(value)
    return {
        name: _parts(found) if isinstance(found, Keep | Backoff | Dedup) else found
        for name, default in _defaults(kind)
        if (found := getattr(value, name)) != default and type(found) is not JobOptions
    }


def made(kind: Callable[..., T], given: Mapping[str, Any]) -> T:
    """The value with these fields and job options. Unknown fields are ignored."""
    found: dict[str, Any] = {}
    for name, default in _defaults(kind):
        if type(default) is JobOptions:
            found[name] = made(JobOptions, given)
        elif name in given:
            found[name] = _MADE[name](given[name]) if name in _MADE else given[name]
    return kind(**found)


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in fields(kind))


def _parts(value: object) -> list[Any]:
    kind: Any = type(value)
    return [getattr(value, name) for name, _ in _defaults(kind)]


def _backoff(parts: Any) -> Backoff:
    *plain, on, give_up_on = parts
    known = dict(zip(_PLAIN, plain, strict=True))
    return Backoff(**known, on=tuple(on), give_up_on=tuple(give_up_on))


def _keep(parts: Any) -> Keep:
    return Keep(*parts)


def _dedup(parts: Any) -> Dedup:
    return Dedup(*parts)


_MADE: Final[dict[str, Callable[[Any], Any]]] = {
    "backoff": _backoff,
    "keep_completed": _keep,
    "keep_failed": _keep,
    "dedup": _dedup,
}
_PLAIN: Final = tuple(name for name, _ in _defaults(Backoff))[:-2]  # the fields before its errors
_KNOWN: Final = {name for kind in (NewJob, JobOptions) for name, _ in _defaults(kind)} - {"options"}


def after_waiting(job: NewJob, age: int) -> NewJob:
    """The job after this many ms in the outbox, where its delay and its expiry began to count."""
    if age <= 0 or not (job.delay or job.expires is not None):
        return job
    expires = None if job.expires is None else max(1, job.expires - age)
    return replace(job, delay=max(0, job.delay - age), expires=expires)
