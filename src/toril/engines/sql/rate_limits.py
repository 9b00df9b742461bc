"""Computes how many starts a rate limit still allows."""

from typing import Final

from toril.model import RateLimit, per_ms

__all__ = ["slot"]

_EXACT: Final = 1_000
_SLOTS: Final = 100


def slot(limit: RateLimit, now: int, exact: int = _EXACT) -> int:
    """The time under which a start at `now` is counted in a sliding window.

    Small limits, up to `exact`, are counted to the millisecond. Large ones in a hundredth of the window, rounded up:
    a start then counts for up to 1 % longer than the window, so the limit is never exceeded and at least 99 % of it
    can be used.
    """
    if limit.max <= exact:
        return now
    width = max(1, per_ms(limit) // _SLOTS)
    return -(-now // width) * width
