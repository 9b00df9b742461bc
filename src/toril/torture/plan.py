"""What a seed stands for: the settings, jobs and faults of a torture run."""

import json
import math
import os
import random
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

__all__ = [
    "DISK",
    "LINK",
    "MUTE",
    "SERVER",
    "VARIABLE",
    "FaultType",
    "JobKind",
    "PlannedFault",
    "PlannedJob",
    "RunSettings",
    "draw",
    "order_of",
]


class JobKind(StrEnum):
    """Kinds of jobs."""

    PLAIN = "plain"
    RETRIES = "retries"  # fails once or twice, then completes
    FAILS = "doomed"  # fails for good, and is kept
    DELAYED = "delayed"
    LONG = "long"  # longer than its lease
    FLOW = "flow"  # waits for children in another queue
    DEDUP = "dedup"  # one at a time per key
    GROUPED = "grouped"  # one at a time per group, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """One job, or flow, that a producer adds. Times are milliseconds."""

    number: int
    kind: JobKind
    ms: int
    named: bool  # the producer chooses its id, and repeats the add until it is acknowledged
    fails: int = 0
    delay: int = 0
    children: int = 0
    key: str | None = None

    @property
    def nonce(self) -> str:
        return f"n{self.number}"

    @property
    def nonces(self) -> list[str]:
        """Its own, and those of its children."""
        return [self.nonce, *(f"{self.nonce}.{child}" for child in range(self.children))]


_MIX = {
    JobKind.PLAIN: 50, JobKind.RETRIES: 10, JobKind.FAILS: 3, JobKind.DELAYED: 10, JobKind.LONG: 0.3,
    JobKind.FLOW: 7, JobKind.DEDUP: 8, JobKind.GROUPED: 12,
}  # fmt: skip


def order_of(seed: int, number: int, *, lease: int) -> PlannedJob:
    """The same jobs for the same seed, in every process."""
    chance = random.Random(f"{seed} order {number}")  # noqa: S311 - a plan, no secret
    kind = chance.choices(list(_MIX), list(_MIX.values()))[0]
    return PlannedJob(
        number=number,
        kind=kind,
        ms=int(lease * 1.5) if kind is JobKind.LONG else chance.choice((0, 5, 20, 100, 400)),
        named=chance.random() < 0.5,
        fails=chance.choice((1, 1, 2)) if kind is JobKind.RETRIES else 0,
        delay=chance.randrange(50, 3000) if kind is JobKind.DELAYED else 0,
        children=chance.choice((1, 2, 3)) if kind is JobKind.FLOW else 0,
        key=f"k{chance.randrange(12)}" if kind in {JobKind.DEDUP, JobKind.GROUPED} else None,
    )


class FaultType(StrEnum):
    """Kinds of faults."""

    KILL = "kill -9 of a worker"
    FREEZE = "SIGSTOP of a worker"
    TERM = "SIGTERM of a worker"
    TERM_GROUP = "SIGTERM of a worker's process group"
    INTERRUPT_GROUP = "SIGINT of a worker's process group"
    KILL_SUPERVISOR = "kill -9 of a supervisor"
    FREEZE_SUPERVISOR = "SIGSTOP of a supervisor"
    KILL_PRODUCER = "kill -9 of a producer"
    FREEZE_ALL = "SIGSTOP of all processes"
    CUT = "connections reset"
    CUT_REPLIES = "replies lost, then connections reset"
    DELAY = "slow network"
    BLACKHOLE = "silent network"
    DEAF = "one-way network"
    KILL_SERVER = "kill -9 of the server"
    FREEZE_SERVER = "SIGSTOP of the server"
    FLUSH_SCRIPTS = "SCRIPT FLUSH"
    KILL_CLIENTS = "CLIENT KILL"
    FILL_DISK = "disk full"
    CUT_POWER = "power cut"


LINK = frozenset({FaultType.CUT, FaultType.CUT_REPLIES, FaultType.DELAY, FaultType.BLACKHOLE, FaultType.DEAF})
MUTE = frozenset({FaultType.BLACKHOLE, FaultType.DEAF})  # no answer arrives for as long as they last
SERVER = frozenset({FaultType.KILL_SERVER, FaultType.FREEZE_SERVER, FaultType.FLUSH_SCRIPTS, FaultType.KILL_CLIENTS})
DISK = frozenset({FaultType.FILL_DISK, FaultType.CUT_POWER})

# Relative frequency, and the shortest and longest duration in seconds; 0 for instantaneous faults.
_TABLE: dict[FaultType, tuple[float, float, float]] = {
    FaultType.KILL: (10, 0, 0), FaultType.FREEZE: (4, 0.3, 5.0), FaultType.TERM: (2, 0, 0),
    FaultType.KILL_PRODUCER: (2, 0, 0),
    FaultType.FREEZE_ALL: (0.7, 0.5, 4.0), FaultType.CUT: (4, 0, 0), FaultType.CUT_REPLIES: (4, 0, 0),
    FaultType.DELAY: (2, 0.5, 3.0), FaultType.BLACKHOLE: (2, 0.5, 4.0), FaultType.DEAF: (2, 0.5, 3.0),
    FaultType.KILL_SERVER: (2, 0.05, 0.8), FaultType.FREEZE_SERVER: (1, 0.2, 2.0), FaultType.FLUSH_SCRIPTS: (1, 0, 0),
    FaultType.KILL_CLIENTS: (1, 0, 0), FaultType.FILL_DISK: (1, 0.5, 2.0),
    FaultType.CUT_POWER: (2, 0, 0), FaultType.TERM_GROUP: (1, 0, 0), FaultType.INTERRUPT_GROUP: (1, 0, 0),
    FaultType.KILL_SUPERVISOR: (1.5, 0, 0), FaultType.FREEZE_SUPERVISOR: (1.5, 0.3, 5.0),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """`at` and `seconds` are seconds; `target` in [0, 1) selects the process."""

    at: float
    kind: FaultType
    target: float
    seconds: float

    def of(self, count: int) -> int:
        """The index of the target among this many."""
        return int(self.target * count)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def draw(seed: int, seconds: float, possible: AbstractSet[FaultType], *, every: float = 0.8) -> list[PlannedFault]:
    """One fault every `every` seconds, on average. Each seed has its favourites, so that seeds differ."""
    chance = random.Random(f"{seed} blows")  # noqa: S311 - no secret; another word, and seeds would stand for other plans
    favour = {kind: chance.choice((0.3, 1, 1, 3)) for kind in FaultType}
    faults: list[PlannedFault] = []
    at = min(1.0, seconds / 4)
    while True:
        at += chance.expovariate(1 / every)
        kinds = list(FaultType)
        kind = chance.choices(kinds, [_TABLE[each][0] * favour[each] for each in kinds])[0]
        target, share = chance.random(), chance.random()
        if at >= seconds:
            return faults
        if kind in possible:
            _, least, most = _TABLE[kind]
            target = math.floor(target * 10_000) / 10_000  # rounded up, it could be 1, which is no worker
            faults.append(PlannedFault(round(at, 3), kind, target, round(least + share * (most - least), 3)))


VARIABLE: Final = "TORIL_TORTURE"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """A run as one of its processes sees it. Times are seconds."""

    url: str = "memory://"
    tag: str = "none"
    seed: int = 0
    jobs: int = 0
    seconds: float = 1.0
    lease: float = 2.0
    grace: float = 10.0
    folder: str = ""
    name: str = "none"
    producers: int = 1
    lane: int = 0
    concurrency: int = 8

    @property
    def logs(self) -> Path:
        return Path(self.folder)

    @property
    def log(self) -> Path:
        """Where this process writes its log."""
        return self.logs / f"{self.name}.log" if self.folder else Path(os.devnull)

    @property
    def prefix(self) -> str:
        """The prefix of the run's keys, on Redis."""
        return f"torture-{self.tag}"

    def environment(self) -> dict[str, str]:
        return os.environ | {VARIABLE: json.dumps(asdict(self)), "TORIL_NO_HTTP": "1"}

    @classmethod
    def here(cls) -> "RunSettings":
        """The settings that the parent has passed to this process."""
        return cls(**json.loads(os.environ.get(VARIABLE, "{}")))
