"""When schedules run: pure functions of the schedule and the time."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from toril.errors import InvalidOption
from toril.model import CatchUp, NewJob, Overlap, Schedule, ScheduleRow, run_id, scheduled_run
from toril.policy.schedules import RunDecision, after, check_cron, decide_run, first, following, shift, upcoming

NOW = 1_800_000_000_000  # 2027-01-15 08:00:00 UTC, a Friday
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
ZONES = (
    "Europe/Berlin", "America/New_York", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Chatham", "Africa/Cairo",
    "America/Santiago", "Asia/Beirut", "Atlantic/Azores", "Pacific/Easter",
)  # fmt: skip


def made(**options: object) -> Schedule:
    given: dict[str, object] = {"id": "s", "job": NewJob(name="n"), **options}
    return Schedule(**given)  # type: ignore[arg-type]


def at(*parts: int, zone: str = "UTC") -> int:
    return round(datetime(*parts, tzinfo=ZoneInfo(zone)).timestamp() * 1000)  # type: ignore[arg-type,misc]


def transitions(zone: str) -> list[tuple[int, int]]:
    """When the zone's clocks change over ten years, and by how many ms."""
    found = []
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    there = ZoneInfo(zone)
    while moment.year < 2035:
        later = moment + timedelta(minutes=30)
        step = (later.astimezone(there).utcoffset() or timedelta()) - (
            moment.astimezone(there).utcoffset() or timedelta()
        )
        if step:
            found.append((round(later.timestamp() * 1000), round(step.total_seconds() * 1000)))
        moment = later
    return found


def test_an_interval_begins_at_once_and_keeps_its_row() -> None:
    schedule = made(every=MINUTE)

    assert first(schedule, NOW) == NOW
    assert following(schedule, NOW, NOW + 7) == NOW + MINUTE
    assert following(schedule, NOW, NOW + 5 * MINUTE + 7) == NOW + 6 * MINUTE


def test_an_interval_can_begin_later_and_off_the_full_hour() -> None:
    assert first(made(every=HOUR, start=NOW + 5), NOW) == NOW + 5
    assert first(made(every=HOUR, offset=10 * MINUTE), NOW) == NOW + 10 * MINUTE
    assert first(made(every=HOUR, offset=0), NOW + 1) == NOW + HOUR


def test_a_schedule_ends_by_its_time_or_its_count() -> None:
    assert following(made(every=MINUTE, end=NOW + MINUTE), NOW, NOW) == NOW + MINUTE
    assert following(made(every=MINUTE, end=NOW + MINUTE), NOW + MINUTE, NOW) is None
    assert following(made(every=MINUTE, limit=3), NOW, NOW, 2) == NOW + MINUTE
    assert following(made(every=MINUTE, limit=3), NOW, NOW, 3) is None
    assert first(made(cron="0 0 * * *", end=NOW + 1), NOW) is None


@pytest.mark.parametrize(
    ("expression", "times"),
    [
        ("*/20 * * * *", [at(2027, 1, 15, 8, 20), at(2027, 1, 15, 8, 40), at(2027, 1, 15, 9, 0)]),
        ("*/20 * * * * *", [NOW + 20_000, NOW + 40_000, NOW + 60_000]),
        ("0 2 * * MON-FRI", [at(2027, 1, 18, 2), at(2027, 1, 19, 2), at(2027, 1, 20, 2)]),
        ("0 0 L * *", [at(2027, 1, 31), at(2027, 2, 28), at(2027, 3, 31)]),
    ],
)
@pytest.mark.covers("R213")
def test_cron_has_five_fields_or_six_with_seconds_first(expression: str, times: list[int]) -> None:
    schedule = made(cron=check_cron(expression, "UTC"))
    begin = first(schedule, NOW + 1)
    assert begin is not None

    view = ScheduleRow(queue="q", schedule=schedule, slot=begin, count=1)
    assert upcoming(view, 3) == times


@pytest.mark.covers("B53")
@pytest.mark.parametrize("expression", ["", "* * * *", "61 * * * *", "@daily", "* * * * * * *", "x", None, 5])
def test_a_bad_expression_is_refused_with_its_text(expression: object) -> None:
    with pytest.raises(InvalidOption, match="cron"):
        check_cron(expression, "UTC")


@pytest.mark.covers("B54")
@pytest.mark.parametrize("zone", ["Nowhere/Land", "", "../etc/passwd", None, 3])
def test_an_unknown_zone_is_refused(zone: object) -> None:
    with pytest.raises(InvalidOption, match="time zone"):
        check_cron("0 0 * * *", zone)


@pytest.mark.covers("X16")
def test_a_time_that_the_clocks_skip_comes_as_soon_as_they_have_moved_on() -> None:
    begin = at(2026, 3, 28, 12, zone="Europe/Berlin")

    runs = upcoming(
        ScheduleRow(queue="q", schedule=made(cron="30 2 * * *", tz="Europe/Berlin"), slot=begin, count=1), 3
    )

    assert runs[1:] == [at(2026, 3, 29, 3, zone="Europe/Berlin"), at(2026, 3, 30, 2, 30, zone="Europe/Berlin")]


@pytest.mark.covers("X16")
def test_a_time_that_comes_twice_counts_the_first_time() -> None:
    begin = at(2026, 10, 24, 12, zone="Europe/Berlin")

    runs = upcoming(
        ScheduleRow(queue="q", schedule=made(cron="30 2 * * *", tz="Europe/Berlin"), slot=begin, count=1), 3
    )

    assert runs[1:] == [at(2026, 10, 25, 0, 30), at(2026, 10, 26, 1, 30)]


@pytest.mark.covers("X16", "F87")
@pytest.mark.parametrize("zone", ZONES)
def test_no_change_of_the_clocks_doubles_or_drops_a_run(zone: str) -> None:
    """Ten zones, some twenty changes each: a daily run comes once a day, and what runs every ten minutes does so."""
    changes = transitions(zone)
    assert len(changes) >= 18
    there = ZoneInfo(zone)
    for moment, step in changes:
        noon = at(*(datetime.fromtimestamp(moment / 1000, there) - timedelta(days=1)).timetuple()[:3], 12, zone=zone)
        daily = made(cron=_within(moment, step, there), tz=zone)
        runs = upcoming(ScheduleRow(queue="q", schedule=daily, slot=noon, count=1), 4)[1:]
        days = [datetime.fromtimestamp(run / 1000, there).date() for run in runs]
        assert [(later - earlier).days for earlier, later in pairwise(days)] == [1, 1], (zone, moment)

        slot = after("*/10 * * * *", zone, moment - 2 * HOUR)
        assert slot is not None
        row = upcoming(ScheduleRow(queue="q", schedule=made(cron="*/10 * * * *", tz=zone), slot=slot, count=1), 24)
        assert {later - earlier for earlier, later in pairwise(row)} == {10 * MINUTE}, (zone, moment)


def _within(moment: int, step: int, zone: ZoneInfo) -> str:
    """A daily time that this change skips, or repeats."""
    local = datetime.fromtimestamp(moment / 1000, zone)
    inside = local - timedelta(milliseconds=abs(step) // 2) if step > 0 else local + timedelta(milliseconds=-step // 2)
    return f"{inside.minute} {inside.hour} * * *"


@pytest.mark.covers("X17")
def test_jitter_is_the_schedules_own_and_the_same_everywhere() -> None:
    shifts = {shift(made(id=f"s{n}", cron="0 * * * *", jitter=4 * MINUTE)) for n in range(50)}
    schedule = made(id="s7", cron="0 * * * *", jitter=4 * MINUTE)
    begin = first(schedule, NOW)
    assert begin is not None

    assert len(shifts) > 40
    assert all(0 <= each < 4 * MINUTE for each in shifts)
    assert begin == first(made(id="s7", cron="0 * * * *", jitter=4 * MINUTE), NOW)
    assert begin % HOUR == shift(schedule) > 0
    assert following(schedule, begin, begin) == begin + HOUR


def test_a_run_made_without_jitter_is_not_made_again_with_it() -> None:
    schedule = made(id="s7", cron="0 * * * *", jitter=4 * MINUTE)

    assert following(schedule, NOW, NOW) == NOW + HOUR + shift(schedule)


@pytest.mark.covers("X15")
def test_an_expression_runs_no_more_often_than_it_may() -> None:
    schedule = made(cron="*/10 * * * * *", min_interval=MINUTE)

    assert following(schedule, NOW, NOW) == NOW + MINUTE


@pytest.mark.covers("R219", "F88")
def test_what_was_missed_is_made_up_for_as_the_schedule_says() -> None:
    late = NOW + 10 * MINUTE + 5
    schedules = {policy: made(every=MINUTE, catch_up=policy, window=3 * MINUTE) for policy in CatchUp}
    views = {policy: ScheduleRow(queue="q", schedule=each, slot=NOW, count=1) for policy, each in schedules.items()}

    assert {policy: decide_run(view, late) for policy, view in views.items()} == {
        CatchUp.NONE: RunDecision.MISSED, CatchUp.ONE: RunDecision.RUN, CatchUp.ALL: RunDecision.MISSED,
    }  # fmt: skip
    assert following(schedules[CatchUp.NONE], NOW, late) == NOW + 11 * MINUTE
    assert following(schedules[CatchUp.ONE], NOW, late) == NOW + 11 * MINUTE
    assert following(schedules[CatchUp.ALL], NOW, late) == NOW + 8 * MINUTE
    assert following(schedules[CatchUp.ALL], NOW + 8 * MINUTE, late) == NOW + 9 * MINUTE


def test_a_run_that_is_on_time_runs_whatever_the_policy() -> None:
    for policy in CatchUp:
        view = ScheduleRow(queue="q", schedule=made(every=MINUTE, catch_up=policy), slot=NOW, count=1)
        assert decide_run(view, NOW + 200) is RunDecision.RUN


def test_a_run_that_meets_the_one_before_does_as_the_schedule_says() -> None:
    verdicts = {
        overlap: decide_run(
            ScheduleRow(queue="q", schedule=made(every=MINUTE, overlap=overlap), slot=NOW, count=2, busy=True), NOW
        )
        for overlap in Overlap
    }

    assert verdicts == {
        Overlap.ALLOW: RunDecision.RUN,
        Overlap.SKIP: RunDecision.OVERLAPS,
        Overlap.QUEUE_ONE: RunDecision.WAIT,
    }


def test_a_runs_id_tells_whose_run_it_is() -> None:
    assert scheduled_run(run_id("nightly", 5)) == ("nightly", 5)
    assert scheduled_run("repeat:of:another:5") == ("of:another", 5)
    assert [scheduled_run(each) for each in ("7", "repeat:x", "repeat::5", "repeat:x:y", "other:x:5")] == [None] * 5
