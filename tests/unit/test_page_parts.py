"""What pages are made of, without a page: words, pictures, histories, tracebacks, searches."""

from dataclasses import replace
from typing import Any

import pytest

from toril.model import (
    Backoff,
    CircuitRow,
    Counts,
    EventKind,
    EventRow,
    Failure,
    Finding,
    JobOptions,
    JobRow,
    QueueSummary,
    RunStatus,
    Settings,
    Severity,
    WorkerRow,
)
from toril.model.states import State
from toril.operate.why import Explanation, failed
from toril.policy.attention import (
    CircuitOpen,
    HighFailureRate,
    ManyDeadLetters,
    NoWorker,
    Paused,
    Slow,
    Stalling,
    StoreUnwell,
)
from toril.policy.search import JobFilter
from toril.web.pages.attention import of_queue, troubles
from toril.web.pages.drawing import last_runs, spark
from toril.web.pages.job import explained
from toril.web.pages.search_box import typed
from toril.web.pages.timeline import chronicle
from toril.web.templates import Name, clock_time, compact, framed, number, percent, plural, size, span
from toril.web.tracebacks import TracebackLine, lines_of

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("ms", "text"),
    [(None, "\u2013"), (0, "0 ms"), (420, "420 ms"), (1_800, "1.8 s"), (9_000, "9 s"), (30_400, "30 s"),
     (59_600, "1m 00s"), (252_000, "4m 12s"), (7_560_000, "2h 06m"), (90_000_000, "1d 1h"), (-5, "0 ms")],
)  # fmt: skip
def test_durations_have_their_two_largest_units(ms: float | None, text: str) -> None:
    assert span(ms) == text.replace(" ", "\u00a0")


def test_figures_are_written_in_one_way() -> None:
    assert (number(1284.4), number(None), percent(28.44), plural(1, "job"), plural(2, "child", "children")) == (
        "1,284", "\u2013", "28.4\u00a0%", "1\u00a0job", "2\u00a0children")  # fmt: skip
    assert (size(310), size(1_900), clock_time(NOW), compact({"a": "x" * 9}, 8)) == (
        "310\u00a0B", "1.9\u00a0kB", "08:00:00", '{"a": "…')  # fmt: skip


@pytest.mark.parametrize(
    ("text", "filter_", "identity"),
    [
        ("", JobFilter(), None),
        ("  429 ", JobFilter(text="429"), None),
        ("name:embed error:429 data.org:nordwind rest of it",
         JobFilter(name="embed", error="429", key="org=nordwind", text="rest of it"), None),
        ("id:91f4", JobFilter(), "91f4"),
        ('error:"timed out"', JobFilter(error="timed out"), None),
        ("data.user.id=7", JobFilter(key="user.id=7"), None),
        ("https://x.example", JobFilter(text="https://x.example"), None),
        ('group:"Nordwind AG" subject:app:7 late', JobFilter(group="Nordwind AG", subject="app:7", text="late"), None),
        ("data.org: x", JobFilter(key="org", text="x"), None),
        ('name: error:"" "open', JobFilter(text="open"), None),
        ("(a+)+$ % _", JobFilter(text="(a+)+$ % _"), None),
    ],
)  # fmt: skip
def test_a_search_has_words_for_one_place_and_words_for_all(text: str, filter_: JobFilter, identity: str) -> None:
    found = typed(text)

    assert (found.filter, found.id) == (filter_, identity)


def test_a_chosen_error_is_overruled_by_a_typed_one() -> None:
    assert typed("", "refused").filter == JobFilter(error="refused")
    assert typed("error:429", "refused").body() == {"error": "429"}


def test_a_spark_is_as_high_as_its_highest_minute() -> None:
    drawn = spark([0] * 30 + [10] * 31, [0] * 60 + [9])

    assert drawn.line.startswith("M0 22L")
    assert drawn.line.endswith("100 2")
    assert drawn.ticks == ""  # of the minute under way nothing is drawn
    assert spark([0, 4, 0], [0, 1, 0]).ticks == "M100 24v-18"


TRACE = """Traceback (most recent call last):
  File "/usr/lib/python3.11/asyncio/runners.py", line 190, in run
    return runner.run(main)
           ^^^^^^^^^^^^^^^^
  File "/app/helpdesk/jobs.py", line 48, in embed
    vectors = await client.embed(ctx.data)
  File "/venv/lib/python3.11/site-packages/embedkit/client.py", line 212, in embed
    return self._raise(reply)
  File "/venv/lib/python3.11/site-packages/embedkit/client.py", line 99, in _raise
    raise TooManyRequests(reply)
  File "/venv/lib/python3.11/site-packages/httpx/x.py", line 1, in y
    pass
embedkit.TooManyRequests: 429"""


def test_a_traceback_has_the_frames_of_libraries_dimmed_and_folded() -> None:
    assert lines_of(TRACE) == [
        TracebackLine("Traceback (most recent call last):", "lib"),
        TracebackLine('  File "/usr/lib/python3.11/asyncio/runners.py", line 190, in run', "lib"),
        TracebackLine("    return runner.run(main)", "lib"),
        TracebackLine('  File "/app/helpdesk/jobs.py", line 48, in embed'),
        TracebackLine("    vectors = await client.embed(ctx.data)"),
        TracebackLine('  File "/venv/lib/python3.11/site-packages/embedkit/client.py", line 212, in embed', "lib"),
        TracebackLine("    return self._raise(reply)", "lib"),
        TracebackLine("  … 2 frames in embedkit, httpx", "lib"),
        TracebackLine("embedkit.TooManyRequests: 429", "err"),
    ]
    assert lines_of("") == []
    assert lines_of("ValueError: x") == [TracebackLine("ValueError: x", "err")]


@pytest.mark.parametrize("where", ["/app/src/toril", "/venv/lib/python3.11/site-packages/toril", "C:\\venv\\toril"])
def test_our_own_frames_are_folded_in_every_stack_of_a_traceback(where: str) -> None:
    slash = "\\" if "\\" in where else "/"
    ours = f'''  File "{where}{slash}worker{slash}attempt.py", line 80, in outcome_of
    result = await invoke(entry)
  File "{where}{slash}middleware.py", line 42, in call
    return await run()
'''
    trace = f"""Traceback (most recent call last):
{ours}  File "/app/jobs.py", line 7, in charge
    pay()
KeyError: 'card'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
{ours}  File "/app/jobs.py", line 9, in charge
    raise ValueError("no card")
ValueError: no card"""

    assert [line.text for line in lines_of(trace)] == [
        "Traceback (most recent call last):",
        "  … 2 frames in toril",
        '  File "/app/jobs.py", line 7, in charge',
        "    pay()",
        "KeyError: 'card'",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        "  … 2 frames in toril",
        '  File "/app/jobs.py", line 9, in charge',
        '    raise ValueError("no card")',
        "ValueError: no card",
    ]


def test_cancelled_runs_of_a_schedule_are_drawn_apart() -> None:
    drawn = last_runs([(1, 100, RunStatus.COMPLETED), (3, 0, RunStatus.CANCELLED), (2, 50, RunStatus.FAILED)])

    assert drawn is not None
    assert (drawn.good, drawn.bad, drawn.cancelled) == ("M56 16v-13", "M62 16v-8", "M68 16v-3")
    assert drawn.said == "Last 3 runs, 1 failed, 1 cancelled"


def test_a_cancelled_job_does_not_look_like_a_failed_one() -> None:
    ended = record(
        state=State.FAILED, failure=Failure("not wanted", "JobCancelled"), finished_at=NOW, started_at=NOW - 5_000
    )

    steps, _ = chronicle(ended, [], NOW)
    told, _ = chronicle(ended, [EventRow("1", NOW, EventKind.CANCELLED, "7", {"failedReason": "not wanted"})], NOW)

    assert (steps[-1].cls, steps[-1].word) == ("cancelled", "Cancelled")
    assert [(step.word, step.more) for step in told] == [("Added", ""), ("Started", ""), ("Cancelled", "not wanted")]


def record(**given: Any) -> JobRow:
    plain: dict[str, Any] = {
        "queue": "email", "id": "7", "name": "send", "data": "{}", "state": State.WAITING, "max_attempts": 3,
        "attempts_made": 0, "stalls": 0, "starts": 0, "fence": 0, "priority": 0, "delay": 0, "due": None,
        "options": JobOptions(backoff=Backoff(kind="fixed", delay=1000)), "expires_at": None,
        "metadata": None, "checkpoint": None, "progress": None, "result": None, "failure": None, "stall_cause": None,
        "cancelling": None, "worker": None, "added_at": NOW - 10_000, "started_at": None, "finished_at": None,
        "deadline": None,
    }  # fmt: skip
    return JobRow(**plain | given)


def event(kind: EventKind, ago: int, **detail: str) -> EventRow:
    return EventRow(str(ago), NOW - ago, kind, "7", detail)


def test_history_is_told_in_steps_with_what_each_took() -> None:
    events = [
        event(EventKind.ADDED, 10_000), event(EventKind.WAITING, 10_000), event(EventKind.ACTIVE, 8_000),
        event(EventKind.PROGRESS, 7_500), event(EventKind.DELAYED, 7_000),
        event(EventKind.WAITING, 5_000, prev="delayed"),
        event(EventKind.ACTIVE, 4_000), event(EventKind.FAILED, 2_000, failedReason="it broke"),
    ]  # fmt: skip
    steps, parts = chronicle(record(state=State.FAILED, finished_at=NOW - 2_000), events, NOW)

    assert [(step.word, step.more, step.ended and step.ended - step.at) for step in steps] == [
        ("Added", "", 2_000), ("Attempt 1", "", 1_000), ("Delayed", "", 2_000), ("Waiting", "was delayed", 1_000),
        ("Attempt 2", "", 2_000), ("Failed", "it broke", None),
    ]  # fmt: skip
    assert [(part.cls, round(part.x)) for part in parts] == [
        ("wait", 0), ("active", 25), ("delayed", 38), ("wait", 62), ("active", 75)]  # fmt: skip


def test_where_events_are_gone_the_record_tells_the_rest() -> None:
    done = record(state=State.COMPLETED, started_at=NOW - 5_000, finished_at=NOW - 1_000, starts=2)
    steps, _ = chronicle(done, [], NOW)

    assert [(step.word, step.more) for step in steps] == [
        ("Added", ""),
        ("Started", "2\u00a0starts"),
        ("Completed", ""),
    ]


VIEW = QueueSummary(
    name="email",
    counts=Counts(active=1),
    settings=Settings(concurrency=2),
    completed_total=0,
    failed_total=0,
    cancelled_total=0,
)
WORKER = WorkerRow(
    id="w", queues=("email", "other"), slots=22, running=3, host="h", pid=1, version="1", started_at=0, seen_at=0,
    queue_slots={"email": (5, 2), "other": (17, 1)},
)  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "facts", "text", "to"),
    [
        ("circuit", {"circuit": "mail", "state": "open"}, "Circuit mail is open", ("breakers",)),
        ("paused", {}, "Queue email is paused", ("queues", "email")),
        ("no_worker", {}, "No worker serves this queue", ("workers",)),
        ("quiet", {}, "All workers for this queue are quiet", ("workers",)),
        ("no_handler", {"name": "send"}, "No live worker has a handler for send", ("workers",)),
        (
            "concurrency",
            {"concurrency": 2, "running": ["1"]},
            "The queue is at its concurrency limit of 2",
            ("queues", "email"),
        ),
        ("rate", {}, "The queue has reached its rate limit", ("queues", "email")),
        ("group_limit", {"group": "a", "holders": ["1"]}, "Group a is at its limit", ("groups",)),
        ("waiting_children", {"open": 1, "children": 4}, "1 of 4\u00a0children have not ended", ()),
        ("not_due", {}, "It is not due yet", ()),
        ("alone", {"ahead": 0}, "It runs in isolation because its worker died", ("workers",)),
        ("behind", {"ahead": 2}, "2\u00a0jobs are ahead of it", ("queues", "email")),
    ],
)
def test_what_holds_a_job_back_leads_to_where_it_can_be_changed(
    reason: str, facts: dict[str, Any], text: str, to: tuple[str, ...]
) -> None:
    why = explained(Explanation(reason, "Because.", facts), record(), VIEW, [WORKER], NOW)

    assert why is not None
    assert [(hold.text, tuple(hold.to)) for hold in why.holds] == [(text, to)]


def test_the_checks_that_passed_are_named() -> None:
    why = explained(Explanation("next", "It is the next."), record(), VIEW, [WORKER], NOW)

    assert why is not None
    assert list(why.fine) == [
        "Queue is not paused", "1\u00a0worker, 3 of 5\u00a0slots free", "It is due", "1 of 2 running",
        "No open children",
    ]  # fmt: skip


@pytest.mark.parametrize(("others", "listens"), [([], []), ([WORKER], ["1\u00a0worker, 3 of 5\u00a0slots free"])])
def test_a_worker_that_was_told_to_be_quiet_has_no_free_slots(others: list[WorkerRow], listens: list[str]) -> None:
    quiet = replace(WORKER, id="quiet", orders=("quiet",))

    why = explained(Explanation("next", "It is the next."), record(), VIEW, [quiet, *others], NOW)

    assert why is not None
    assert [line for line in why.fine if "slot" in line] == listens


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.ACTIVE])
def test_of_a_job_that_runs_or_has_ended_nobody_asks_why_not(state: State) -> None:
    assert explained(Explanation("running", "."), record(state=state), VIEW, [], NOW) is None


def test_every_need_has_words_a_cause_and_one_button() -> None:
    finding = Finding(code="x", severity=Severity.ERROR, summary="keys are thrown away", where="w", fix="CONFIG SET")
    needs: list[Any] = [
        NoWorker("email", 1, 9, 4.0), HighFailureRate("email", 1, 28.4, 0.8, 12), CircuitOpen("mail", 1, 2),
        StoreUnwell(None, finding), Slow("email", 1, 252.0, 120.0, True, 96.0), Stalling("email", None, 4),
        ManyDeadLetters(None, 100), Paused("email", 1, 861, "jonas"),
    ]  # fmt: skip
    told = troubles(needs)

    assert all(each.statement and each.cause and each.button and (each.to or each.act) for each in told)
    assert told[0].cause == ("9\u00a0jobs waiting, growing by 4 per minute.",)
    assert told[4].cause == ("The target is 2m\u00a000s. All slots are busy; the backlog grows by 96 per minute.",)
    assert told[5].statement == ("4\u00a0jobs in ", Name("email", ("queues", "email")), " stalled in the last hour")
    assert "lost" not in str(told[5].cause)
    assert troubles([HighFailureRate("email", 1, 50.0, None, 20)])[0].cause == (
        "20 in the last 30 minutes; nothing earlier this week to compare with.",
    )
    assert (told[7].act, told[7].at) == ("resume", ("queues", "email"))
    assert len(of_queue(needs, "email")) == 5


def test_names_stand_apart_from_sentences() -> None:
    (told,) = troubles([CircuitOpen("mail", 1, 2)])

    assert Name("mail", ("breakers",)) in told.statement
    assert CircuitRow(key="mail").key not in "".join(part for part in told.statement if isinstance(part, str))


@pytest.mark.parametrize(("url", "place"), [
    ("sqlite:///srv/jobs.db?synchronous=normal", "jobs.db"),
    ("redis://user:secret@one:7001/2?timeout=5", "one:7001"),
    ("redis+cluster://one?timeout=5", "one"),
    ("postgresql://user:secret@one:5432/shop?schema=jobs", "one:5432/shop"),
    ("postgres:///shop", "shop"),
    ("redis+sentinel://user:secret@one:7001,two,[::1]:7003/jobs/3", "one:7001,two,[::1]:7003"),
])  # fmt: skip
def test_the_place_of_a_store_is_shown_without_its_user(url: str, place: str) -> None:
    assert framed(url)["store"]["place"] == place


@pytest.mark.parametrize(
    ("stalls", "said"), [(0, "after 1 of 3 attempts and"), (1, "attempts, its worker lost once, and"),
                         (2, "attempts, its worker lost 2 times, and")],
)  # fmt: skip
def test_why_a_dead_letter_failed_tells_how_often_its_worker_was_lost(stalls: int, said: str) -> None:
    lost = record(
        state=State.FAILED, dead_letter="email/1", started_at=NOW, finished_at=NOW, attempts_made=1, max_attempts=3,
        stalls=stalls,
    )  # fmt: skip

    assert said in failed(lost).sentence
