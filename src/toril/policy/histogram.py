"""Times in buckets that grow by a constant factor, so that histograms of any stretches can be added up. Pure.

Eight buckets an octave: what is read from one is off by at most 4.5 percent.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["ERROR", "Spread", "bucket_of", "merged", "middle_of", "quantile", "spread", "upper_of"]

_OCTAVE: Final = 8  # buckets in which a time doubles
_LAST: Final = 32 * _OCTAVE  # 2^32 ms, 49 days; what takes longer counts as that
_SCALE: Final = _OCTAVE / math.log(2)
ERROR: Final = 2 ** (0.5 / _OCTAVE) - 1  # how far off a value may be, as a share of it


@dataclass(frozen=True, slots=True)
class Spread:
    """How long it took, in seconds, for 50, 95 and 99 percent of `count`; None where there was none."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None


def bucket_of(ms: float) -> int:
    """The bucket of a time; less than a millisecond is the bucket 0."""
    return 0 if ms < 1 else min(math.floor(math.log(ms) * _SCALE), _LAST) + 1


def middle_of(bucket: int) -> float:
    """The time, in ms, that stands for all of a bucket."""
    return 0.0 if bucket <= 0 else float(2 ** ((bucket - 0.5) / _OCTAVE))


def upper_of(bucket: int) -> float:
    """The time, in ms, below which all of a bucket are."""
    return float(2 ** (bucket / _OCTAVE)) if bucket > 0 else 1.0


def merged(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """One histogram of all."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return dict(total)


def quantile(histogram: Mapping[int, int], share: float) -> float | None:
    """The time, in ms, that at least this share did not exceed; None where nothing was counted."""
    count = sum(histogram.values())
    if count == 0:
        return None
    wanted, seen = max(1, math.ceil(share * count)), 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= wanted:
            return middle_of(bucket)
    raise AssertionError(histogram)  # the last bucket has them all


def spread(histogram: Mapping[int, int]) -> Spread:
    return Spread(sum(histogram.values()), *(_seconds(quantile(histogram, share)) for share in (0.5, 0.95, 0.99)))


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else round(ms / 1000, 4)
