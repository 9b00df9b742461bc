"""Times in buckets."""

import math

from hypothesis import given
from hypothesis import strategies as st

from toril.model import MetricTotals
from toril.policy.metrics import (
    ERROR,
    NAMES,
    Counted,
    bucket_of,
    merged,
    middle_of,
    quantile,
    sliced,
    spread,
    sum_of,
    totals_of,
)

TIMES = st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=200)
COUNTED = st.dictionaries(
    st.one_of(
        st.integers(0, 257).map(lambda bucket: f"w{bucket}"),
        st.integers(0, 257).map(lambda bucket: f"r{bucket}"),
        st.text(max_size=3).map(lambda name: f"n{name}"),
        st.sampled_from(["o", "e", "s", "l"]),
    ),
    st.integers(1, 1000),
    max_size=60,
)


def histogram(times: list[int]) -> dict[int, int]:
    return merged({bucket_of(ms): 1} for ms in times)


@given(TIMES, st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_off_by_less_than_the_bound(times: list[int], share: float) -> None:
    true = sorted(times)[max(1, math.ceil(share * len(times))) - 1]

    found = quantile(histogram(times), share)

    assert found is not None
    assert abs(found - true) <= true * (ERROR + 1e-9)
    assert ERROR < 0.045


@given(TIMES, TIMES)
def test_histograms_of_parts_add_up_to_that_of_the_whole(first: list[int], second: list[int]) -> None:
    assert merged([histogram(first), histogram(second)]) == histogram(first + second)


@given(st.integers(1, 2**40))
def test_a_time_lies_within_its_bucket(ms: int) -> None:
    bucket = bucket_of(ms)

    assert bucket_of(max(1, ms - 1)) <= bucket <= 257
    if ms < 2**32:
        assert abs(middle_of(bucket) - ms) <= ms * ERROR * (1 + 1e-9)


def test_what_took_no_time_took_none() -> None:
    assert (bucket_of(0), bucket_of(-5), middle_of(0)) == (0, 0, 0.0)
    assert (spread({}).p95, spread({}).count, spread({0: 3}).p99) == (None, 0, 0.0)


@given(st.lists(COUNTED, max_size=5))
def test_tallies_add_up_however_they_are_added(parts: list[Counted]) -> None:
    together: Counted = {}
    for part in parts:
        sliced(together, part)

    one, other = totals_of(together), sum_of(map(totals_of, parts))

    assert (one.waits, one.runs, one.stalls, one.retries) == (other.waits, other.runs, other.stalls, other.retries)
    assert _failures(one) == _failures(other)
    assert len(one.failures) <= NAMES
    assert len(other.failures) <= NAMES


def _failures(tally: MetricTotals) -> int:
    return sum(tally.failures.values()) + tally.other_failures
