"""When to try again, and what became of an attempt. No I/O, no clock; chance is an argument."""

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from toril.errors import InvalidOption, shown
from toril.model import MAX_ATTEMPTS, Backoff, whole
from toril.model.durations import MAX_DELAY, Duration, milliseconds
from toril.policy.classify import ErrorKinds, Table, names_of

__all__ = ["DECORRELATED", "Exponential", "Fixed", "Retry", "Strategy", "Waiting", "delay_before_retry"]

DECORRELATED: Final = "toril:decorrelated"  # the strategy's name on the wire
JITTER_CAP: Final = 30.0  # seconds, where jitter is asked for without a cap


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same delay before every retry.

    Args:
        seconds: How long to wait.
    """

    seconds: Duration

    def __post_init__(self) -> None:
        milliseconds("a backoff", self.seconds)

    def wire(self) -> Backoff:
        return Backoff(kind="fixed", delay=milliseconds("a backoff", self.seconds))


@dataclass(frozen=True, slots=True)
class Exponential:
    """A delay that doubles with every retry: with `Exponential(1)` 1, 2, 4, 8 s.

    Args:
        seconds: The first delay.
        cap: The longest delay; with jitter 30 s if not given.
        jitter: `"full"` draws each delay from zero to that; a number from 0 to 1 leaves that share of it to chance;
            `"decorrelated"` draws it from `seconds` to three times the last one.
    """

    seconds: Duration
    cap: Duration | None = None
    jitter: Literal["full", "decorrelated"] | float | None = None

    def __post_init__(self) -> None:
        milliseconds("a backoff", self.seconds)
        if self.cap is not None:
            milliseconds("a backoff's cap", self.cap)
        known = self.jitter in {"full", "decorrelated"} if isinstance(self.jitter, str) else _is_share(self.jitter)
        if not known:
            raise InvalidOption(f"jitter must be 'full', 'decorrelated' or from 0 to 1, not {shown(self.jitter)}")

    def wire(self) -> Backoff:
        cap = JITTER_CAP if self.cap is None and self.jitter else self.cap
        share = 1.0 if isinstance(self.jitter, str) else self.jitter or 0.0
        return Backoff(
            kind="exponential",
            delay=milliseconds("a backoff", self.seconds),
            cap=None if cap is None else milliseconds("a backoff's cap", cap),
            jitter=share,
            strategy=DECORRELATED if self.jitter == "decorrelated" else None,
        )


def _is_share(jitter: object) -> bool:
    return jitter is None or (isinstance(jitter, int | float) and not isinstance(jitter, bool) and 0 <= jitter <= 1)


@dataclass(frozen=True, slots=True)
class Strategy:
    """A backoff strategy of the app's own.

    Args:
        name: The name under which `app.backoff(name)` declares it.
        otherwise: How long a worker waits that does not know it, as Node's do not.
    """

    name: str
    otherwise: Fixed | Exponential = Exponential(1)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= 64 or not self.name.isprintable():
            raise InvalidOption(f"a strategy's name has from 1 to 64 printable characters, not {shown(self.name)}")
        if not isinstance(self.otherwise, Fixed | Exponential):
            raise InvalidOption(f"a strategy falls back to Fixed(…) or Exponential(…), not {shown(self.otherwise)}")

    def wire(self) -> Backoff:
        return replace(self.otherwise.wire(), strategy=self.name)


Waiting: TypeAlias = Fixed | Exponential | Strategy


@dataclass(frozen=True, slots=True)
class Retry:
    """How a job that fails is tried again.

    Args:
        attempts: How often it is tried in all, the first time included: five attempts have four delays.
        backoff: How long to wait between attempts: `Fixed`, `Exponential` or `Strategy`.
        on: Classes of errors, or their full names: only these, and `TransientError`, are worth another attempt.
        give_up_on: Errors on which the job fails at once. Of two classes that are named, the one nearer to the error
            decides.
    """

    attempts: int = 5
    backoff: Waiting = Exponential(1)
    on: ErrorKinds = ()
    give_up_on: ErrorKinds = ()

    def __post_init__(self) -> None:
        whole("attempts", self.attempts, 1, MAX_ATTEMPTS)
        if not isinstance(self.backoff, Fixed | Exponential | Strategy):
            raise InvalidOption(f"a backoff must be Fixed(…), Exponential(…) or Strategy(…), not {shown(self.backoff)}")
        object.__setattr__(self, "on", names_of("on", self.on))
        object.__setattr__(self, "give_up_on", names_of("give_up_on", self.give_up_on))

    @property
    def table(self) -> Table:
        """Which errors are worth another attempt."""
        return Table(names_of("on", self.on), names_of("give_up_on", self.give_up_on))

    def wire(self) -> Backoff:
        """What a job carries that was given this as its own."""
        table = self.table
        return replace(self.backoff.wire(), on=table.on, give_up_on=table.give_up_on)


def delay_before_retry(backoff: Backoff | None, *, failures: int, previous: int, chance: float) -> int:
    """Milliseconds before the next attempt, after `failures` failed ones; `chance` is from [0, 1)."""
    if backoff is None:
        return 0
    if backoff.strategy == DECORRELATED:
        return _decorrelated(backoff, previous if failures > 1 else backoff.delay, chance)
    doublings = 0 if backoff.kind == "fixed" else min(failures - 1, 40)  # 2^40 ms is beyond the longest delay
    delay = backoff.delay << doublings
    delay = min(delay, MAX_DELAY if backoff.cap is None else backoff.cap)
    return round(delay * (1 - backoff.jitter * chance))


def _decorrelated(backoff: Backoff, previous: int, chance: float) -> int:
    low, high = backoff.delay, 3 * max(previous, backoff.delay)
    return min(round(low + (high - low) * chance), MAX_DELAY if backoff.cap is None else backoff.cap)
