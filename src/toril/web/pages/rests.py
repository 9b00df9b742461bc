"""What a job rests for, in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toril.codec.steps import load_rest
from toril.model import JobRow, RestReason, RestRow, SignalWait, StepKind

__all__ = ["RestView", "rest_of", "signal_words"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestView:
    """Why a job rests: `words` say it, without the time; `until` is when that ends, if it does by itself."""

    words: str
    since: int
    until: int | None
    reasons: Sequence[RestReason]

    @property
    def keys(self) -> frozenset[str]:
        """The steps that it rests for."""
        return frozenset(each.key for each in self.reasons)

    @property
    def signals(self) -> tuple[SignalWait, ...]:
        """The signals of which any one ends the rest."""
        return tuple(dict.fromkeys(signal for each in self.reasons for signal in each.signals))

    def signals_of(self, key: str) -> tuple[SignalWait, ...]:
        """The signals that one step waits for."""
        return next((each.signals for each in self.reasons if each.key == key), ())


def rest_of(row: JobRow) -> RestView | None:
    """What the job rests for; None if it does not rest for steps."""
    rest = load_rest(row.rest)
    if rest is None or not rest.reasons:
        return None
    until = min((each.until for each in rest.reasons if each.until is not None), default=None)
    return RestView(words=_words(rest), since=rest.since, until=until, reasons=rest.reasons)


def signal_words(signals: Sequence[SignalWait]) -> str:
    """`approval`, or `paid (invoice:7)` with a key."""
    return " or ".join(each.name if each.key is None else f"{each.name} ({each.key})" for each in signals)


_MOST: Final = 3  # reasons to name


def _words(rest: RestRow) -> str:
    named = [_reason(each) for each in rest.reasons[:_MOST]]
    more = len(rest.reasons) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _reason(reason: RestReason) -> str:
    match reason.kind:
        case StepKind.SLEEP:
            return f"sleeping ({reason.key})"
        case StepKind.RETRY:
            return f"waiting to retry {reason.key}"
        case StepKind.CALLED:
            return f"waiting for called jobs ({reason.key})"
        case _:
            return f"waiting for {signal_words(reason.signals)}"
