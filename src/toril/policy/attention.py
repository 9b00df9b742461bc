"""What needs someone's attention, the worst first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from toril.model import CircuitRow, CircuitState, Finding, Severity
from toril.policy.metrics import failure_rate

__all__ = [
    "CircuitOpen",
    "HighFailureRate",
    "Importance",
    "ManyDeadLetters",
    "Need",
    "NoWorker",
    "Paused",
    "QueueFacts",
    "Slow",
    "Stalling",
    "StoreUnwell",
    "importance_of",
    "needs",
    "suspects",
    "trend",
    "usual_rate",
]  # fmt: skip

_UNSERVED: Final = 30.0  # seconds that jobs may wait for a worker to start
_PAUSED: Final = 900.0
_HALF_AN_HOUR: Final = 30
_ENOUGH: Final = 20  # jobs needed for a meaningful rate
_FEW: Final = 5  # jobs needed for a rate above `_ALWAYS`
_FAILING: Final = 5.0  # percent
_UNUSUAL: Final = 3  # times the usual rate
_ALWAYS: Final = 50.0  # percent; too much even if it is usual
_STALLS: Final = 2
_LETTERS: Final = 20
_GROWING: Final = 0.02  # share of the backlog, per minute
_QUIET: Final = 3  # minutes without a failure that separate two series


class Importance(IntEnum):
    """How urgent it is."""

    CRITICAL = 1
    WARNING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """A queue's last hour: `completed` and `failed` per minute, the last minute still under way; times in seconds.
    `growth` is by how many jobs a minute its backlog grows, None if unknown. `free` is how many slots its workers have
    left, `paused_since` (ms) when it was paused, if known."""

    name: str
    waiting: int
    running: int
    free: int
    workers: int
    paused: bool
    completed: Sequence[int]
    failed: Sequence[int]
    wait_p95: float | None
    oldest: float | None
    target: float
    stalls: int
    growth: float | None = None
    paused_since: int | None = None
    paused_by: str | None = None


@dataclass(frozen=True, slots=True)
class NoWorker:
    """Jobs are waiting, but there is no worker to run them."""

    queue: str
    since: int
    waiting: int
    growth: float | None


@dataclass(frozen=True, slots=True)
class HighFailureRate:
    """Far more jobs fail than usual, or more than half of them, in percent over the last half hour. `usual` is None if
    no job ended in the week before."""

    queue: str
    since: int
    rate: float
    usual: float | None
    failed: int


@dataclass(frozen=True, slots=True)
class CircuitOpen:
    """Jobs of a key are deferred."""

    key: str
    since: int
    till: int


@dataclass(frozen=True, slots=True)
class StoreUnwell:
    """The store may lose jobs, or is slow."""

    since: None
    finding: Finding


@dataclass(frozen=True, slots=True)
class Slow:
    """Jobs wait longer than they should, in seconds."""

    queue: str
    since: int
    wait: float
    target: float
    busy: bool
    growth: float | None


@dataclass(frozen=True, slots=True)
class Stalling:
    """Workers died, or lost jobs, in the last hour."""

    queue: str
    since: None
    stalls: int


@dataclass(frozen=True, slots=True)
class ManyDeadLetters:
    """Many jobs failed for good."""

    since: None
    letters: int


@dataclass(frozen=True, slots=True)
class Paused:
    """A queue is paused while jobs wait, which may have been forgotten."""

    queue: str
    since: int
    waiting: int
    by: str | None


Need: TypeAlias = NoWorker | HighFailureRate | CircuitOpen | StoreUnwell | Slow | Stalling | ManyDeadLetters | Paused
_ORDER: Final = (NoWorker, HighFailureRate, StoreUnwell, CircuitOpen, Slow, Stalling, ManyDeadLetters, Paused)


def importance_of(need: Need) -> Importance:
    """Whether it is critical, or a warning."""
    match need:
        case NoWorker() | HighFailureRate() | CircuitOpen():
            return Importance.CRITICAL
        case StoreUnwell(finding=finding) if finding.severity is Severity.ERROR:
            return Importance.CRITICAL
        case _:
            return Importance.WARNING


def needs(
    queues: Sequence[QueueFacts],
    *,
    now: int,
    usual: Mapping[str, float | None],
    circuits: Sequence[CircuitRow] = (),
    findings: Sequence[Finding] = (),
    letters: int = 0,
) -> list[Need]:
    """Everything that needs attention at `now` (ms): critical first, then by kind, then the oldest first. `usual` has
    the week's failure rate for each of `suspects(queues)`; `letters` is the number of dead letters in the last hour."""
    found: list[Need] = [CircuitOpen(each.key, each.since, each.till) for each in circuits if _is_open(each)]
    found += [StoreUnwell(None, finding) for finding in findings if finding.severity is not Severity.NOTICE]
    for queue in queues:
        found += [
            need
            for need in (
                _unserved(queue, now),
                _failing(queue, now, usual),
                _slow(queue, now),
                _stalling(queue),
                _paused(queue, now),
            )
            if need is not None
        ]
    if letters >= _LETTERS:
        found.append(ManyDeadLetters(None, letters))
    return sorted(found, key=lambda need: (importance_of(need), _ORDER.index(type(need)), need.since or now))


def suspects(queues: Sequence[QueueFacts]) -> list[str]:
    """The queues that fail too much; whether that is unusual is decided later."""
    return [queue.name for queue in queues if _rate(queue) is not None]


def usual_rate(queue: QueueFacts, completed: int, failed: int) -> float | None:
    """The failure rate of a week with this many ended jobs, without the last half hour, so that a current problem does
    not look usual. None if no job ended before."""
    good = max(0, completed - sum(queue.completed[-_HALF_AN_HOUR:]))
    bad = max(0, failed - sum(queue.failed[-_HALF_AN_HOUR:]))
    return failure_rate(good, bad) if good + bad else None


def trend(waiting: int, growth: float | None) -> int:
    """Whether a backlog grows (1) or shrinks (-1) by more than 2% a minute."""
    if growth is None or abs(growth) <= max(1.0, waiting * _GROWING):
        return 0
    return 1 if growth > 0 else -1


def _is_open(circuit: CircuitRow) -> bool:
    return circuit.state is CircuitState.OPEN


def _unserved(queue: QueueFacts, now: int) -> NoWorker | None:
    waited = queue.oldest if queue.oldest is not None else _UNSERVED
    if queue.workers or queue.paused or not queue.waiting or waited < _UNSERVED:
        return None
    return NoWorker(queue.name, now - round(waited * 1000), queue.waiting, queue.growth)


def _rate(queue: QueueFacts) -> float | None:
    """The failure rate of the last half hour, if it is too high."""
    good, bad = sum(queue.completed[-_HALF_AN_HOUR:]), sum(queue.failed[-_HALF_AN_HOUR:])
    rate = failure_rate(good, bad)
    if good + bad >= _ENOUGH:
        return rate if rate > _FAILING else None
    return rate if good + bad >= _FEW and rate > _ALWAYS else None


def _failing(queue: QueueFacts, now: int, usual: Mapping[str, float | None]) -> HighFailureRate | None:
    rate, week = _rate(queue), usual.get(queue.name)
    if rate is None or (week is not None and rate < _UNUSUAL * week and rate <= _ALWAYS):
        return None
    bad = queue.failed[-_HALF_AN_HOUR:]
    return HighFailureRate(queue.name, _began(bad, now), rate, week, sum(bad))


def _began(failed: Sequence[int], now: int) -> int:
    """The minute in which the latest series of failures began, whether it continues or is over."""
    first = quiet = 0
    seen = False
    for back, count in enumerate(reversed(failed)):
        if count:
            first, quiet, seen = back, 0, True
        elif seen:
            quiet += 1
            if quiet > _QUIET:
                break
    return now // 60_000 * 60_000 - first * 60_000


def _slow(queue: QueueFacts, now: int) -> Slow | None:
    if queue.paused or not queue.workers or not queue.waiting or queue.oldest is None:
        return None
    waited = max(queue.wait_p95 or 0.0, queue.oldest)
    if waited <= queue.target:
        return None
    since = now - round(max(0.0, queue.oldest - queue.target) * 1000)
    return Slow(queue.name, since, waited, queue.target, queue.free <= 0, queue.growth)


def _stalling(queue: QueueFacts) -> Stalling | None:
    return Stalling(queue.name, None, queue.stalls) if queue.stalls >= _STALLS else None


def _paused(queue: QueueFacts, now: int) -> Paused | None:
    if not queue.paused or not queue.waiting:
        return None
    waited = now - round((queue.oldest or 0.0) * 1000)
    since = queue.paused_since if queue.paused_since is not None else waited
    return Paused(queue.name, since, queue.waiting, queue.paused_by) if now - since >= _PAUSED * 1000 else None
