"""Figures that people look at."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toril.errors import InvalidOption
from toril.policy.metrics import RANGES, STEPS, bucketed, check_range, failure_rate


@pytest.mark.covers("R229", "R230")
@given(st.sampled_from(sorted(RANGES)), st.integers(0, 10**6), st.data())
def test_a_series_is_short_and_loses_nothing(name: str, first: int, data: st.DataObject) -> None:
    minutes = check_range(name)
    counts = [0] * minutes
    for at, count in data.draw(st.lists(st.tuples(st.integers(0, minutes - 1), st.integers(0, 1000)), max_size=50)):
        counts[at] += count

    points = bucketed(first, counts, STEPS[name])
    skipped = points[0][0] // 60_000 - first

    assert len(points) <= 240
    assert sum(count for _, count in points) == sum(counts[skipped:])
    assert 0 <= skipped < STEPS[name]
    assert points[0][0] % (STEPS[name] * 60_000) == 0
    steps = {later[0] - earlier[0] for earlier, later in itertools.pairwise(points)}
    assert len(steps) == 1
    assert steps.pop() > 0


@pytest.mark.covers("R229", "R230")
def test_ranges_have_their_points() -> None:
    points = {name: len(bucketed(0, [1] * minutes, STEPS[name])) for name, minutes in RANGES.items()}

    assert points == {"1h": 60, "4h": 240, "12h": 240, "1d": 240, "7d": 240}
    assert bucketed(0, [1] * RANGES["7d"], 42)[1] == (42 * 60_000, 42)


@pytest.mark.covers("R231")
def test_the_failure_rate_has_one_decimal() -> None:
    assert (failure_rate(37, 3), failure_rate(0, 0), failure_rate(2, 1)) == (7.5, 0.0, 33.3)


def test_a_range_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidOption, match="one of 1h, 4h"):
        check_range("2h")
