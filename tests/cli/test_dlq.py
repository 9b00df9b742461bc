"""The commands for dead letters, as people and as programs use them."""

import os
import pty
import re
from contextlib import suppress
from typing import Any

import pytest

from tests.cli.conftest import Fresh, Toril, documents, on
from toril import App, Fixed, Retry


async def _fails(ctx: Any) -> None:
    raise ValueError(ctx.data["why"])


def shop(url: str) -> None:
    async def fill(app: App) -> None:
        email = app.queue("email", {"send": _fails, "greet": _fails}, retry=Retry(1))
        for n, name in enumerate(["send", "greet", "send"]):
            await email.add(name, {"why": f"Rate limited {n}", "user": {"id": n}}, job_id=f"j{n}")
        await app.run(burst=True)

    on(url, fill)


def ids(toril: Toril, *words: str) -> list[str]:
    return sorted(letter["id"] for letter in documents(toril("dlq", "list", "--json", *words).stdout))


@pytest.mark.covers("R076")
def test_letters_are_listed_and_shown(toril: Toril, url: str) -> None:
    shop(url)

    text = toril("dlq", "list").output
    assert "email/j2" in text
    assert "ValueError: Rate limited 2" in text
    assert ids(toril, "--name", "send") == ["email/j0", "email/j2"]
    assert ids(toril, "--error", "limited 1") == ["email/j1"]
    assert ids(toril, "--payload", "user.id=2", "--within", "1h") == ["email/j2"]
    assert ids(toril, "--older-than", "1h") == []
    sheet = toril("dlq", "show", "email/j1").output
    assert "greet" in sheet
    assert '"id": 1' in sheet
    assert "Traceback" in sheet
    (found,) = documents(toril("dlq", "show", "email/j1", "--json").stdout)
    assert (found["queue"], found["job_id"], found["attempts_made"]) == ("email", "j1", 1)


def test_a_listing_goes_on_at_its_cursor(toril: Toril, url: str) -> None:
    shop(url)
    first = toril("dlq", "list", "--json", "--limit", "2")
    cursor = documents(first.stderr)[0]["cursor"]

    assert len(documents(first.stdout)) == 2
    assert len(documents(toril("dlq", "list", "--json", "--cursor", cursor).stdout)) == 1


@pytest.mark.covers("R077", "R079")
def test_letters_are_replayed_by_their_error_and_named_ones_too(toril: Toril, url: str) -> None:
    shop(url)

    assert documents(toril("dlq", "replay", "--error", "Rate", "--dry-run", "--json").stdout) == [{"would_replay": 3}]
    assert "3 dead letters" in toril("dlq", "replay", "--error", "Rate", code=3).output
    assert ids(toril) == ["email/j0", "email/j1", "email/j2"]
    toril("dlq", "replay", "email/j1", "--attempts", "4", "--backoff", "5s")
    assert toril("dlq", "replay", "--all", "--yes").output == "Replayed 2 dead letters.\n"
    assert ids(toril) == []

    async def waiting(app: App) -> list[tuple[str, int]]:
        page = await app.queue("email").jobs("waiting")
        return [(job.id, job.record.max_attempts) for job in page.items if job.record]

    assert on(url, waiting) == [("j1", 4), ("j0", 1), ("j2", 1)]


@pytest.mark.covers("R080", "B116")
def test_a_discard_of_nothing_asks_nothing(toril: Toril, url: str) -> None:
    toril("add", "--create", "email", "hi")

    assert toril("dlq", "discard", "--all").stdout == "No dead letters match.\n"
    assert documents(toril("dlq", "discard", "--name", "send", "--json").stdout) == [{"discarded": 0, "refused": {}}]


def test_a_discard_asks_and_says_how_many(toril: Toril, url: str) -> None:
    shop(url)

    assert "This deletes 2 dead letters for good." in toril("dlq", "discard", "--name", "send", code=3).output
    assert documents(toril("dlq", "discard", "--name", "send", "--yes", "--json").stdout) == [
        {"discarded": 2, "refused": {}}
    ]
    assert ids(toril) == ["email/j1"]


@pytest.mark.parametrize("words", [[], ["email/j1", "--all"], ["--all", "--name", "x"]])
def test_it_must_be_said_which_letters_are_meant(toril: Toril, url: str, words: list[str]) -> None:
    shop(url)

    assert "give LETTERS" in toril("dlq", "discard", "--yes", *words, code=2).output


def test_what_is_not_there_is_told_and_ends_with_code_one(toril: Toril, url: str) -> None:
    shop(url)

    assert "no dead letter 'email/x'" in toril("dlq", "show", "email/x", code=1).output
    assert "email/x: gone" in toril("dlq", "discard", "email/x", "email/j1", "--yes", code=1).output
    assert ids(toril) == ["email/j0", "email/j2"]
    assert "KEY=VALUE" in toril("dlq", "list", "--payload", "x", code=2).output


def test_what_is_kept_can_be_bounded(toril: Toril, url: str) -> None:
    shop(url)

    assert documents(toril("dlq", "keep", "--count", "1", "--age", "30d", "--json").stdout) == [
        {"count": 1, "age": 2_592_000.0}
    ]
    assert toril("dlq", "keep").output == "Kept: at most 1, for 30d.\n", "it shows, and sets nothing"
    for age in ("36h", "90m", "1234567.5s"):
        assert toril("dlq", "keep", "--age", age).output == f"Kept: at most 1, for {age}.\n"
    assert toril("dlq", "keep", "--age", "none").output == "Kept: at most 1.\n"
    assert toril("dlq", "keep", "--count", "none").output == "Kept: all.\n"


@pytest.mark.parametrize("command", [["list"], ["replay", "--dry-run"], ["discard", "--yes"]])
def test_a_second_queue_is_refused_and_not_taken_in_place_of_the_first(
    toril: Toril, url: str, command: list[str]
) -> None:
    toril("add", "--create", "email", "hi")

    assert "can be given only once, not 2 times" in toril("dlq", *command, "-q", "a", "--queue", "b", code=2).stderr


def test_who_watches_a_long_replay_sees_how_far_it_is(fresh: Fresh, toril: Toril, url: str) -> None:
    async def fill(app: App) -> None:
        queue = app.queue("email", {"send": _fails}, retry=Retry(1))
        await queue.add_many([("send", {"why": "no"})] * 250)
        await app.run(burst=True)

    on(url, fill)
    terminal, side = pty.openpty()
    child = fresh("dlq", "replay", "--all", "--yes", stderr=side)
    os.close(side)
    seen = b""
    with suppress(OSError):  # the other side is closed
        while chunk := os.read(terminal, 4096):
            seen += chunk
    os.close(terminal)

    assert child.communicate(timeout=60)[0] == "Replayed 250 dead letters.\n"
    assert b"replayed" in seen
    assert b"250/250" in seen
    assert ids(toril) == []


def test_a_replay_says_what_becomes_of_flows_and_counts_their_children(toril: Toril, url: str) -> None:
    async def fill(app: App) -> None:
        email = app.queue("email", {"send": _fails, "total": _fails}, retry=Retry(1))
        await app.flow(email.new("total", job_id="top"), [email.new("send", {"why": "down"}, job_id="child")])
        await app.run(burst=True)

    on(url, fill)

    assert "replayed together with their parent" in toril("dlq", "replay", "email/top", "--dry-run").output
    assert "Replayed 2 dead letters" in toril("dlq", "replay", "email/top").output
    assert ids(toril) == []


async def _talks(ctx: Any) -> None:
    await ctx.log(f"try {ctx.attempt}")
    await ctx.update_progress(50)
    raise ValueError(f"bad try {ctx.attempt}")


def office(url: str) -> None:
    """A job that is a dead letter after two attempts, one that is kept, and a flow that failed."""

    async def fill(app: App) -> None:
        mail = app.queue("mail", {"talk": _talks, "top": _talks}, retry=Retry(2, Fixed(0)))
        await mail.add("talk", {"n": 1}, job_id="dead")
        await mail.add("talk", {"n": 2}, job_id="kept", keep_failed=True)
        await app.flow(mail.new("top", job_id="top"), [mail.new("talk", job_id="child", attempts=1)])
        await app.run(burst=True)

    on(url, fill)


@pytest.mark.covers("R074")
def test_the_commands_for_jobs_know_dead_letters(toril: Toril, url: str) -> None:
    office(url)

    listed = documents(toril("jobs", "mail", "--state", "failed", "--json").stdout)
    assert [(job["id"], job["state"], job["dead_letter"]) for job in listed[:1]] == [("kept", "failed", None)]
    assert {(job["id"], job["state"], job["dead_letter"]) for job in listed[1:]} == {
        (name, "failed", f"mail/{name}") for name in ("dead", "child", "top")
    }
    assert "dead letter" in toril("jobs", "mail").output
    sheet = toril("job", "show", "mail", "dead").output
    assert "mail/dead" in sheet
    assert "try 1\n  try 2" in sheet
    assert re.search(r"\n  1  .*  ValueError: bad try 1\n  2  .*  ValueError: bad try 2\n", sheet)
    assert re.search(r"progress +50", sheet)
    told = toril("job", "why", "mail", "dead").output
    assert "after 2 of 2 attempts and is a dead letter: bad try 2" in told
    assert "will run again" in toril("job", "retry", "dead").output
    assert documents(toril("job", "show", "dead", "--json").stdout)[0]["state"] == "waiting"
    assert "was removed" in toril("job", "remove", "mail", "top", "--yes").output
    assert "mail/top" not in ids(toril)


def test_a_parent_whose_child_failed_has_no_attempts(toril: Toril, url: str) -> None:
    office(url)

    for sheet in (toril("job", "show", "mail", "top").output, toril("dlq", "show", "mail/top").output):
        assert re.search(r"attempts +none \(never started\)\n", sheet)
        assert re.search(r"error +ChildFailed: child mail:child failed", sheet)
        assert "\nattempts\n" not in sheet
    assert "before it started and is a dead letter" in toril("job", "why", "mail", "top").output
    for listed in (toril("jobs", "mail", "--state", "failed"), toril("jobs", "mail", "--runs"), toril("dlq", "list")):
        (line,) = (line for line in listed.output.splitlines() if re.match(r"(mail/)?top ", line))
        assert " none " in line


def test_a_listing_of_failed_jobs_goes_on_from_kept_ones_to_letters(toril: Toril, url: str) -> None:
    office(url)
    met: list[str] = []
    words: list[str] = []
    while True:
        shown = toril("jobs", "mail", "--state", "failed", "--limit", "1", "--json", *words)
        met += [job["id"] for job in documents(shown.stdout)]
        if not shown.stderr:
            break
        words = ["--cursor", documents(shown.stderr)[0]["cursor"]]

    assert met[0] == "kept"
    assert sorted(met) == ["child", "dead", "kept", "top"]
    found = documents(toril("jobs", "mail", "--error", "child mail:child failed", "--json").stdout)
    assert [job["id"] for job in found] == ["top"]
    assert documents(toril("jobs", "mail", "--worker", "nobody", "--json").stdout) == []


def test_a_letter_is_shown_with_its_errors_its_log_and_its_flow(toril: Toril, url: str) -> None:
    office(url)

    (found,) = documents(toril("dlq", "show", "mail/dead", "--json").stdout)
    assert found["logs"] == ["try 1", "try 2"]
    assert [(each["attempt"], each["error"]) for each in found["errors"]] == [(1, "bad try 1"), (2, "bad try 2")]
    assert all("_talks" in each["traceback"] for each in found["errors"])
    assert (found["progress"], found["parent"]) == (50, None)
    child = toril("dlq", "show", "mail/child").output
    assert re.search(r"parent +top in mail", child)
    top = toril("dlq", "show", "mail/top").output
    assert re.search(r"children +1 failed: child in mail \(failed\)", top)


def test_no_failed_job_and_no_letter_is_told_as_that(toril: Toril, url: str) -> None:
    office(url)
    toril("dlq", "discard", "--all", "--yes")
    toril("job", "remove", "kept", "--yes")

    assert "keeps no failed jobs and has no dead letters" in toril("jobs", "mail", "--state", "failed").output
    assert "and is no longer stored" in toril("job", "why", "mail", "dead").output
