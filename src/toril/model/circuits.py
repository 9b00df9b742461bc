"""Circuit breakers: states, samples and answers."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from toril.errors import InvalidOption, preview
from toril.model.durations import MAX_DELAY
from toril.model.jobs import check_int


class CircuitState(StrEnum):
    """Whether jobs of a key may run: all (closed), none (open), or a few as a test (half-open)."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitTerms:
    """When a circuit opens, and for how long. With `rate`, that share of at least `minimum` runs decides, otherwise a
    number of failures; both over a sliding window."""

    failures: int = 5
    window: int = 300_000
    pause: int = 60_000
    probes: int = 2
    rate: float | None = None
    minimum: int = 10

    def __post_init__(self) -> None:
        check_int("a breaker's failures", self.failures, 1, 100_000)
        check_int("a breaker's window", self.window, 1_000, MAX_DELAY)
        check_int("a breaker's pause", self.pause, 100, MAX_DELAY)
        check_int("a breaker's probes", self.probes, 1, 1_000)
        check_int("a breaker's minimum", self.minimum, 1, 100_000)
        if self.rate is not None and not (type(self.rate) in (int, float) and 0 < self.rate <= 1):
            raise InvalidOption(f"a breaker's rate must be above 0 and at most 1, not {preview(self.rate)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitRow:
    """The state of one key. `till` is until when it is open or, if it is half-open, when a probe was last heard of.
    `slots` counts runs and failures by parts of the window, `probes` are the jobs that are trying it now, each with the
    end of its lease, and `passed` is how many of them succeeded."""

    key: str
    state: CircuitState = CircuitState.CLOSED
    till: int = 0
    since: int = 0
    slots: tuple[tuple[int, int, int], ...] = ()
    probes: tuple[tuple[str, int], ...] = ()
    passed: int = 0
    terms: CircuitTerms = field(default_factory=CircuitTerms)

    @property
    def runs(self) -> int:
        """How many runs are counted in its window; without a rate, only failed ones."""
        return sum(ran for _, ran, _ in self.slots)

    @property
    def failures(self) -> int:
        """How many of these failed."""
        return sum(bad for _, _, bad in self.slots)


class CircuitSample(StrEnum):
    """The outcome of a run, for its circuit."""

    GOOD = "good"
    BAD = "bad"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Admitted:
    """The job may run, perhaps as a probe. `news` is the state to which this question changed the circuit."""

    news: CircuitState | None = None
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Deferred:
    """The job may not run before `wait` ms have passed."""

    wait: int


Admission: TypeAlias = Admitted | Deferred
