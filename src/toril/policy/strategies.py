"""Backoff strategies of an app's own, by their names."""

from collections.abc import Callable, Container
from typing import Any, Final, TypeAlias

from toril.errors import InvalidOption, TransientError, shown
from toril.model import Backoff
from toril.model.durations import Duration
from toril.policy.retry import DECORRELATED

__all__ = ["BUILT_IN", "BackoffStrategy", "check_known", "check_strategy", "respect_retry_after", "seconds_asked"]

# From how many attempts have failed, with what error, and the job, to the seconds until the next attempt.
BackoffStrategy: TypeAlias = Callable[[int, BaseException, Any], Duration]

_LONGEST: Final = 30.0
_FIRST: Final = 2.0


def respect_retry_after(attempts: int, error: BaseException, _job: Any) -> Duration:
    """What the error asks for, else 2 s doubled with each failed attempt, 30 s at most."""
    asked = seconds_asked(error)
    return min(_LONGEST, _FIRST * 2 ** min(attempts, 10)) if asked is None else asked


def seconds_asked(error: BaseException) -> Duration | None:
    """The `retry_after` of an error, if it has one; of other libraries' errors too, where it is a number."""
    if isinstance(error, TransientError):
        return error.retry_after
    asked = getattr(error, "retry_after", None)
    return asked if isinstance(asked, int | float) and not isinstance(asked, bool) else None


BUILT_IN: Final[dict[str, BackoffStrategy]] = {"respect-retry-after": respect_retry_after}


def check_strategy(name: object, fn: object) -> None:
    """Refuse what could not be called, or called for."""
    if not isinstance(name, str) or not 1 <= len(name) <= 64 or not name.isprintable() or name.startswith("toril:"):
        raise InvalidOption(f"a strategy's name has from 1 to 64 printable characters, not {shown(name)}")
    if not callable(fn):
        raise TypeError(f"a backoff strategy is a function (attempts, error, job) -> seconds, not {shown(fn)}")


def check_known(backoff: Backoff, strategies: Container[str]) -> Backoff:
    """A name that no worker of this app knows is refused where someone can mend it."""
    name = backoff.strategy
    if name is not None and name != DECORRELATED and name not in strategies:
        raise InvalidOption(
            f"there is no backoff strategy {shown(name)}; declare it with @app.backoff({shown(name)}) first"
        )
    return backoff
