"""No field of a job that another program wrote raises, wherever the job is read, and none disturbs its neighbours."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from click.testing import CliRunner

from tests import servers
from tests.access import ANYONE_MAY_ACT
from tests.conformance.jobs import claim, settle
from tests.faults.fleet import fleet
from tests.faults.foreign import FIELDS, PLACES, SERIOUS, VALUES, Foreign, Odd, cases
from tests.faults.nursery import until
from toril import App, JobContext
from toril.cli.main import toril as command
from toril.errors import EngineUnusable, InvalidOption
from toril.model import (
    Claim,
    Claimed,
    Completed,
    Failed,
    Failure,
    FaultKind,
    NewJob,
    Outcome,
    Released,
    Replay,
    Retried,
    Settlement,
    Snoozed,
    Verdict,
)
from toril.model.states import State
from toril.operate.transfer import Transfer
from toril.runtime.clock import SYSTEM
from toril.store.engine import Store, connect
from toril.web import site
from toril.web.server import HttpServer
from toril.worker.schedules import ScheduleRuns

PATIENCE = 120.0
OUTCOMES: dict[str, Outcome] = {
    "completed": Completed("1"),
    "failed": Failed(Failure("broken", "ValueError", "a trace")),
    "retried": Retried(Failure("broken", "ValueError", "a trace")),
    "retried later": Retried(Failure("broken"), 60_000),
    "snoozed": Snoozed(60_000),
    "released": Released(),
}


@pytest.fixture
def foreign() -> Foreign:
    server = servers.running()
    server.tell("FLUSHALL")
    return Foreign(server)


def fill(foreign: Foreign, odds: Sequence[Odd], place: str) -> tuple[list[str], list[str]]:
    """Odd jobs, each with a good neighbour, in an empty store; the ids of both."""
    foreign.server.tell("FLUSHALL")
    commands: list[Sequence[object]] = []
    for number, (field, value) in enumerate(odds):
        commands += foreign.commands(f"odd-{number}", place, {field: value})
        commands += foreign.commands(f"good-{number}", place, {})
    foreign.send(*commands)
    return [f"odd-{number}" for number in range(len(odds))], [f"good-{number}" for number in range(len(odds))]


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = connect(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def served(app: App) -> AsyncIterator[httpx.AsyncClient]:
    server = HttpServer(site(app, access=ANYONE_MAY_ACT), "127.0.0.1", 0)
    port = await server.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            yield client
    finally:
        await server.close()


async def unanswered(foreign: Foreign, jobs: Sequence[str], explained: Sequence[str] | None = None) -> list[str]:
    """What does not answer, of all that shows a queue, these jobs, and why those (or these) do not run. A flow may be
    refused: what a parent is said to be in may be no name of a queue."""
    app = App(foreign.server.url)
    app.queue("q")
    paths = ["/", "/queues/q", "/flows", "/dead", "/find?q=odd-0", "/api/v1/doctor", "/api/v1/queues/q/failures"]
    async with opened(foreign.server.url) as store:
        counts = await store.counts("q")
    for state in [state for state in State if counts[state]]:
        listed = f"/api/v1/queues/q/jobs?state={state}"
        shown = "children" if state is State.WAITING_CHILDREN else state
        paths += [f"/queues/q?state={shown}", listed, f"{listed}&q=odd", f"{listed}&key=a"]
        paths += [f"/api/v1/queues/q/jobs.csv?state={state}", f"/api/v1/queues/q/count?state={state}&q=odd"]
    for job in jobs:
        paths += [f"/queues/q/jobs/{job}", f"/api/v1/queues/q/jobs/{job}"]
    for job in jobs if explained is None else explained:
        paths += [f"/api/v1/queues/q/jobs/{job}/why", f"/api/v1/queues/q/jobs/{job}/flow"]
    async with app, served(app) as client:
        answers = [(path, await client.get(path)) for path in paths]
    return [
        f"{path}: {answer.status_code} {answer.text[-200:]}"
        for path, answer in answers
        if not (answer.is_success or (answer.status_code == 422 and path.endswith("/flow")))
    ]


async def misrun(foreign: Foreign, good: Sequence[str]) -> list[str]:
    """What went wrong while a worker ran everything: each good job runs once, whatever stands beside it."""
    ran: list[str] = []

    async def note(ctx: JobContext[object]) -> None:
        ran.append(ctx.job_id)

    app = App(foreign.server.url)
    app.queue("q", {"note": note}, concurrency=10)
    async with asyncio.timeout(PATIENCE):
        await app.run(burst=True, signals="leave")
    wrong = [f"{job} ran {ran.count(job)} times" for job in good if ran.count(job) != 1]
    return wrong + await misplaced(foreign)


async def misplaced(foreign: Foreign) -> list[str]:
    """Jobs that stand nowhere, or in two places, or are held by nobody."""
    async with opened(foreign.server.url) as store:
        found = [fault async for page in store.repairs.scan(["q"]) for fault in page.items]
        left = await store.counts("q")
    return [f"{left.active} jobs are active"] * bool(left.active) + [
        str(fault) for fault in found if fault.kind in {FaultKind.ORPHAN, FaultKind.DOUBLE, FaultKind.GHOST}
    ]


async def mishandled(foreign: Foreign, outcome: Outcome) -> list[str]:
    """What is lost when all jobs are claimed, and handed in together."""
    async with opened(foreign.server.url) as store:
        taken: list[Claimed] = []
        while found := (await claim(store, 100)).jobs:
            taken += found
        for start in range(0, len(taken), 100):
            batch = [Settlement(job.lease, outcome) for job in taken[start : start + 100]]
            nothing = Claim(want=0, token=f"none-{start}", lease=1000, worker="w")
            assert set((await store.exchange("q", batch, nothing)).verdicts) == {Verdict.OK}
    return await misplaced(foreign)


async def readable(store: Store, state: State) -> int:
    """How many jobs there are in a state, counted page by page."""
    page = await store.page("q", state, limit=1000)
    count = len(page.items)
    while page.cursor is not None:
        page = await store.page("q", state, cursor=page.cursor, limit=1000)
        count += len(page.items)
    return count


async def unmoved(foreign: Foreign, jobs: int) -> list[str]:
    """What a move to another store leaves behind, or brings so that it cannot be read there."""
    async with opened(foreign.server.url) as source, opened("memory://") as target:
        async with asyncio.timeout(PATIENCE):
            moved = await Transfer(source, target, SYSTEM).move()
        read = sum([await readable(target, state) for state in State])
    return [] if moved.jobs == read == jobs else [f"{moved.jobs} of {jobs} were moved, {read} can be read"]


@pytest.mark.covers("F110", "G6")
async def test_a_worker_runs_the_neighbours_of_jobs_that_it_cannot_read(foreign: Foreign) -> None:
    for place in ("wait", "delayed"):
        _, good = fill(foreign, SERIOUS, place)

        assert await misrun(foreign, good) == []


@pytest.mark.covers("F66", "F110")
@pytest.mark.parametrize("outcome", list(OUTCOMES))
async def test_nothing_that_is_handed_in_beside_a_foreign_job_is_lost(foreign: Foreign, outcome: str) -> None:
    fill(foreign, SERIOUS, "wait")

    assert await mishandled(foreign, OUTCOMES[outcome]) == []


@pytest.mark.covers("F110")
@pytest.mark.parametrize("place", ["wait", "failed"])
async def test_foreign_jobs_are_shown_and_moved(foreign: Foreign, place: str) -> None:
    odd, good = fill(foreign, SERIOUS, place)

    assert await unanswered(foreign, odd) == []
    assert await unmoved(foreign, len(odd) + len(good)) == []


@pytest.mark.thorough
@pytest.mark.covers("F110")
@pytest.mark.parametrize("field", FIELDS)
async def test_every_field_may_be_anything(foreign: Foreign, field: str) -> None:
    odds = [each for each in cases() if each[0] == field]
    other = PLACES[FIELDS.index(field) % len(PLACES)]
    wrong = []
    for place in ("wait", "prioritized", "delayed"):
        _, good = fill(foreign, odds, place)
        wrong += await misrun(foreign, good)
    for outcome in OUTCOMES.values():
        fill(foreign, odds, "wait")
        wrong += await mishandled(foreign, outcome)
    for place in ("failed", other):
        odd, good = fill(foreign, odds, place)
        # Of single options one in five has its own pages asked for, which takes each of them with several values.
        own = odd[: len(VALUES)] + odd[len(VALUES) :: 5] if field == "opts" else odd
        own = own if place == "failed" else []
        # Every value is explained in a third of the fields, and every one of the field that makes a flow.
        wrong += await unanswered(foreign, own, own if field == "parent" else own[FIELDS.index(field) % 3 :: 3])
        wrong += await unmoved(foreign, len(odd) + len(good)) if place != "active" else []

    assert wrong == []


async def ignored(ctx: JobContext[object]) -> None: ...


@pytest.mark.covers("F110")
@pytest.mark.parametrize("opts", [b"[" * 100_000, b"7", b"[1]", b"nan"])
async def test_a_job_that_cannot_be_read_fails_with_a_reason_and_says_so_before(foreign: Foreign, opts: bytes) -> None:
    foreign.write("odd", "wait", {"opts": opts})
    app = App(foreign.server.url)
    queue = app.queue("q", {"note": ignored})
    async with app, served(app) as client:
        job = (await client.get("/api/v1/queues/q/jobs/odd")).json()
        sheet = (await client.get("/api/v1/queues/q/jobs.csv?state=waiting")).text
        page = (await client.get("/queues/q/jobs/odd")).text
        await app.run(burst=True, signals="leave")
        (run,) = (await queue.runs("failed")).items

    said = "its stored options cannot be read"
    assert job["unreadable"].startswith(said)
    assert (said in sheet, said in page) == (True, True)
    assert run.text.startswith(said)


@pytest.mark.covers("F110")
@pytest.mark.parametrize("field", ["data", "toril:metadata", "progress", "returnvalue"])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b'{"a":' * 900 + b"1" + b"}" * 900, "(nested too deeply to be shown)"),
        (b"[" * 900 + b"]" * 900, "(nested too deeply to be shown)"),
        (b"[1e999]", "Infinity"),
        (b"[-1e999]", "-Infinity"),
        (b'["\\ud800"]', "\\ud800"),
        (b"9" * 400, "9" * 400),
    ],
    ids=["deep object", "deep list", "infinite", "less than all", "lone surrogate", "large"],
)
async def test_any_value_is_shown(foreign: Foreign, field: str, value: bytes, said: str) -> None:
    foreign.write("odd", "completed", {field: value})
    app = App(foreign.server.url)
    app.queue("q")
    async with app, served(app) as client:
        answers = [
            await client.get(path)
            for path in (
                "/queues/q/jobs/odd", "/queues/q?state=completed", "/api/v1/queues/q/jobs/odd",
                "/api/v1/queues/q/jobs?state=completed&q=odd", "/api/v1/queues/q/jobs.csv?state=completed",
            )
        ]  # fmt: skip

    assert [answer.status_code for answer in answers] == [200] * 5
    page, _, one, many, sheet = (answer.text for answer in answers)
    assert [said in text for text in (page, one, many)] == [True] * 3
    assert said in sheet or field in {"toril:metadata", "progress"}, "which the table has no column for"


@pytest.mark.covers("F110")
def test_commands_show_any_value(foreign: Foreign) -> None:
    deep = b"[" * 900 + b"]" * 900
    foreign.write(
        "odd", "failed", {"data": b'{"a":1e999,"b":"\\ud800","c":%s}' % deep, "progress": deep, "returnvalue": deep}
    )
    output = ""
    for words in (["job", "show", "odd"], ["jobs", "q", "--state", "failed"]):
        for form in ([], ["--json"]):
            result = CliRunner().invoke(command, [*words, *form, "--url", foreign.server.url])
            assert (result.exit_code, result.exception) == (0, None), result.output
            output = result.output
            assert "odd" in output
    (data,) = [json.loads(line)["data"] for line in output.splitlines()]
    assert (data["a"], data["b"]) == ("Infinity", "\ud800")


@pytest.mark.covers("F110")
@pytest.mark.parametrize("attempts", [b"-1e999", b"9" * 400, b"1e999", b"-1", b'"x"'])
async def test_a_number_without_sense_does_not_keep_a_job_from_running(foreign: Foreign, attempts: bytes) -> None:
    foreign.write("odd", "wait", {"opts": b'{"attempts":' + attempts + b"}"})
    foreign.write("good", "wait", {})

    assert await misrun(foreign, ["odd", "good"]) == []


@pytest.mark.covers("F66")
async def test_the_doctor_finds_and_mends_a_job_that_stands_nowhere_though_it_is_locked(foreign: Foreign) -> None:
    """As a script leaves it that has stopped half-way."""
    foreign.write("lost", "wait", {"toril:ready": b"1700000000000"})
    app = App(foreign.server.url)
    app.queue("q")
    async with app:
        (taken,) = (await claim(app.store, 1, lease=500)).jobs
        foreign.send(("LREM", "bull:q:active", 1, taken.lease.id), ("ZREM", "bull:q:toril:deadlines", taken.lease.id))
        found = [finding for finding in await app.doctor() if finding.fault is not None]
        assert [finding.code for finding in found] == ["orphan"]
        await app.repair(found)
        assert [finding.code for finding in await app.doctor() if finding.code == "orphan"] == []
    assert await misrun(foreign, ["lost"]) == []


@pytest.mark.thorough
def test_a_job_with_a_long_id_costs_no_neighbour_its_lease(foreign: Foreign, tmp_path: Path) -> None:
    """BullMQ has no bound for ids. Each job runs for longer than its lease, which the supervisor has to renew."""
    odd, good = ["x" * 847, "y" * 20_000, "a\0b"], [f"good-{number}" for number in range(6)]
    for job in (*good[:3], *odd, *good[3:]):
        foreign.write(job, "wait", {"name": b"hold", "data": b"6"})
    with fleet(foreign.server.url, tmp_path, ALIVE_LEASE="2", ALIVE_CONCURRENCY="9") as run:
        for job in (*odd, *good):
            run.until_noted(job, "end")
        assert run.stop() == 0

    assert {len(run.of(job, "start")) for job in (*odd, *good)} == {1}
    assert "stalled" not in run.log.read_text()


async def fail(ctx: JobContext[object]) -> None:
    raise ValueError("never")


def a_queue_called_dead_letter(foreign: Foreign) -> None:
    """A user's own, of BullMQ, with a job that waits."""
    Foreign(foreign.server, "dead-letter").write("1", "wait", {})
    foreign.send(("INCR", "bull:dead-letter:id"))


async def test_a_users_own_queue_called_dead_letter_is_left_alone(foreign: Foreign) -> None:
    a_queue_called_dead_letter(foreign)
    app = App(foreign.server.url)
    queue = app.queue("q", [fail])
    async with app:
        job = await queue.add(fail, attempts=1)
        await app.run(burst=True, signals="leave")
        await app.store.prune("q")
        failed = await queue.jobs("failed")
        found = [finding.summary for finding in await app.doctor() if finding.code == "foreign_key"]

        assert foreign.send(("HEXISTS", "bull:dead-letter:meta", "paused")) == [0]
        assert foreign.send(("LRANGE", "bull:dead-letter:wait", 0, -1)) == [[b"1"]]
        assert [(each.id, each.error) for each in failed] == [(job.id, "never")]
        assert await app.dead_letters.count() == 0
        assert len(found) == 1
        assert found[0].startswith("another program has jobs in the queue 'dead-letter'")

        foreign.send(("DEL", *(f"bull:dead-letter:{key}" for key in ("id", "meta", "wait", "marker", "1"))))
        await app.store.prune("q")
        assert await app.dead_letters.count() == 1, "its name is free: the failed job becomes a dead letter"
        assert (await queue.counts()).failed == 0


async def test_a_users_own_queue_that_never_had_a_job_is_left_alone_too(foreign: Foreign) -> None:
    """It looks like one that a dashboard has opened."""
    opened_by_node = ("opts.maxLenEvents", "10000", "version", "bullmq:6.7.0")
    foreign.send(("HSET", "bull:dead-letter:meta", *opened_by_node))
    app = App(foreign.server.url)
    queue = app.queue("q", [fail])
    async with app:
        job = await queue.add(fail, attempts=1)
        await app.run(burst=True, signals="leave")
        await app.store.prune("q")
        found = [finding.summary for finding in await app.doctor() if finding.code == "foreign_key"]

        assert foreign.send(("HEXISTS", "bull:dead-letter:meta", "paused")) == [0]
        assert foreign.send(("EXISTS", "bull:dead-letter:wait", "bull:dead-letter:toril")) == [0]
        assert [(each.id, each.error) for each in await queue.jobs("failed")] == [(job.id, "never")]
        assert len(found) == 1
        assert found[0].startswith("another program opened the queue 'dead-letter' before the first dead letter")

    async with App(foreign.server.url, dead_letter_queue="dead-letter") as named:
        await named.store.prune("q")
        assert await named.dead_letters.count() == 1, "the user says that it is meant for them"
        assert not [finding for finding in await named.doctor() if finding.code == "foreign_key"]
    async with App(foreign.server.url) as unnamed:
        await unnamed.queue("q").add("n", attempts=1)
        assert not [finding for finding in await unnamed.doctor() if finding.code == "foreign_key"]
        assert await unnamed.dead_letters.count() == 1, "from the first letter on it is theirs"


async def test_a_dashboard_may_open_the_queue_once_there_is_a_letter(foreign: Foreign) -> None:
    app = App(foreign.server.url)
    queue = app.queue("q", [fail])
    async with app:
        await queue.add(fail, attempts=1)
        await app.run(burst=True, signals="leave")
        foreign.send(("HSET", "bull:dead-letter:meta", "version", "bullmq:6.7.0"))
        await app.dead_letters.discard("q/1")
        await queue.add(fail, attempts=1)
        await app.run(burst=True, signals="leave")

        assert await app.dead_letters.count() == 1
        assert (await queue.counts()).failed == 0


@pytest.mark.parametrize("name", ["failed-jobs", "l'été", 'say "no"', "a b", "死信"])
async def test_the_queue_of_the_dead_letters_can_have_any_name(foreign: Foreign, name: str) -> None:
    ran: list[str] = []

    async def work(ctx: JobContext[object]) -> None:
        await ctx.log("a line")
        ran.append(ctx.job_id)

    app = App(foreign.server.url, dead_letter_queue=name)
    queue, own = app.queue("q", [fail]), app.queue("dead-letter", [work])
    with pytest.raises(InvalidOption, match=r"cannot be used as a queue; see app.dead_letters"):
        app.queue(name, [work])
    with pytest.raises(InvalidOption, match=r"cannot be used as a queue; see app.dead_letters"):
        app.queue(name).handler(work)
    async with app:
        await queue.add(fail, attempts=1)
        mine = await own.add(work)
        await app.run(burst=True, signals="leave")

        assert ran == [mine.id], "a queue of the user's like any other"
        assert foreign.send(("LRANGE", f"bull:{name}:wait", 0, -1)) == [[b"q/1"]]
        assert foreign.send(("HEXISTS", "bull:dead-letter:meta", "paused")) == [0]
        assert sorted(await app.store.queues()) == ["dead-letter", "q"]
    by_url = connect(f"{foreign.server.url}?dead_letter_queue={quote(name)}")
    await by_url.open()
    assert [letter.id for letter in (await by_url.dead_letters.page()).items] == ["q/1"]
    assert (await by_url.errors("q", "1", where="dead_letters"))[0].failure.reason == "never"
    assert (await by_url.dead_letters.replay("q", [Replay("q/1")])).done == ("q/1",)
    assert foreign.send(("EXISTS", f"bull:{name}:wait", f"bull:{name}:toril:letters")) == [0]
    await by_url.close()


def test_the_supervisor_buries_where_the_app_says(foreign: Foreign, tmp_path: Path) -> None:
    with fleet(foreign.server.url, tmp_path, ALIVE_LETTERS="failed-jobs", ALIVE_STALLS="0") as run:
        run.until_up()
        asyncio.run(_add_deadly(foreign.server.url))
        run.until_noted("1", "start")
        until(lambda: foreign.send(("LLEN", "bull:failed-jobs:wait")) == [1], "it is a dead letter", timeout=60)
        run.stop()

    assert foreign.send(("EXISTS", "bull:dead-letter:meta")) == [0]


async def _add_deadly(url: str) -> None:
    async with App(url) as app:
        await app.queue("q").add("deadly", attempts=1, keep_failed=False)


async def test_dead_letters_are_not_moved_into_a_users_own_queue(foreign: Foreign) -> None:
    a_queue_called_dead_letter(foreign)
    async with opened("memory://") as source, opened(foreign.server.url) as target:
        await source.add("q", [NewJob(name="n")])
        (taken,) = (await claim(source, 1)).jobs
        await settle(source, taken.lease, Failed(Failure("never")))

        with pytest.raises(
            EngineUnusable, match="another program uses the queue 'dead-letter'; choose another name with dead"
        ):
            await Transfer(source, target, SYSTEM).move()

        foreign.send(("DEL", *(f"bull:dead-letter:{key}" for key in ("id", "meta", "wait", "marker", "1"))))
        moved = await Transfer(source, target, SYSTEM).move()
        assert (moved.letters, await target.dead_letters.count(), await source.dead_letters.count()) == (1, 1, 0)


async def test_progress_that_is_no_json_is_read_as_text(foreign: Foreign) -> None:
    async with App(foreign.server.url) as app:
        queue = app.queue("q")
        job = await queue.add("n")
        foreign.send(("HSET", f"bull:q:{job.id}", "progress", "{"))

        assert (await job.refresh()).progress == "{"


@pytest.mark.covers("F110", "G6")
@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": "1.5"}, {"concurrency": "nan"}, {"max": "1.5"}, {"max": "0"}, {"max": "9" * 400},
        {"max": "10", "duration": "333.3333333333333"}, {"max": "10", "duration": "0"},
        {"max": "10", "duration": "-1"}, {"max": "10", "duration": "nan"}, {"max": "10", "duration": "9" * 400},
    ],
    ids=str,
)  # fmt: skip
async def test_limits_that_are_no_whole_numbers_stop_nobody(foreign: Foreign, settings: dict[str, str]) -> None:
    """BullMQ stores what it is given, such as a duration of 1000 / 3."""
    jobs = ["first", "second", "third"]
    for job in jobs:
        foreign.write(job, "wait", {})
    foreign.send(("HSET", "bull:q:meta", *(part for pair in settings.items() for part in pair)))

    assert await unanswered(foreign, jobs) == []
    assert await misrun(foreign, jobs) == []


@pytest.mark.covers("F110")
@pytest.mark.parametrize("field", ["count", "prevTS", "prevCount"])
async def test_figures_that_are_no_numbers_stop_nobody(foreign: Foreign, field: str) -> None:
    foreign.write("good", "wait", {})
    figures = {"count": "1", "prevTS": "1700000000000", "prevCount": "0"} | {field: "nan"}
    foreign.send(("HSET", "bull:q:metrics:completed", *(part for pair in figures.items() for part in pair)))

    assert await unanswered(foreign, ["good"]) == []
    assert await misrun(foreign, ["good"]) == []


@pytest.mark.covers("F110")
@pytest.mark.parametrize("key", ["x", ":", "bull::7", "bull:a\nb:7", "another:q:7"])
@pytest.mark.parametrize("place", ["wait", "waiting-children"])
async def test_children_that_are_no_jobs_of_this_store_are_shown(foreign: Foreign, place: str, key: str) -> None:
    """As a child of BullMQ that was added under another prefix."""
    foreign.write("parent", place, {})
    foreign.send(
        ("SADD", "bull:q:parent:dependencies", key), ("HSET", "bull:q:parent:processed", key, "1"),
        ("HSET", "bull:q:parent:failed", key, "no"), ("ZADD", "bull:q:parent:unsuccessful", 1, key),
    )  # fmt: skip

    app = App(foreign.server.url)
    app.queue("q")
    async with app, served(app) as client:
        paths = ["/flows", "/api/v1/flows", "/queues/q/jobs/parent"]
        paths += [f"/api/v1/queues/q/jobs/parent{part}" for part in ("", "/why", "/flow")]
        answers = [(path, (await client.get(path)).status_code) for path in paths]

    assert [each for each in answers if each[1] != 200] == []


@pytest.mark.covers("F110")
@pytest.mark.parametrize("field", ["name", "every", "pattern", "tz", "limit", "opts", "ic", "startDate", "endDate"])
async def test_a_schedule_that_cannot_be_read_stops_no_other(foreign: Foreign, field: str) -> None:
    """It is left out where it makes no sense at all, and the others run and are shown."""
    odd = [value for value in VALUES if len(value) < 1000]
    good = {"name": b"note", "every": b"1000", "ic": b"1", "data": b"{}", "opts": b"{}"}
    commands: list[Sequence[object]] = []
    for number, value in enumerate([*odd, None]):
        fields = good if value is None else {**good, field: value}
        if field == "pattern" and value is not None:
            del fields["every"]
        name = "the-good-one" if value is None else f"odd-{number}"
        commands += [("ZADD", "bull:q:repeat", 1_700_000_000_000, name)]
        commands += [("HSET", f"bull:q:repeat:{name}", *(part for pair in fields.items() for part in pair))]
    foreign.send(*commands)

    async with opened(foreign.server.url) as store:
        shown = [view.schedule.id for view in (await store.schedules.page("q")).items]
        complaints = list[str]()
        await ScheduleRuns(store.schedules, SYSTEM, lambda _, error: complaints.append(str(error))).catch_up("q")
        moved = (await store.schedules.get("q", "the-good-one")).view

    assert "the-good-one" in shown
    assert moved is not None
    assert moved.slot > 1_700_000_000_000
    assert all("cron" in each or "time zone" in each for each in complaints), complaints
    foreign.write("good", "wait", {})
    assert await unanswered(foreign, []) == []
