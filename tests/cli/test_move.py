"""`toril move`: what it says, what it refuses, and that it moves."""

from pathlib import Path

import pytest

from tests.cli.conftest import Toril, documents, on
from tests.conformance.jobs import claim_one, settle
from tests.servers import RedisServer
from toril import App
from toril.model import Counts, Failed, Failure


@pytest.fixture
def ends(folder: Path) -> tuple[str, str]:
    return f"sqlite:///{folder / 'old.db'}", f"sqlite:///{folder / 'new.db'}"


def fill(url: str, count: int = 3, queue: str = "mail") -> None:
    async def add(app: App) -> None:
        await app.queue(queue).add_many([("send", {"n": n}) for n in range(count)])

    on(url, add)


def counts(url: str, queue: str = "mail") -> Counts:
    return on(url, lambda app: app.queue(queue).counts())


def test_everything_is_moved_and_the_old_store_paused(toril: Toril, ends: tuple[str, str]) -> None:
    fill(ends[0])

    said = toril("move", *ends)

    assert "Moved 3 jobs, 0 schedules and 0 dead letters" in said.output
    assert (counts(ends[1]).waiting, counts(ends[1]).paused) == (3, False)
    assert (counts(ends[0]).waiting, counts(ends[0]).paused) == (0, True)
    fill(ends[0], 1)
    (document,) = documents(toril("move", *ends, "--json").stdout)
    assert (document["jobs"], document["already_there"]) == (1, [])
    assert counts(ends[1]).waiting == 4


def test_what_is_remembered_of_a_job_that_never_started_can_be_read_after_a_move(
    toril: Toril, ends: tuple[str, str]
) -> None:
    server = RedisServer().start()
    try:
        fill(ends[0], 1)
        toril("job", "cancel", "mail", "1", "--url", ends[0])

        toril("move", ends[0], server.url)

        (listed,) = documents(toril("jobs", "mail", "--runs", "--json", "--url", server.url).stdout)
        assert (listed["id"], listed["cause"], listed["started_at"]) == ("1", "cancelled", None)
        assert "cancelled" in toril("job", "show", "mail", "1", "--url", server.url).output
        assert "cancelled" in toril("job", "why", "mail", "1", "--url", server.url).output
    finally:
        server.stop()


def test_a_dry_run_says_what_there_is_and_changes_nothing(toril: Toril, ends: tuple[str, str]) -> None:
    fill(ends[0])

    said = toril("move", *ends, "--dry-run")

    assert "Would move 3 jobs, 0 schedules and 0 dead letters." in said.output
    assert (counts(ends[0]).waiting, counts(ends[0]).paused) == (3, False)
    (document,) = documents(toril("move", *ends, "--dry-run", "--json").stdout)
    assert document == {
        "queues": {"mail": {"jobs": 3, "running": 0, "schedules": 0}}, "dead_letters": 0, "clashes": [],
    }  # fmt: skip


def test_a_dry_run_counts_what_the_move_then_moves(toril: Toril, ends: tuple[str, str]) -> None:
    """The next run of a schedule comes with the schedule."""
    fill(ends[0])

    async def schedule(app: App) -> None:
        await app.queue("mail").schedules.put("daily", "send", None, cron="0 6 * * *")
        await app.queue("mail").schedules.put("often", "send", None, every=3600)  # its first run waits by now
        await app.queue("mail").schedules.put("paused", "send", None, every=3600)
        await app.queue("mail").schedules.pause("paused")

    on(ends[0], schedule)

    (foretold,) = documents(toril("move", *ends, "--dry-run", "--json").stdout)
    said = toril("move", *ends, "--dry-run").output
    (moved,) = documents(toril("move", *ends, "--json").stdout)

    assert "Would move 3 jobs, 3 schedules and 0 dead letters." in said
    assert foretold["queues"]["mail"] == {"jobs": moved["jobs"], "running": 0, "schedules": moved["schedules"]}
    assert (moved["jobs"], moved["schedules"]) == (3, 3)


def test_a_clash_is_named_before_anything_is_moved(toril: Toril, ends: tuple[str, str]) -> None:
    fill(ends[0])
    fill(ends[1], 1)

    assert "TO also has a job '1' in queue 'mail'" in toril("move", *ends, "--dry-run", code=1).output
    assert "both stores have a job '1' of queue 'mail'" in toril("move", *ends, code=1).output
    assert (counts(ends[0]).waiting, counts(ends[0]).paused) == (3, False)
    toril("job", "remove", "mail", "1", "--url", ends[1], "--yes")
    toril("move", *ends)
    assert counts(ends[1]).waiting == 3


def test_what_cannot_be_moved_is_said(toril: Toril, ends: tuple[str, str]) -> None:
    assert "there is no store at" in toril("move", *ends, code=1).output
    fill(ends[0])
    assert "FROM and TO are the same store" in toril("move", ends[0], ends[0], code=2).output
    assert "a memory:// store is gone" in toril("move", ends[0], "memory://", code=2).output
    assert "has no scheme" in toril("move", ends[0], "nowhere", code=2).output


def test_dead_letters_come_along(toril: Toril, ends: tuple[str, str]) -> None:
    fill(ends[0], 1)

    async def fail(app: App) -> None:

        await settle(app.store, (await claim_one(app.store, queue="mail")).lease, Failed(Failure("no")))

    on(ends[0], fail)

    assert "Moved 0 jobs, 0 schedules and 1 dead letter in" in toril("move", *ends).output
    assert on(ends[1], lambda app: app.dead_letters.count()) == 1
