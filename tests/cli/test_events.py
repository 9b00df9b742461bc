"""`toril events`: what happened, and what happens."""

import asyncio
import re
from datetime import UTC, datetime

from tests.cli.conftest import Fresh, Toril, documents, on
from toril import App


async def fill(app: App) -> None:
    await app.queue("email").add("greet", job_id="one")
    await app.queue("sync").add("pull", job_id="two")


def test_the_last_events_are_shown_and_read_on_from(toril: Toril, url: str) -> None:
    on(url, fill)
    both = toril("events").stdout
    email = documents(toril("events", "email", "--json").stdout)
    last = documents(toril("events", "email", "--json", "-n", "1").stdout)
    after = toril("events", "email", "--after", email[-1]["at"]).stdout

    assert "email added one" in both
    assert "sync added two" in both
    assert [(each["kind"], each["id"]) for each in email] == [("added", "one"), ("waiting", "one")]
    assert last == email[-1:]
    assert after == ""


def test_what_happened_in_several_queues_is_shown_in_the_order_of_time(toril: Toril, url: str) -> None:
    async def work(app: App) -> None:
        for number in range(6):
            await app.queue("email" if number % 2 else "sync").add("greet", job_id=f"job{number}")
            await asyncio.sleep(0.002)

    on(url, work)

    added = [line.split()[3] for line in toril("events").stdout.splitlines() if " added " in line]
    last = documents(toril("events", "--json", "-n", "3").stdout)

    assert added == [f"job{number}" for number in range(6)]
    assert [(each["id"], each["kind"]) for each in last] == [
        ("job4", "waiting"), ("job5", "added"), ("job5", "waiting"),
    ]  # fmt: skip


def test_when_a_job_is_due_is_shown_as_a_time(toril: Toril, url: str) -> None:
    on(url, lambda app: app.queue("email").add("greet", at=datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)))

    line = toril("events", "-n", "1").stdout
    (document,) = documents(toril("events", "-n", "1", "--json").stdout)

    assert re.fullmatch(r"\S+ email delayed 1 due=2100-01-02T03:04:05\.000Z\n", line)
    assert document["detail"] == {"delay": "4102542245000"}, "for programs, it is as it is stored"


def test_queues_that_are_new_are_followed_too(fresh: Fresh, url: str) -> None:
    on(url, fill)
    following = fresh("events", "-f", "-n", "1", env={"PYTHONUNBUFFERED": "1"})
    assert following.stdout is not None
    try:
        following.stdout.readline()  # it has found its place
        on(url, lambda app: app.queue("new").add("greet", job_id="three"))
        after = following.stdout.readline()
    finally:
        following.terminate()
        following.communicate()

    assert "new added three" in after


def test_a_place_needs_its_queue(toril: Toril, url: str) -> None:
    on(url, fill)

    assert "name exactly one QUEUE" in toril("events", "--after", "3", code=2).output
    assert "no queue" in toril("events", "none", code=1).output


def test_events_are_followed(fresh: Fresh, url: str) -> None:
    on(url, fill)
    following = fresh("events", "email", "-f", "-n", "1", env={"PYTHONUNBUFFERED": "1"})
    assert following.stdout is not None
    try:
        before = following.stdout.readline()  # it has found its place
        on(url, lambda app: app.queue("email").add("greet", job_id="three"))
        after = following.stdout.readline()
    finally:
        following.terminate()
        following.communicate()

    assert "waiting one" in before
    assert "added three" in after
