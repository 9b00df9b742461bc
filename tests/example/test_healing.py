"""Mailboxes and documents that are stuck, or have failed, are found and go on."""

from datetime import UTC, datetime
from typing import Any

import pytest

from helpdesk import database, mailboxes
from helpdesk.database import Connection
from helpdesk.fake_api import BROKEN, MESSAGES, FakeApi, Trouble
from helpdesk.queues.document_processing import process_document
from helpdesk.queues.document_processing import queue as document_processing
from helpdesk.queues.embedding import embed_batch
from helpdesk.queues.polling_sync import Poll, recover
from helpdesk.queues.polling_sync import queue as polling_sync
from helpdesk.worker import app
from toril import Job
from toril.testing import memory

MINUTE = 60


async def test_a_mailbox_is_polled_in_two_stages(api: FakeApi) -> None:
    await _mailbox("ada")
    async with memory(app, start=datetime.now(UTC), on_failure="raise") as test:
        await test.drain()
        names = [job.name for job in test.added if job.queue == "polling-sync"]

    assert names == ["fetch_list", "import_messages"]
    assert await _messages() == {"ada": MESSAGES}
    assert await _row("ada") == ("idle", 0)
    assert api.calls["/mailboxes"] == 1 + 3, "one list, and 45 messages by twenty"


@pytest.mark.covers("R120", "R122", "R111")
@pytest.mark.usefixtures("api")
async def test_only_what_is_stuck_for_longer_than_a_quarter_of_an_hour_begins_anew() -> None:
    now = datetime.now(UTC)
    await _mailbox("long", stage="import", since=now.timestamp() - 16 * MINUTE, holder="x")
    await _mailbox("short", stage="import", since=now.timestamp() - 14 * MINUTE, holder="x")
    await _mailbox("idle", since=now.timestamp() - 60 * MINUTE)
    async with memory(app, start=now):
        dry = await app.scan("stale-mailboxes", dry_run=True)
        result = await app.scan("stale-mailboxes")

    declared = polling_sync.declared["stale-mailboxes"].options
    assert (declared["every"], declared["attempts"], declared["priority"]) == (15 * MINUTE, 1, 10)
    assert dry.counts["found"] == result.counts["reset"] == 1
    assert [await _row(each) for each in ("long", "short", "idle")] == [("list_pending", 0), ("import", 0), ("idle", 0)]


@pytest.mark.covers("R123")
async def test_a_mailbox_that_a_dead_worker_has_left_behind_is_imported_all_the_same(api: FakeApi) -> None:
    now = datetime.now(UTC)
    await _mailbox("ada", stage="list", since=now.timestamp() - 16 * MINUTE, holder="the dead one's")
    async with memory(app, start=now) as test:
        await test.drain()
        await test.after("5m")

    assert await _messages() == {"ada": MESSAGES}
    assert api.calls["/mailboxes"] == 4


@pytest.mark.covers("R121")
async def test_a_mailbox_that_has_failed_is_relaunched_when_its_time_has_come(api: FakeApi) -> None:
    api.down["/mailboxes/ada"] = BROKEN
    await _mailbox("ada")
    async with memory(app, start=datetime.now(UTC)) as test:
        await test.drain()
        await test.after("4m")
        failed = await _row("ada")
        await database.run(lambda db: db.execute("UPDATE mailboxes SET retry_at = retry_at + 3600"))
        throttled = await app.scan("failed-mailboxes")
        await database.run(lambda db: db.execute("UPDATE mailboxes SET retry_at = 0"))
        api.down.clear()
        await test.after("30m")

    assert failed == ("failed", 1)
    assert throttled.counts["found"] == 0
    assert await _messages() == {"ada": MESSAGES}
    assert await _row("ada") == ("idle", 0)


@pytest.mark.covers("X23")
@pytest.mark.usefixtures("api")
async def test_a_mailbox_is_left_alone_for_twice_as_long_each_time_and_at_most_an_hour() -> None:
    waits = []
    await _mailbox("ada", stage="list", holder="job", fence=1)
    for _ in range(10):
        await database.run(mailboxes.fail, "ada", mailboxes.Start("job", 1))
        waits.append(await database.run(_wait_of_ada))
        await database.run(lambda db: db.execute("UPDATE mailboxes SET stage = 'list', holder = 'job'"))

    assert waits == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


@pytest.mark.covers("X24")
async def test_a_mailbox_whose_owner_has_to_sign_in_is_not_relaunched(api: FakeApi) -> None:
    api.next["/mailboxes"] = [Trouble(401)]
    await _mailbox("ada")
    await _mailbox("worn out", stage="failed", relaunches=mailboxes.MOST_RELAUNCHES)
    async with memory(app, start=datetime.now(UTC)) as test:
        await test.after("31m")

    assert api.calls["/mailboxes"] == 1
    rows = await database.run(lambda db: db.execute("SELECT id, stage, auth FROM mailboxes ORDER BY id").fetchall())
    assert rows == [("ada", "failed", "invalid_grant"), ("worn out", "failed", "ok")]


@pytest.mark.covers("R110", "R111", "R112")
@pytest.mark.usefixtures("api")
async def test_a_lost_job_lets_its_stage_begin_anew_unless_the_mailbox_has_moved_on() -> None:
    await _mailbox("listing", stage="list", holder="1", fence=4)
    await _mailbox("importing", stage="import", holder="2", fence=4)
    await _mailbox("done", stage="idle", fence=4)
    await _mailbox("taken over", stage="list", holder="4", fence=5)  # by the next start of the same job
    await _mailbox("another's", stage="list", holder="6", fence=4)
    await database.run(lambda db: db.execute("INSERT INTO to_import VALUES ('importing', 'm1', '2')"))
    names = ("listing", "importing", "done", "taken over", "another's")
    ((_, when),) = polling_sync.handlers.lease_lost_hooks
    assert when is not None
    lost = [
        Job[Any](polling_sync, str(number), "import_messages", Poll(mailbox=name), fence=4)
        for number, name in enumerate(names, start=1)
    ]
    scan = Job[Any](polling_sync, "6", "scan_mailboxes", fence=4)
    for job in filter(when, [*lost, scan]):  # a scan has no mailbox of its own
        await recover(job)

    assert [(await _row(each))[0] for each in names] == ["list_pending", "import_pending", "idle", "list", "list"]


@pytest.mark.usefixtures("api")
async def test_of_two_starts_of_a_job_only_the_later_has_the_mailbox() -> None:
    await _mailbox("ada", stage="import_pending")
    await database.run(lambda db: db.execute("INSERT INTO to_import VALUES ('ada', 'm1', NULL)"))
    lost, later = mailboxes.Start("7", 1), mailboxes.Start("7", 2)
    begun = [await database.run(mailboxes.begin, "ada", "import", start) for start in (lost, later, lost)]
    batches = [await database.run(mailboxes.claim_batch, "ada", start) for start in (lost, later)]
    ended = [await database.run(step, "ada", start) for step in (mailboxes.end, mailboxes.fail) for start in (lost,)]

    assert begun == [True, True, False]
    assert batches == [[], ["m1"]]
    assert ended == [False, False]
    assert await database.run(mailboxes.end, "ada", later)


@pytest.mark.covers("R220", "R221", "X20")
async def test_a_document_is_embedded_in_batches_of_twenty_and_then_finished(api: FakeApi) -> None:
    lines = {"empty": 0, "line": 1, "full": 20, "more": 21, "handbook": 95}
    await database.run(_upload, lines)
    async with memory(app, start=datetime.now(UTC), on_failure="raise") as test:
        await document_processing.add_many([(process_document, name) for name in lines])
        await test.drain()
        sizes = [job.data["last"] - job.data["first"] + 1 for job in test.assert_added(embed_batch)]
        results = [run.text for run in (await document_processing.runs("completed")).items]

    assert sorted(sizes) == [1, 1, 15, 20, 20, 20, 20, 20, 20]
    assert api.calls["/embeddings"] == 9
    assert await database.run(_embedded) == {name: ("ready", many) for name, many in lines.items()}
    assert "handbook is searchable: 95 segments" in results
    assert "empty is empty (1 warning)" in results


async def test_a_document_whose_batch_fails_for_good_is_told_so_and_does_not_wait(api: FakeApi) -> None:
    api.next["/embeddings"] = [Trouble(400)]
    await database.run(_upload, {"handbook": 60})
    async with memory(app, start=datetime.now(UTC)) as test:
        await document_processing.add(process_document, "handbook")
        await test.drain()
        (run, *_) = (await document_processing.runs("completed")).items

    assert (await database.run(_embedded))["handbook"] == ("failed", 40)
    assert run.text == "handbook is not searchable (1 warning)"


@pytest.mark.usefixtures("api")
async def test_a_document_that_nobody_has_begun_with_is_found() -> None:
    await database.run(_upload, {"forgotten": 25}, since=0)
    async with memory(app, on_failure="raise") as test:
        await test.drain()

    assert await database.run(_embedded) == {"forgotten": ("ready", 25)}


async def test_a_second_run_adds_no_second_flow_and_a_restart_does(api: FakeApi) -> None:
    await database.run(_upload, {"handbook": 45})
    async with memory(app, start=datetime.now(UTC), on_failure="raise") as test:
        job = await document_processing.add(process_document, "handbook", job_id="process-handbook")
        await test.deliver_twice(job)  # its flow has ended by then
        before = len(test.assert_added(embed_batch))
        await database.run(lambda db: db.execute("UPDATE segments SET vector = NULL WHERE number = 7"))
        await database.run(lambda db: db.execute("UPDATE documents SET status = 'embedding', since = 0"))
        await app.scan("forgotten-documents")
        await test.drain()
        after = len(test.assert_added(embed_batch))

    assert (before, after) == (3, 6)
    assert api.done["/embeddings"] == {"handbook-0", "handbook-1", "handbook-2"}
    assert await database.run(_embedded) == {"handbook": ("ready", 45)}


async def _mailbox(name: str, **columns: object) -> None:
    def insert(db: Connection) -> None:
        names, marks = ", ".join(["id", *columns]), ", ".join("?" * (1 + len(columns)))
        db.execute(f"INSERT INTO mailboxes ({names}) VALUES ({marks})", (name, *columns.values()))

    await database.run(insert)


async def _row(name: str) -> tuple[str, int]:
    row = await database.run(
        lambda db: db.execute("SELECT stage, failures FROM mailboxes WHERE id = ?", (name,)).fetchone()
    )
    return row[0], row[1]


async def _messages() -> dict[str, int]:
    return dict(
        await database.run(lambda db: db.execute("SELECT mailbox, count(*) FROM messages GROUP BY mailbox").fetchall())
    )


def _wait_of_ada(db: Connection) -> int:
    (wait,) = db.execute("SELECT retry_at - since FROM mailboxes WHERE id = 'ada'").fetchone()
    return round(float(wait))


def _upload(db: Connection, lines: dict[str, int], since: float | None = None) -> None:
    at = datetime.now(UTC).timestamp() if since is None else since
    db.executemany(
        "INSERT INTO documents (id, text, since) VALUES (?, ?, ?)",
        [(name, "a line\n" * many, at) for name, many in lines.items()],
    )


def _embedded(db: Connection) -> dict[str, tuple[str, int]]:
    rows = db.execute(
        "SELECT id, status, count(vector) FROM documents LEFT JOIN segments ON document = id GROUP BY id"
    ).fetchall()
    return {name: (status, many) for name, status, many in rows}
