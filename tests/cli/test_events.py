"""`toril events`: what happened, and what happens."""

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


def test_a_place_needs_its_queue(toril: Toril, url: str) -> None:
    on(url, fill)

    assert "name that one queue" in toril("events", "--after", "3", code=2).output
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
