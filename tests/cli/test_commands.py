"""The commands that add jobs and look after queues, as people and as programs use them."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.conftest import Fresh, Toril, documents, on
from tests.conformance.jobs import claim, settle
from tests.declared import declared
from toril import App, Job
from toril.cli.main import toril as command
from toril.model import Cancelled, Completed, Failed, Failure, Heartbeat, Keep

JOB_KEYS = {
    "queue", "id", "name", "state", "ending", "data", "priority", "max_attempts", "attempts_made", "stalls", "progress",
    "result", "error", "error_kind", "cancelling", "unreadable", "metadata", "worker", "added_at", "started_at",
    "finished_at", "due_at", "expires_at", "rest", "parent", "dead_letter", "group", "subject",
}  # fmt: skip
RUN_KEYS = {
    "queue", "id", "name", "ending", "cause", "attempts_made", "stalls", "worker", "added_at", "started_at",
    "finished_at", "parent", "text", "whole",
}  # fmt: skip
QUEUE_KEYS = {
    "queue", "waiting", "prioritized", "active", "delayed", "waiting_children", "resting", "completed", "failed",
    "paused", "completed_total", "failed_total", "cancelled_total", "concurrency", "rate", "max_waiting", "declared",
}  # fmt: skip
WORKER_KEYS = {
    "worker", "queues", "slots", "running", "queue_slots", "host", "pid", "version", "started_at", "seen_at", "orders",
    "loop_lag_ms", "silent_ms",
}  # fmt: skip


async def _works(ctx: Any) -> dict[str, int]:
    await ctx.log("at it")
    return {"n": ctx.data["n"]}


async def _fails(ctx: Any) -> None:
    raise ValueError("no good")


def shop(url: str) -> None:
    """Two completed jobs, of which one is kept, a failed one, one that waits and one that is delayed."""

    async def fill(app: App) -> None:
        email = app.queue("email", {"works": _works, "fails": _fails})
        await email.add("works", {"n": 1}, job_id="gone")
        await email.add("works", {"n": 2}, job_id="kept", keep_completed=True)
        await email.add("fails", None, job_id="bad", attempts=1, keep_failed=True)
        await app.run(burst=True)
        await email.add("works", {"n": 3}, job_id="next", metadata={"actor": "ada"})
        await email.add("works", {"n": 4}, job_id="later", delay=3600)

    on(url, fill)


def job(url: str, name: str) -> Job[Any] | None:
    return on(url, lambda app: app.queue("email").job(name))


# adding


def test_a_job_is_added_with_its_payload_and_options(toril: Toril, url: str) -> None:
    told = toril(
        "add", "--create", "email", "hi", '{"to": "ada"}', "--job-id", "mine", "--attempts", "7", "--delay", "2h"
    ).stdout

    assert told == "Added job mine (hi) to email.\n"
    found = job(url, "mine")
    assert found is not None
    assert found.record is not None
    assert (found.name, found.data) == ("hi", {"to": "ada"})
    assert (found.record.max_attempts, found.record.delay) == (7, 7200)


def test_a_job_for_a_queue_that_is_not_there_is_refused(toril: Toril, url: str) -> None:
    no_store = toril("add", "email", "hi", code=1).stderr
    made = (Path(url.removeprefix("sqlite:///")).exists(), toril("add", "--create", "email", "hi").exit_code)
    slip = toril("add", "emial", "hi", code=1).stderr
    toril("add", "email", "hi")

    assert "there is no store at" in no_store
    assert no_store.endswith(" (use --create to create it)\n")
    assert made == (False, 0)
    assert "there is no queue 'emial' in this store; did you mean 'email'? (use --create to create it)" in slip
    assert on(url, lambda app: app.store.queues()) == ["email"]


def test_the_first_job_of_a_queue_that_a_worker_serves_is_added(toril: Toril, url: str) -> None:
    """On Redis a queue is in the store from its first job on."""
    beat = Heartbeat(worker="w", queues=["email"], slots=1, running=0, declares={"email": declared("greet")})
    on(url, lambda app: app.store.heartbeat(beat, ttl=600_000))

    told = toril("add", "email", "greet").stdout

    assert told == "Added job 1 (greet) to email.\n"


def test_a_queue_that_a_worker_serves_is_listed_before_its_first_job(toril: Toril, url: str) -> None:
    beat = Heartbeat(worker="w", queues=["email"], slots=3, running=0, declares={"email": declared("greet")})
    on(url, lambda app: app.store.heartbeat(beat, ttl=600_000))

    (listed,) = documents(toril("queues", "--json").stdout)

    assert (listed["queue"], listed["declared"]["workers"], listed["waiting"]) == ("email", 1, 0)
    assert [each.queue for each in on(url, lambda app: app.overview()).queues] == ["email"]
    assert "did you mean 'email'?" in toril("jobs", "emial", code=1).stderr


def test_a_sign_of_life_with_a_name_that_no_queue_can_have_hides_no_queue(toril: Toril, url: str) -> None:
    beat = Heartbeat(worker="w", queues=["email", "<b>{}</b>"], slots=3, running=0)
    on(url, lambda app: app.store.heartbeat(beat, ttl=600_000))

    assert [listed["queue"] for listed in documents(toril("queues", "--json").stdout)] == ["email"]


def test_a_job_gets_what_the_workers_of_its_queue_declare(toril: Toril, url: str) -> None:
    alone = toril("add", "--create", "email", "greet", "--job-id", "alone")
    said = declared("greet", max_attempts=2, keep_failed=Keep(7))
    beat = Heartbeat(worker="w", queues=["email"], slots=1, running=0, declares={"email": said})
    on(url, lambda app: app.store.heartbeat(beat, ttl=600_000))
    told = toril("add", "email", "greet", "--job-id", "told")
    toril("add", "email", "greet", "--job-id", "own", "--attempts", "9", "--keep-failed", "1")

    jobs = on(url, lambda app: app.store.jobs("email", ["alone", "told", "own"]))
    assert [job and (job.max_attempts, job.options.keep_failed) for job in jobs] == [
        (5, Keep(0)), (2, Keep(7)), (9, Keep(1)),
    ]  # fmt: skip
    assert alone.stderr.startswith("No live worker declares email: the job gets 5 attempts")
    assert told.stderr == ""


def test_a_job_whose_name_looks_like_a_slip_is_refused(toril: Toril, url: str) -> None:
    toril("add", "--create", "email", "gret")  # no worker has told its handlers
    beat = Heartbeat(worker="w", queues=["email"], slots=1, running=0, declares={"email": declared("greet")})
    on(url, lambda app: app.store.heartbeat(beat, ttl=600_000))

    slip = toril("add", "email", "gret", code=2).stderr
    toril("add", "email", "gret", "--any-name")
    fits = toril("add", "email", "greet")
    other = toril("add", "email", "resize")

    assert "no live worker has a handler for 'gret' in queue 'email'; did you mean 'greet'?" in slip
    assert "--any-name" in slip
    assert fits.stderr == ""
    assert other.stderr == "No live worker has a handler for 'resize' in queue 'email'.\n"
    assert on(url, lambda app: app.queue("email").counts()).waiting == 4


@pytest.mark.parametrize("data", ["-", "@payload.json"])
def test_a_payload_can_come_from_the_input_or_a_file(toril: Toril, url: str, folder: Path, data: str) -> None:
    (folder / "payload.json").write_text('{"to": "grüße"}', "utf-8")

    toril("add", "--create", "email", "hi", data, "--job-id", "mine", given='{"to": "grüße"}')

    found = job(url, "mine")
    assert found is not None
    assert found.data == {"to": "grüße"}


def test_the_same_id_again_adds_nothing_and_says_so(toril: Toril, url: str) -> None:
    toril("add", "--create", "email", "hi", "--job-id", "mine")

    assert "nothing was added" in toril("add", "--create", "email", "hi", "--job-id", "mine").stdout
    (answer,) = documents(toril("add", "--create", "email", "hi", "--job-id", "mine", "--json").stdout)
    assert answer == {"queue": "email", "id": "mine", "name": "hi", "added": False}


def test_the_default_store_is_made_here_when_a_job_is_added(toril: Toril, folder: Path) -> None:
    toril("add", "--create", "email", "hi")

    assert (folder / "toril.db").exists()
    assert "email" in toril("queues").stdout


# looking


def test_queues_are_listed_with_their_counts(toril: Toril, url: str) -> None:
    shop(url)

    heads, values = (line.split() for line in toril("queues").stdout.splitlines())

    shown = dict(zip(heads, values, strict=False))
    assert shown["queue"] == "email"
    assert [shown[name] for name in ("waiting", "delayed", "completed", "failed", "kept")] == ["1", "1", "2", "1", "2"]


def test_cancelled_jobs_are_counted_and_listed_apart_from_failed_ones(toril: Toril, url: str) -> None:
    shop(url)
    toril("add", "email", "works", "--job-id", "unwanted")
    toril("add", "email", "works", "--job-id", "stored", "--keep-failed", "5")
    for each in ("unwanted", "stored"):
        toril("job", "cancel", "email", each, "--reason", "not wanted")

    heads, values = (line.split() for line in toril("queues").stdout.splitlines())
    shown = dict(zip(heads, values, strict=False))
    (found,) = documents(toril("metrics", "email", "--json").stdout)
    runs = documents(toril("jobs", "email", "--runs", "--state", "cancelled", "--json").stdout)
    listed = {state: toril("jobs", "email", "--state", state).stdout for state in ("failed", "cancelled")}

    assert [shown[name] for name in ("completed", "failed", "cancelled", "kept")] == ["2", "1", "2", "3"]
    assert (found["failed"], found["cancelled"], found["failures"]) == (1, 2, {"fails": 1})
    assert "cancelled" in toril("metrics", "email").stdout
    assert {(run["id"], run["ending"], run["cause"]) for run in runs} == {
        ("unwanted", "cancelled", "cancelled"), ("stored", "cancelled", "cancelled"),
    }  # fmt: skip
    assert ("bad" in listed["failed"], "stored" in listed["failed"]) == (True, False)
    assert ("bad" in listed["cancelled"], "stored" in listed["cancelled"]) == (False, True)
    assert "cancelled" in toril("job", "show", "email", "stored").stdout.splitlines()[1]
    assert "was cancelled" in toril("job", "why", "email", "unwanted").stdout
    assert "cancelled stored" in toril("events", "email").stdout


def test_queues_can_be_listed_by_their_bytes(toril: Toril, url: str) -> None:
    shop(url)
    toril("add", "--create", "large", "x", json.dumps("x" * 50_000))

    largest, other = (json.loads(line) for line in toril("queues", "--bytes", "--json").stdout.splitlines())
    table = toril("queues", "--bytes").stdout.splitlines()

    assert (largest["queue"], other["queue"]) == ("large", "email")
    assert 50_000 <= largest["bytes"] <= 100_000
    assert 0 < other["bytes"] < 50_000
    assert table[0].split()[-1] == "bytes"
    assert table[1].split()[-1] == f"{largest['bytes']:,}"


def test_jobs_are_listed_in_every_state(toril: Toril, url: str) -> None:
    shop(url)

    lines = toril("jobs", "email").stdout.splitlines()[1:]

    assert [line.split()[0] for line in lines] == ["next", "later", "bad", "kept"]
    assert "no good" in lines[2]


def test_the_jobs_of_one_state_can_be_had_alone(toril: Toril, url: str) -> None:
    shop(url)

    (found,) = documents(toril("jobs", "email", "--state", "failed", "--json").stdout)

    assert (found["id"], found["error"], found["error_kind"]) == ("bad", "no good", "ValueError")


def test_a_listing_goes_on_where_the_last_one_ended(toril: Toril, url: str) -> None:
    shop(url)
    seen: list[str] = []
    cursor: list[str] = []

    for _ in range(10):
        page = toril("jobs", "email", "--json", "--limit", "1", *cursor)
        seen += [each["id"] for each in documents(page.stdout)]
        if not page.stderr:
            break
        cursor = ["--cursor", documents(page.stderr)[0]["cursor"]]

    assert seen == ["next", "later", "bad", "kept"]


def test_runs_of_all_endings_are_listed_in_the_order_in_which_they_ended(toril: Toril, url: str) -> None:
    async def work(app: App) -> None:
        queue, moment = app.queue("mixed"), 1_900_000_000_000
        await queue.add_many([(name, None) for name in "abcdefg"])
        for number, job in enumerate((await claim(app.store, 7, queue="mixed", now=moment)).jobs):
            failed = Failed(Failure("no good")) if number in {1, 2, 5} else None
            outcome = failed or (Cancelled("enough") if number == 3 else Completed("1"))
            await settle(app.store, job.lease, outcome, now=moment + number)

    on(url, work)

    def names(*words: str) -> list[str]:
        return [each["name"] for each in documents(toril("jobs", "mixed", "--runs", "--json", *words).stdout)]

    assert names() == list("gfedcba")
    assert names("--state", "failed") == list("fcb")
    for size in range(1, 8):
        seen: list[str] = []
        cursor: list[str] = []
        for _ in range(8):
            page = toril("jobs", "mixed", "--runs", "--json", "--limit", str(size), *cursor)
            seen += [each["name"] for each in documents(page.stdout)]
            if not page.stderr:
                break
            cursor = ["--cursor", documents(page.stderr)[0]["cursor"]]
        assert seen == list("gfedcba"), f"in pages of {size}"


def test_runs_are_remembered_when_the_jobs_are_gone(toril: Toril, url: str) -> None:
    shop(url)

    runs = documents(toril("jobs", "email", "--runs", "--json").stdout)

    assert {(run["id"], run["cause"]) for run in runs} == {
        ("gone", "completed"), ("kept", "completed"), ("bad", "failed"),
    }  # fmt: skip


def test_a_job_is_shown_with_its_log_and_traceback(toril: Toril, url: str) -> None:
    shop(url)

    assert "at it" in toril("job", "show", "email", "kept").stdout
    shown = toril("job", "show", "email", "bad").stdout
    assert "ValueError: no good" in shown
    assert "Traceback" in shown


def test_a_job_that_is_gone_is_shown_by_its_run_record(toril: Toril, url: str) -> None:
    shop(url)

    assert "run record" in toril("job", "show", "gone").stdout
    (run,) = documents(toril("job", "show", "gone", "--json").stdout)
    assert run["text"] == '{"n":1}'


def test_the_queue_can_be_left_out_where_the_id_says_enough(toril: Toril, url: str) -> None:
    shop(url)
    toril("add", "--create", "other", "hi", "--job-id", "next")

    toril("job", "promote", "later")

    assert (
        "several queues have a job 'next': email, other. Name the queue"
        in toril("job", "cancel", "next", code=1).stderr
    )
    toril("job", "cancel", "other", "next")


@pytest.mark.parametrize("form", ["", "--json"])
def test_workers_are_listed_while_they_live(toril: Toril, url: str, form: str) -> None:
    assert "toril run" in _quiet(toril, url)

    async def look(app: App) -> str:
        async def nothing(ctx: Any) -> None: ...

        app.queue("reports", [nothing])  # without the job of `email`, which a first sign of life may show as running
        async with asyncio.TaskGroup() as group:
            work = group.create_task(app.run())
            while not await app.store.workers():  # noqa: ASYNC110 - a sign of life has no event
                await asyncio.sleep(0.01)
            words = ["workers", *form.split()]
            shown = await asyncio.to_thread(lambda: CliRunner().invoke(command, words).stdout)
            app.stop()
            await work
            return shown

    shown = on(url, look)

    assert ({*documents(shown)[0]} == WORKER_KEYS) if form else ("reports" in shown and "0 of 1" in shown)


def _quiet(toril: Toril, url: str) -> str:
    toril("add", "--create", "email", "hi")
    return toril("workers").stderr


@pytest.mark.covers("B119")
@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("queues", QUEUE_KEYS), ("jobs email", JOB_KEYS), ("jobs email --runs", RUN_KEYS),
        ("job show kept", JOB_KEYS | {"logs", "traceback", "errors", "children"}), ("job show gone", RUN_KEYS),
        ("add email hi", {"queue", "id", "name", "added"}), ("pause email", {"queue", "paused", "active", "waiting"}),
        ("resume email", {"queue", "paused", "active", "waiting"}), ("drain email --yes", {"queue", "removed"}),
        ("clean email --yes", {"queue", "removed"}), ("obliterate email --yes", {"queue", "removed"}),
        ("job retry bad", {"queue", "id", "name", "done"}), ("job promote later", {"queue", "id", "name", "done"}),
        ("job remove next --yes", {"queue", "id", "name", "done"}),
        ("job cancel next", {"queue", "id", "name", "outcome"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_programs_get_one_document_a_line_with_the_same_keys(
    toril: Toril, url: str, words: str, keys: set[str]
) -> None:
    shop(url)

    found = documents(toril(*words.split(), "--json").stdout)

    assert found
    assert all(set(document) == keys for document in found)


# looking after


def test_a_queue_is_paused_and_resumed(toril: Toril, url: str) -> None:
    shop(url)

    assert toril("pause", "email").stdout == "Paused email (0 still running, 1 waiting).\n"
    assert documents(toril("queues", "--json").stdout)[0]["paused"] is True
    assert toril("resume", "email").stdout == "Resumed email (1 waiting).\n"
    assert documents(toril("queues", "--json").stdout)[0]["paused"] is False


@pytest.mark.parametrize(
    ("words", "state"),
    [("retry bad", "waiting"), ("promote later", "waiting"), ("cancel next", None), ("remove next --yes", None)],
)
def test_a_job_can_be_retried_promoted_cancelled_and_removed(
    toril: Toril, url: str, words: str, state: str | None
) -> None:
    shop(url)

    toril("job", *words.split())

    found = job(url, words.split()[1])
    assert (None if found is None or found.record is None else found.record.state) == state


@pytest.mark.parametrize("words", ["email next", "next"])
def test_why_tells_the_reason_of_a_cancellation(toril: Toril, url: str, words: str) -> None:
    shop(url)
    toril("job", "cancel", "next", "--reason", "the customer left")

    told = toril("job", "why", *words.split()).stdout

    assert told.startswith("It was cancelled ")
    assert told.endswith(" UTC and is no longer stored. Reason: the customer left\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("job retry email next", "is waiting and cannot be retried"),
        ("job promote email next", "is waiting and cannot be promoted"),
        ("job show email nothing", "there is no job 'nothing' in queue 'email'"),
        ("job cancel nothing", "there is no job 'nothing' in any queue"),
        ("jobs emial", "did you mean 'email'?"),
        ("pause emial", "did you mean 'email'?"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(toril: Toril, url: str, words: str, told: str) -> None:
    shop(url)

    shown = toril(*words.split(), code=1).stderr

    assert told in shown
    assert len(shown.splitlines()) == 1
    assert [queue["queue"] for queue in documents(toril("queues", "--json").stdout)] == ["email"]


def test_sweeps_remove_what_they_say(toril: Toril, url: str) -> None:
    shop(url)

    assert toril("clean", "email", "--yes", "--older-than", "1h").stdout == "Removed 0 jobs.\n"
    assert toril("clean", "email", "--yes").stdout == "Removed 1 job.\n"
    assert toril("drain", "email", "--yes").stdout == "Removed 1 job.\n"
    assert toril("drain", "email", "--yes", "--delayed").stdout == "Removed 1 job.\n"
    assert toril("drain", "email", "--delayed").stdout == "Removed 0 jobs.\n", "there is nothing to ask about"
    assert toril("clean", "email").stdout == "Removed 0 jobs.\n"
    assert toril("obliterate", "email", "--yes").stdout == "Removed 1 job.\n"
    assert documents(toril("queues", "--json").stdout) == []


# the command itself


def test_the_bare_command_and_its_help_say_the_same(toril: Toril) -> None:
    assert toril().stdout == toril("--help").stdout
    assert "obliterate" in toril("-h").stdout


@pytest.mark.parametrize(
    "words",
    ["run", "add", "queues", "workers", "jobs", "job", "job show", "pause", "resume", "drain", "clean", "obliterate",
     "demo"],
)  # fmt: skip
def test_every_command_has_its_help(toril: Toril, words: str) -> None:
    assert toril(*words.split(), "--help").stdout.startswith(f"Usage: toril {words}")


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_the_help_imports_nothing_heavy(fresh: Fresh, word: str) -> None:
    code = "import sys; sys.argv = ['toril', sys.argv[1]]; import atexit; from toril.cli.main import main; "
    code += "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    process = fresh(word, args=[sys.executable, "-c", code, word])

    out, loaded = process.communicate(timeout=60)

    assert process.returncode == 0
    assert "toril" in out
    assert not {"pydantic", "rich", "sqlite3", "toril.app", "toril.model"} & set(loaded.split())


@pytest.mark.parametrize("width", ["20", "40", "60", "200"])
def test_a_table_fits_the_terminal(toril: Toril, url: str, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    shop(url)
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("rich.console.Console.is_terminal", True)

    for words in (["queues"], ["jobs", "email"], ["jobs", "email", "--runs"]):
        lines = toril(*words).stdout.splitlines()

        assert all(0 < len(line) <= int(width) for line in lines)
        assert lines[0].split()[0] in {"queue", "id"}
