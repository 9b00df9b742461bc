"""What the simulated jobs do. A job carries its script as its data, so that whoever runs it plays the same part."""

import json
import random
from dataclasses import asdict, dataclass
from enum import StrEnum

from toril.model import (
    KEEP_ALL,
    REMOVE,
    Claimed,
    Completed,
    Failed,
    Failure,
    NewJob,
    Outcome,
    Released,
    Retried,
    Snoozed,
)

__all__ = ["Kind", "Script", "draw_job", "fence_of", "outcome_of", "script_of"]


class Kind(StrEnum):
    """Parts that a job can play."""

    QUICK = "quick"
    LONG = "long"  # outlasts its lease and has to be renewed
    FLAKY = "flaky"  # fails some times, then succeeds
    HOPELESS = "hopeless"  # uses up all its attempts
    FATAL = "fatal"  # fails for good at once
    SNOOZES = "snoozes"
    GIVEN_BACK = "given back"
    SCARE = "scare"  # brings its process down, the first time only
    POISON = "poison"  # brings its process down whenever it runs


_WEIGHTS = {
    Kind.QUICK: 8, Kind.LONG: 2, Kind.FLAKY: 4, Kind.HOPELESS: 1, Kind.FATAL: 1, Kind.SNOOZES: 2, Kind.GIVEN_BACK: 2,
    Kind.SCARE: 1, Kind.POISON: 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One job's part. `nonce` names this one add of it: no other add, not even of the same id, has it."""

    nonce: str
    kind: Kind
    ms: int
    times: int = 0
    delay: int = 0

    @property
    def data(self) -> str:
        return json.dumps(asdict(self))

    @property
    def deadly(self) -> bool:
        return self.kind in {Kind.SCARE, Kind.POISON}


def script_of(data: str) -> Script:
    fields = json.loads(data)
    fields["kind"] = Kind(fields["kind"])
    return Script(**fields)


def outcome_of(script: Script, job: Claimed) -> Outcome:
    """How this run of the job ends. Whatever has words says by which fence it was written."""
    failure = Failure(f"{script.kind} by its script", kind=str(job.fence))
    match script.kind:
        case Kind.FATAL:
            return Failed(failure)
        case Kind.FLAKY if job.attempts_made < script.times:
            return Retried(failure, script.delay)
        case Kind.HOPELESS:
            last = job.attempts_made + 1 >= job.attempts
            return Failed(failure) if last else Retried(failure, script.delay)
        case Kind.SNOOZES if job.starts <= script.times:
            return Snoozed(script.delay)
        case Kind.GIVEN_BACK if job.starts <= script.times:
            return Released()
        case _:
            return Completed(str(job.fence))


def fence_of(outcome: Outcome) -> int | None:
    """The fence under which an outcome was reached, where it says so."""
    match outcome:
        case Completed(result):
            return int(result)
        case Failed(failure) | Retried(failure, _):
            return int(failure.kind)
        case _:
            return None


def draw_job(chance: random.Random, nonce: str, *, lease: int, job_id: str | None) -> NewJob:
    """A job of some kind, with some options."""
    (kind,) = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
    times = chance.randint(1, 3)
    script = Script(
        nonce=nonce,
        kind=kind,
        ms=chance.randint(lease, lease * 3) if kind is Kind.LONG else chance.randint(0, 120),
        times=times,
        delay=chance.choice((0, 50, 700)),
    )
    return NewJob(
        name=kind.value,
        data=script.data,
        id=job_id,
        delay=chance.choice((0, 0, 0, chance.randint(1, 1500))),
        priority=chance.choice((0, 0, 0, chance.randint(1, 3))),
        lifo=chance.random() < 0.1,
        attempts=times + 1 if kind in {Kind.FLAKY, Kind.HOPELESS} else chance.randint(1, 3),
        keep_completed=chance.choice((REMOVE, KEEP_ALL)),
        keep_failed=chance.choice((REMOVE, KEEP_ALL)),
    )
