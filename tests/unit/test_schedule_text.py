"""Schedules in plain words, and only where the words are true."""

from datetime import UTC, datetime

import pytest

from toril.policy.schedule_text import cron_in_words, every_in_words
from toril.policy.schedules import after

SAID = {
    "* * * * *": "Every minute",
    "*/5 * * * *": "Every 5 minutes",
    "15 * * * *": "Every hour at :15",
    "0 */6 * * *": "Every 6 hours at :00",
    "0 2 * * *": "Every day at 02:00",
    "30 2,14 * * *": "Every day at 02:30 and 14:30",
    "0,30 9 * * *": "Every day at 09:00 and 09:30",
    "3 4 * * 0": "Every Sunday at 04:03",
    "3 4 * * 7": "Every Sunday at 04:03",
    "0 10 * * 1-5": "Monday to Friday at 10:00",
    "0 10 * * MON-FRI": "Monday to Friday at 10:00",
    "0 8 * * 6,0": "Sunday and Saturday at 08:00",
    "0 6 1 * *": "The 1st of each month at 06:00",
    "0 6 1,15,22 * *": "The 1st, 15th and 22nd of each month at 06:00",
    "0 6 L * *": "The last day of each month at 06:00",
    "0 6 24 12 *": "The 24th of December at 06:00",
    "0 6 11 JAN,JUL *": "The 11th of January and July at 06:00",
    "*/10 9-17 * * 1-5": "Every 10 minutes from 09:00 to 17:59, Monday to Friday",
    "*/20 3 * * *": "Every 20 minutes from 03:00 to 03:59",
    "0 9-17 * * *": "Every hour at :00 from 09:00 to 17:00",
    "*/15 * * * 3": "Every 15 minutes, Wednesday",
    "*/15 * 1 * *": "Every 15 minutes, the 1st of each month",
    "*/30 * * * * *": "Every 30 seconds",
    "10 0 2 * * *": "Every day at 02:00:10",
}


@pytest.mark.parametrize(("expression", "words"), SAID.items())
def test_common_patterns_have_plain_words(expression: str, words: str) -> None:
    assert cron_in_words(expression) == words


@pytest.mark.parametrize(
    "expression",
    ["*/7 * * * *", "0 */5 * * *", "0 2 1 * 1", "0 2 * 3 *", "0 2 * * 1#2", "1-59/2 * * * *", "0 0-23/2 * * *",
     "*/5 */2 * * *", "0 2 * 1-3 2", "5 * 3 * * *", "no", "", "0 1,2,3,4,5,6,7 * * *"],
)  # fmt: skip
def test_what_is_not_plain_is_not_put_into_words(expression: str) -> None:
    assert cron_in_words(expression) is None


@pytest.mark.parametrize(
    ("ms", "words"),
    [(300_000, "Every 5 minutes"), (3_600_000, "Every hour"), (90_000, "Every 90 seconds"),
     (86_400_000, "Every day"), (604_800_000, "Every 7 days"), (250, "Every 250 milliseconds")],
)  # fmt: skip
def test_intervals_have_plain_words(ms: int, words: str) -> None:
    assert every_in_words(ms) == words


def test_the_words_are_what_the_expression_does() -> None:
    """Said of a day and a time, the next run is on such a day at that time."""
    for expression, day, time in (("3 4 * * 0", 6, "04:03"), ("0 10 * * 1-5", 0, "10:00")):
        found = after(expression, "UTC", int(datetime(2026, 11, 14, 12, tzinfo=UTC).timestamp() * 1000))
        assert found is not None
        moment = datetime.fromtimestamp(found / 1000, UTC)
        assert (moment.weekday(), f"{moment:%H:%M}") == (day, time)
