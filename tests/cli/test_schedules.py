"""`toril schedules`: what repeats, seen and steered from the shell."""

from typing import Any

from tests.cli.conftest import Toril, documents, on
from toril import App

KEYS = {
    "schedule", "queue", "job", "data", "state", "every_ms", "cron", "tz", "next_at", "runs", "limit", "start_at",
    "end_at", "jitter_ms", "overlap", "catch_up", "owner",
}  # fmt: skip


def plans(url: str) -> None:
    async def fill(app: App) -> None:
        email = app.queue("email")
        await email.schedules.put("hourly", "digest", {"n": 1}, every=3600)
        await email.schedules.put("nightly", "report", cron="0 2 * * *", tz="Europe/Berlin")

    on(url, fill)


def state(url: str, schedule: str = "nightly") -> Any:
    return on(url, lambda app: app.queue("email").schedules.get(schedule))


def test_schedules_are_listed_for_people_and_for_programs(toril: Toril, url: str) -> None:
    plans(url)

    lines = toril("schedules", "list").stdout.splitlines()
    found = documents(toril("schedules", "list", "email", "--json").stdout)

    assert [line.split()[0] for line in lines] == ["schedule", "hourly", "nightly"]
    assert "0 2 * * * (Europe/Berlin)" in lines[2]
    assert [each["schedule"] for each in found] == ["hourly", "nightly"]
    assert all(set(each) == KEYS for each in found)
    assert found[0]["every_ms"] == 3_600_000
    assert [each["runs"] for each in found] == [0, 0], "the run that stands for the future has not begun"


def test_a_schedule_is_shown_with_its_next_ten_runs(toril: Toril, url: str) -> None:
    plans(url)

    text = toril("schedules", "show", "nightly").stdout
    (found,) = documents(toril("schedules", "show", "email", "nightly", "--json").stdout)

    listed = text.partition("\nnext runs\n")[2].splitlines()
    assert len(listed) == 10, text
    assert all(" 02:00:00+0" in line for line in listed)
    assert f"next run  {listed[0].strip()} (due in " in text
    assert "\\n" not in text
    assert str(found["next_at"]) not in text, "milliseconds are for programs"
    assert len(found["upcoming"]) == 10
    assert found["upcoming"][0] == found["next_at"]


def test_a_schedule_is_paused_resumed_run_and_removed(toril: Toril, url: str) -> None:
    plans(url)

    paused = toril("schedules", "pause", "nightly").stdout
    was_paused = state(url).paused
    toril("schedules", "resume", "email", "nightly")
    ran = documents(toril("schedules", "run", "nightly", "--json").stdout)
    after = state(url)
    toril("schedules", "remove", "nightly", "--yes")

    assert paused == "Schedule nightly of email was paused.\n"
    assert (was_paused, after.paused) == (True, False)
    assert ran[0]["done"].startswith("now has an extra run: job ")
    assert on(url, lambda app: app.queue("email").counts()).waiting == 2  # with the first run of the hourly one
    assert [each["schedule"] for each in documents(toril("schedules", "list", "--json").stdout)] == ["hourly"]


def test_a_schedule_that_is_not_there_is_said_so(toril: Toril, url: str) -> None:
    plans(url)

    result = toril("schedules", "pause", "nigthly", code=1)

    assert "there is no schedule 'nigthly' in any queue" in result.stderr
