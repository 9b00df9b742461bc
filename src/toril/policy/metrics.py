"""Histograms, ranges, sums and sliding counts."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from toril.errors import InvalidOption, preview
from toril.model import MetricsWindow, MetricTotals, check_int

__all__ = [
    "ALL_NAMES",
    "AT_ONCE",
    "CANCELLED",
    "ERROR",
    "LEAP",
    "LOST",
    "NAMES",
    "NAME_BYTES",
    "RANGES",
    "RECORDS",
    "RESTS",
    "RETRIES",
    "SIGNALLED",
    "SLICES",
    "STALLS",
    "STEPS",
    "Counted",
    "Durations",
    "Range",
    "SlidingCount",
    "Spread",
    "bucket_of",
    "bucketed",
    "check_range",
    "check_window",
    "failure_rate",
    "merged",
    "middle_of",
    "quantile",
    "sliced",
    "spread",
    "sum_of",
    "totals_of",
    "window_of",
]

Range: TypeAlias = Literal["1h", "4h", "12h", "1d", "7d"]

RANGES: Final[dict[str, int]] = {"1h": 60, "4h": 240, "12h": 720, "1d": 1440, "7d": 10_080}  # minutes
STEPS: Final = {"1h": 1, "4h": 1, "12h": 3, "1d": 6, "7d": 42}  # minutes per point: at most 240 points
LEAP: Final = 60  # minutes that counts may be in the future; beyond that, a clock must have been wrong
SLICES: Final = 240  # slices kept of each length
AT_ONCE: Final = 50  # queues per call
_MINUTES: Final = RANGES["7d"]


def check_range(given: object) -> int:
    """How many minutes a range has."""
    if not isinstance(given, str) or given not in RANGES:
        raise InvalidOption(f"range must be one of {', '.join(RANGES)}, not {preview(given)}")
    return RANGES[given]


def window_of(given: object) -> MetricsWindow:
    """What to read from a store for a range."""
    minutes, step = check_range(given), STEPS[str(given)]
    return MetricsWindow(minutes, step, minutes // step)


def check_window(window: MetricsWindow) -> MetricsWindow:
    """Raise for a window for which a store has no metrics, or too many."""
    check_int("minutes", window.minutes, 1, _MINUTES)
    if window.step not in STEPS.values():
        raise InvalidOption(
            f"slices have {', '.join(map(str, sorted({*STEPS.values()})))} minutes, not {preview(window.step)}"
        )
    check_int("slices", window.slices, 1, SLICES)
    return window


def bucketed(first: int, counts: Sequence[int], step: int) -> tuple[tuple[int, int], ...]:
    """Points `(start in ms, count)` of `step` minutes; `first` is the number of the first minute. Minutes before the
    first whole point are left out."""
    return tuple(
        ((first + start) * 60_000, sum(counts[start : start + step]))
        for start in range(-first % step, len(counts), step)
    )


def failure_rate(completed: int, failed: int) -> float:
    """The percentage of failures among jobs that ended, to one decimal; 0 if none did."""
    ended = completed + failed
    return round(failed / ended * 100, 1) if ended else 0.0


_OCTAVE: Final = 8  # buckets per doubling of a time
_LAST: Final = 32 * _OCTAVE  # 2^32 ms, 49 days; longer times count as this
_SCALE: Final = _OCTAVE / math.log(2)
ERROR: Final = 2 ** (0.5 / _OCTAVE) - 1  # the largest relative error of a value


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of a duration in seconds, over `count` values; `p50` is the median. None if there are no values."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None


@lru_cache(4096)  # the same whole milliseconds recur
def bucket_of(ms: float) -> int:
    """The bucket of a time; less than a millisecond is the bucket 0."""
    return 0 if ms < 1 else min(math.floor(math.log(ms) * _SCALE), _LAST) + 1


def middle_of(bucket: int) -> float:
    """The time, in ms, that represents a bucket."""
    return 0.0 if bucket <= 0 else float(2 ** ((bucket - 0.5) / _OCTAVE))


def merged(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """The sum of these histograms."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return dict(total)


def quantile(histogram: Mapping[int, int], share: float) -> float | None:
    """The time, in ms, that at least this share does not exceed; None if nothing was counted."""
    count = sum(histogram.values())
    if count == 0:
        return None
    wanted, seen = max(1, math.ceil(share * count)), 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= wanted:
            return middle_of(bucket)
    raise AssertionError(histogram)  # the last bucket includes all


def spread(histogram: Mapping[int, int]) -> Spread:
    return Spread(sum(histogram.values()), *(_seconds(quantile(histogram, share)) for share in (0.5, 0.95, 0.99)))


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else round(ms / 1000, 4)


NAMES: Final = 20  # names whose failures are counted separately
ALL_NAMES: Final = 100  # the same in the total
NAME_BYTES: Final = 100  # of such a name

# Counts as stores keep them: `w` and `r` followed by a bucket, `n` followed by a name, `g` followed by the outcome of a
# signal, and the letters below.
Counted: TypeAlias = dict[str, int]
OTHERS: Final = "o"
CANCELLED: Final = "x"
RETRIES: Final = "e"
STALLS: Final = "s"
LOST: Final = "l"
RESTS: Final = "z"
RECORDS: Final = "d"  # rows of durable steps
SIGNALLED: Final = "g"


def totals_of(counted: Mapping[str, int]) -> MetricTotals:
    """Counts, from what a store keeps of them."""
    found: dict[str, dict[str, int]] = {"w": {}, "r": {}, "n": {}, SIGNALLED: {}}
    for field, count in counted.items():
        if len(field) > 1 and field[0] in found:
            found[field[0]][field[1:]] = count
        elif field == "n":  # a job without a name
            found["n"][""] = count
    return MetricTotals(
        waits={int(bucket): count for bucket, count in found["w"].items()},
        runs={int(bucket): count for bucket, count in found["r"].items()},
        failures=found["n"],
        other_failures=counted.get(OTHERS, 0),
        cancelled=counted.get(CANCELLED, 0),
        retries=counted.get(RETRIES, 0),
        stalls=counted.get(STALLS, 0),
        lost=counted.get(LOST, 0),
        rests=counted.get(RESTS, 0),
        steps=counted.get(RECORDS, 0),
        signals=found[SIGNALLED],
    )


def sliced(sum_so_far: Counted, more: Mapping[str, int], names: int = NAMES) -> Counted:
    """The first with the second added to it; names beyond the limit are added to the others."""
    known = sum(field[0] == "n" for field in sum_so_far)
    for field, count in more.items():
        own = field
        if field[0] == "n" and field not in sum_so_far:
            if known >= names or len(field.encode()) > NAME_BYTES + 1:
                own = OTHERS
            else:
                known += 1
        sum_so_far[own] = sum_so_far.get(own, 0) + count
    return sum_so_far


def sum_of(totals: Iterable[MetricTotals]) -> MetricTotals:
    """The sum of these, with the names that failed most."""
    given = list(totals)
    failures, others = _most(each.failures for each in given)
    return MetricTotals(
        waits=merged(each.waits for each in given),
        runs=merged(each.runs for each in given),
        failures=failures,
        other_failures=others + sum(each.other_failures for each in given),
        cancelled=sum(each.cancelled for each in given),
        retries=sum(each.retries for each in given),
        stalls=sum(each.stalls for each in given),
        lost=sum(each.lost for each in given),
        rests=sum(each.rests for each in given),
        steps=sum(each.steps for each in given),
        signals=dict(sum((Counter(each.signals) for each in given), Counter())),
    )


def _most(failures: Iterable[Mapping[str, int]]) -> tuple[dict[str, int], int]:
    """The names that failed most, and how many failures of others are left out."""
    total: Counter[str] = Counter()
    for each in failures:
        total.update(each)
    most = dict(sorted(total.items(), key=lambda item: (-item[1], item[0]))[:NAMES])
    return most, total.total() - sum(most.values())


_SLOTS: Final = 20  # stretches of a window: what is counted leaves it at most a twentieth too late
_SAMPLES: Final = 1_000


class SlidingCount:
    """How often something happened within a sliding window."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._width = max(1, window // _SLOTS)
        self._counts: dict[int, int] = {}

    def add(self, now: int) -> None:
        slot = -(-now // self._width) * self._width
        self._counts[slot] = self._counts.get(slot, 0) + 1
        if len(self._counts) > 2 * _SLOTS:
            self._trim(now)

    def count(self, now: int) -> int:
        self._trim(now)
        return sum(self._counts.values())

    def _trim(self, now: int) -> None:
        self._counts = {slot: count for slot, count in self._counts.items() if slot > now - self._window}


class Durations:
    """The last run times of a window, at most a thousand."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._runs: deque[tuple[int, int]] = deque(maxlen=_SAMPLES)

    def add(self, now: int, ms: int) -> None:
        self._runs.append((now, ms))

    def p95(self, now: int, *, minimum: int) -> int | None:
        """The value that one run in twenty exceeds; None while there are too few."""
        recent = sorted(ms for time, ms in self._runs if time > now - self._window)
        return recent[-(len(recent) // 20) - 1] if len(recent) >= max(minimum, 1) else None
