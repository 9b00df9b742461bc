"""A new job as text, for whoever stores one for later: the request as JSON, without what it leaves to the defaults."""

import json
from dataclasses import asdict, fields, replace
from typing import Any, Final

from toril.errors import TorilError, Undecodable
from toril.model import Backoff, Dedup, Keep, NewJob

__all__ = ["after_waiting", "dump_new_job", "load_new_job"]

_DEFAULTS: Final = {field.name: field.default for field in fields(NewJob) if field.name != "name"}


def dump_new_job(job: NewJob) -> str:
    """The request as text. It is ASCII, and has no character that a database would not take."""
    said = {name: getattr(job, name) for name in ("name", *_DEFAULTS)}
    return json.dumps(
        {
            name: asdict(value) if isinstance(value, Keep | Backoff | Dedup) else value
            for name, value in said.items()
            if name == "name" or value != _DEFAULTS[name]
        }
    )


def load_new_job(text: str) -> NewJob:
    """The job again, checked as if it were new; `Undecodable` for anything else."""
    try:
        said: dict[str, Any] = json.loads(text)
        for name, made in (("keep_completed", Keep), ("keep_failed", Keep), ("dedup", Dedup)):
            if name in said:
                said[name] = made(**said[name])
        if "backoff" in said:
            lists = {name: tuple(said["backoff"].get(name, ())) for name in ("on", "give_up_on")}
            said["backoff"] = Backoff(**{**said["backoff"], **lists})
        return NewJob(**said)
    except (ValueError, TypeError, AttributeError, RecursionError, TorilError) as error:
        raise Undecodable(f"the stored text is no job that this version knows: {error}") from None


def after_waiting(job: NewJob, age: int) -> NewJob:
    """The job after so many ms in the outbox: its delay, and the time in which it has to start, began there."""
    if age <= 0 or not (job.delay or job.expires is not None):
        return job
    expires = None if job.expires is None else max(1, job.expires - age)
    return replace(job, delay=max(0, job.delay - age), expires=expires)
