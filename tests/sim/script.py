"""What the simulated jobs do. A job carries its script as its data, so that whoever runs it plays the same part."""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from toril.client.options import AddOptions
from toril.model import Claimed, Completed, Failed, Failure, Outcome, Released, Retried, Snoozed
from toril.policy.retry import Exponential, Fixed

__all__ = [
    "HANDLER",
    "QUEUE",
    "Kind",
    "Order",
    "Script",
    "draw_order",
    "draw_weights",
    "fence_of",
    "outcome_of",
    "script_from",
    "script_of",
]


QUEUE: Final = "q"
HANDLER: Final = "play"  # one for all: to look at a handler's types takes longer than to run it


class Kind(StrEnum):
    """Parts that a job can play."""

    QUICK = "quick"
    LONG = "long"  # outlasts its lease and has to be renewed; reports on the way
    FLAKY = "flaky"  # fails some times, then succeeds
    HOPELESS = "hopeless"  # fails until no attempt is left
    FATAL = "fatal"  # fails for good at once
    SNOOZES = "snoozes"  # asks to run later, some times
    WAITS = "waits"  # fails and says when it may be tried again
    GIVEN_BACK = "given back"  # is released, some times; only by hand
    SLEEPER = "sleeper"  # would sleep past its timeout
    DEAF = "deaf"  # does that, and hears nothing until it is through
    BLOCKS = "blocks"  # computes for longer than a lease and lets nothing else run
    MARATHON = "marathon"  # runs on and on, unless it is told to stop
    UNKNOWN = "unknown"  # has no handler
    SCARE = "scare"  # brings its process down, once
    POISON = "poison"  # brings its process down whenever it runs


_WEIGHTS: Final = {
    Kind.QUICK: 8, Kind.LONG: 3, Kind.FLAKY: 4, Kind.HOPELESS: 1, Kind.FATAL: 1, Kind.SNOOZES: 2, Kind.WAITS: 1,
    Kind.SLEEPER: 1, Kind.DEAF: 0.5, Kind.BLOCKS: 0.7, Kind.MARATHON: 0.7, Kind.UNKNOWN: 0.3, Kind.SCARE: 1,
    Kind.POISON: 0.7,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One job's part. `nonce` names this one add of it: no other add, not even of the same id, has it."""

    nonce: str
    kind: Kind
    ms: int
    times: int = 0
    delay: int = 0
    timeout: int | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """What its producer passes as the job's data."""
        return {**asdict(self), "kind": self.kind.value}

    @property
    def data(self) -> str:
        return json.dumps(self.fields)

    @property
    def name(self) -> str:
        """The job's name."""
        return "nobody" if self.kind is Kind.UNKNOWN else HANDLER

    @property
    def deadly(self) -> bool:
        return self.kind in {Kind.SCARE, Kind.POISON}

    @property
    def polite(self) -> bool:
        """Whether it looks for itself if it should stop."""
        return self.times == 2


def script_of(data: str) -> Script:
    return script_from(json.loads(data))


def script_from(fields: Mapping[str, Any]) -> Script:
    return Script(**{**fields, "kind": Kind(fields["kind"])})


def outcome_of(script: Script, job: Claimed) -> Outcome:
    """How this run of the job ends, for those who play a worker by hand. Whatever has words names its fence."""
    failure = Failure(f"{script.kind} by its script at fence {job.fence}")
    match script.kind:
        case Kind.FATAL:
            return Failed(failure)
        case Kind.FLAKY if job.attempts_made < script.times:
            return Retried(failure, script.delay)
        case Kind.HOPELESS:
            last = job.attempts_made + 1 >= job.max_attempts
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
            said = re.search(r"at fence (\d+)", failure.reason)
            return int(said[1]) if said else None
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Order:
    """A job to add: what `Queue.new` takes."""

    script: Script
    options: AddOptions


def draw_weights(chance: random.Random) -> dict[Kind, float]:
    """How many jobs of which kind a seed has. Some have none of a kind, some have hardly anything else."""
    weights = {kind: weight * chance.choice((0, 1, 1, 1, 6)) for kind, weight in _WEIGHTS.items()}
    weights[Kind.QUICK] += 1
    return weights


def draw_order(
    chance: random.Random, nonce: str, weights: Mapping[Kind, float], *, lease: int, job_id: str | None
) -> Order:
    """A job of some kind, with some options."""
    (kind,) = chance.choices(list(weights), list(weights.values()))
    times = chance.randint(1, 3)
    timeout = chance.randint(200, 1500) if kind in {Kind.SLEEPER, Kind.DEAF} else None
    delay = chance.choice((0, 50, 700))
    script = Script(
        nonce=nonce, kind=kind, ms=_length(chance, kind, lease, timeout or 0), times=times, delay=delay, timeout=timeout
    )  # fmt: skip
    options: AddOptions = {
        "delay": chance.choice((0, 0, 0, chance.uniform(0.001, 1.5), chance.uniform(1, 40))),
        "priority": chance.choice((0, 0, 0, chance.randint(1, 3))),
        "lifo": chance.random() < 0.1,
        "attempts": times + 1 if kind in {Kind.FLAKY, Kind.HOPELESS, Kind.WAITS} else chance.randint(1, 3),
        "backoff": chance.choice((Fixed(delay / 1000), Exponential(delay / 1000))),
        "keep_completed": chance.random() < 0.5,
        "keep_failed": chance.random() < 0.5,
    }
    if job_id is not None:
        options["job_id"] = job_id
    if timeout is not None:
        options["timeout"] = timeout / 1000
    return Order(script, options)


def _length(chance: random.Random, kind: Kind, lease: int, timeout: int) -> int:
    """Milliseconds that one run takes, if it is left alone."""
    match kind:
        case Kind.LONG | Kind.BLOCKS:
            return chance.randint(lease, lease * 3)
        case Kind.SLEEPER | Kind.DEAF:
            return timeout + chance.randint(8_000, 15_000)
        case Kind.MARATHON:
            return 2 * lease + chance.randint(12_000, 40_000)
        case _:
            return chance.randint(0, 120)
