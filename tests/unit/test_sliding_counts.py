"""Figures of the last while."""

from toril.policy.metrics import Durations, SlidingCount


def test_what_is_over_is_not_counted() -> None:
    tally = SlidingCount(60_000)
    for now in range(0, 120_000, 1_000):
        tally.add(now)

    assert 59 <= tally.count(119_000) <= 64, "a twentieth of the window too late at most"
    assert tally.count(300_000) == 0


def test_one_run_in_twenty_is_longer() -> None:
    durations = Durations(60_000)
    for n in range(100):
        durations.add(1_000, n)

    assert durations.p95(1_000, minimum=20) == 94
    assert durations.p95(1_000, minimum=101) is None
    assert durations.p95(61_000, minimum=1) is None
