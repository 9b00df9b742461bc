"""Schedules as an app declares them and its workers keep them."""

import asyncio
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.worker.conftest import Timed
from toril import App, Dedup, InvalidName, InvalidOption, JobContext, NotFound, Queue, State, UsageError, only_if
from toril.model import moment, ms_of
from toril.store.engine import Store
from toril.testing import Memory, memory

MINUTE = 60_000


async def until(happened: Callable[[], bool]) -> None:
    while not happened():  # noqa: ASYNC110 - the clock has no event for this
        await asyncio.sleep(0.001)


async def nothing(ctx: JobContext[dict[str, int]]) -> None:
    """A handler."""


@pytest.mark.covers("R217")
async def test_schedules_are_in_place_before_any_worker_asks_for_jobs(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, found = App("memory://"), list[list[str]]()

    async def tick(ctx: JobContext[None]) -> None: ...

    queue = app.queue("q", {"tick": tick})
    app.queue("other", {"tick": tick})
    queue.schedule("hourly", "tick", every=3600)
    queue.schedule("nightly", "tick", cron="30 2 * * *")
    async with timed(app) as test:
        exchange = app.store.exchange

        async def noted(*args: Any, **options: Any) -> Any:
            found.append([each.schedule.id for each in (await app.store.schedules.page("q")).items])
            return await exchange(*args, **options)

        monkeypatch.setattr(app.store, "exchange", noted)
        await test.drain()

    assert found
    assert all(sorted(each) == ["hourly", "nightly"] for each in found)


@pytest.mark.covers("R213", "R215")
async def test_a_declared_schedule_runs_by_its_times(timed: Timed) -> None:
    app = App("memory://")
    ran: list[tuple[int, object]] = []

    async def tick(ctx: JobContext[dict[str, int]]) -> None:
        ran.append((test.clock.now(), ctx.data))

    queue = app.queue("q", {"tick": tick})
    queue.schedule("minutely", "tick", {"v": 1}, every=60, attempts=3, priority=7)
    app.schedule("by-clock", queue="q", job=tick, cron="*/2 * * * *", tz="Europe/Berlin", data={"v": 2})

    async with timed(app) as test:
        start = test.clock.now()
        await test.drain()
        for _ in range(4):
            await test.after(60)
        (run,) = [job for job in (await queue.jobs("delayed")).items if job.name == "tick" and job.data == {"v": 1}]

    assert [at - start for at, data in ran if data == {"v": 1}] == [n * MINUTE for n in range(5)]
    assert [at - start for at, data in ran if data == {"v": 2}] == [0, 2 * MINUTE, 4 * MINUTE]
    assert run.record is not None
    assert (run.record.max_attempts, run.record.priority) == (3, 7)


@pytest.mark.covers("R214")
async def test_a_restart_changes_nothing_and_a_change_in_the_code_everything(timed: Timed) -> None:
    app = App("memory://")
    queue = app.queue("q", [nothing])
    queue.schedule("s", nothing, {"v": 1}, every=3600)
    async with timed(app) as test:
        await test.drain()
        before = await queue.schedules.get("s")
        await test.after(10)
        again = await queue.schedules.get("s")

        queue.declared.clear()
        queue.schedule("s", nothing, {"v": 2}, every=3600)
        await test.drain()
        other_data = await queue.schedules.get("s")
        queue.declared.clear()
        await test.drain()

        assert again == before
        assert (other_data.slot, other_data.data) == (before.slot, {"v": 2})
        assert (await queue.schedules.list()).items == ()
        assert (await queue.counts()).delayed == 0


@pytest.mark.covers("R218", "S21", "Q7")
async def test_a_schedule_of_an_unknown_job_fails_the_boot(timed: Timed) -> None:
    app = App("memory://")
    app.queue("q", [nothing]).schedule("s", "nothign", every=60)

    async with timed(app) as test:
        with pytest.raises(UsageError, match="'s' runs 'nothign', but queue 'q' has no such handler; it has nothing"):
            await test.drain()


@pytest.mark.covers("R031")
async def test_the_schedule_of_a_job_that_does_not_run_here_is_not_made_here(timed: Timed) -> None:
    app = App("memory://")
    cloud = False
    queue = app.queue("q", {"bill": only_if(lambda: cloud, "self-hosted")(nothing)})
    queue.schedule("billing", "bill", {"v": 1}, every=3600)

    async with timed(app) as test:
        await test.drain()
        assert (await queue.schedules.list()).items == ()
        cloud = True
        await test.drain()
        cloud = False
        await test.drain()
        assert [each.id for each in (await queue.schedules.list()).items] == ["billing"], "elsewhere it runs"


@pytest.mark.covers("R214")
async def test_a_program_leaves_schedules_of_queues_alone_that_it_does_not_work(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    reporter, mailer = App(url), App(url)
    reports = reporter.queue("reports", [nothing])
    reports.schedule("nightly", nothing, {"v": 1}, cron="30 2 * * *")
    mailer.queue("mails", [nothing])
    mailer.queue("reports")  # only to add jobs
    later = App(url)
    later.queue("mails", [nothing])
    later.queue("reports", [nothing])

    await reporter.run(burst=True, signals="leave")
    await mailer.run(burst=True, signals="leave")
    await later.run(queues={"mails": 1}, burst=True, signals="leave")
    async with reporter:
        assert [each.id for each in (await reports.schedules.list()).items] == ["nightly"]
    await later.run(burst=True, signals="leave")
    async with reporter:
        assert (await reports.schedules.list()).items == (), "who works the queue has its say"


@contextmanager
def beside(app: App, test: Memory, store: Store) -> Iterator[Callable[[], Awaitable[None]]]:
    """Another app on the same store: what boots a worker of it, which runs until there is nothing left to do."""

    async def boot() -> None:
        await app.open()  # and never closed: the store is the first app's
        assert await app.run(burst=True, signals="leave") == 0

    with app.using(store, test.clock):
        yield boot


async def test_apps_that_work_one_queue_leave_each_others_schedules_alone(timed: Timed) -> None:
    reports, bills = App("memory://", name="reports"), App("memory://", name="bills")
    queue, theirs = reports.queue("q", [nothing]), bills.queue("q", [nothing])
    queue.schedule("nightly", nothing, {"v": 1}, cron="30 2 * * *")
    queue.schedule("weekly", nothing, {"v": 1}, cron="30 2 * * 1")
    theirs.schedule("monthly", nothing, {"v": 2}, cron="30 2 1 * *")

    async def found() -> dict[str, str | None]:
        return {each.id: each.owner for each in (await queue.schedules.list()).items}

    async with timed(reports) as test:
        with beside(bills, test, reports.store) as boot_bills:
            await queue.schedules.put("made", nothing, {"v": 3}, every=3600)
            await test.drain()
            await boot_bills()
            await test.drain()
            both = {"nightly": "reports", "weekly": "reports", "monthly": "bills", "made": None}
            assert await found() == both

            del queue.declared["weekly"]
            await boot_bills()
            assert await found() == both
            await test.drain()
            assert await found() == {"nightly": "reports", "monthly": "bills", "made": None}


async def test_a_schedule_that_two_apps_declare_belongs_to_the_last_that_booted(
    timed: Timed, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = App("memory://", name="first"), App("memory://", name="second")
    queue, theirs = first.queue("q", [nothing]), second.queue("q", [nothing])
    queue.schedule("nightly", nothing, {"v": 1}, cron="30 2 * * *")
    theirs.schedule("nightly", nothing, {"v": 2}, cron="30 2 * * *")
    caplog.set_level(logging.WARNING, "toril")

    async with timed(first) as test:
        await test.drain()
        assert caplog.messages == []
        with beside(second, test, first.store) as boot_second:
            await boot_second()
        (view,) = (await queue.schedules.list()).items

    assert (view.owner, view.data) == ("second", {"v": 2})
    assert caplog.messages == [
        "schedule nightly of queue q was declared by app first and is now declared by app second; "
        "if both declare it, change the id of one of them"
    ]


def test_an_app_is_named_after_the_module_that_makes_it(tmp_path: Path) -> None:
    (tmp_path / "billing.py").write_text("from toril import App\napp = App('memory://')\nprint(app.name)\n")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__main__.py").write_text("import shop.jobs\nfrom toril import App\nprint(App().name)\n")
    (tmp_path / "shop" / "jobs.py").write_text("from toril import App\nprint(App().name)\n")

    def said(*command: str) -> list[str]:
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert App("memory://").name == "tests.worker.test_schedules"
    assert App("memory://", name="Billing, EU").name == "Billing, EU"
    assert said("billing.py") == said("-c", "import billing") == said("-m", "billing") == ["billing"]
    assert said("-m", "shop") == ["shop.jobs", "shop"]
    assert said("-c", "from toril import App; print(App().name)") == ["__main__"]
    for name in ("", "a\nb", 7, "x" * 257):
        with pytest.raises(InvalidName, match="an app's name"):
            App("memory://", name=name)  # type: ignore[arg-type]


async def test_what_every_boot_adds_runs_once_if_its_key_or_its_schedule_says_so(timed: Timed) -> None:
    app = App("memory://")
    ran: list[str] = []

    async def note(ctx: JobContext[str]) -> None:
        ran.append(ctx.data)

    queue = app.queue("q", [note])
    queue.schedule("backfill", note, "scheduled", every=60, limit=1)

    @app.on_start
    async def add() -> None:
        await queue.add(note, "by id", job_id="warm-up")
        await queue.add(note, "by key", dedup=Dedup("warm-up", ttl=3600))

    async with timed(app) as test:
        for _ in range(3):
            await test.drain()  # a boot
            await test.after(600)
        once = Counter(ran)
        await test.after(3600)
        await test.drain()

    assert (once["scheduled"], once["by key"]) == (1, 1)
    assert once["by id"] > 1, "an id is free again once its job has ended"
    assert Counter(ran)["by key"] == 2
    assert Counter(ran)["scheduled"] == 1


@pytest.mark.covers("X14", "X15")
async def test_schedules_are_made_and_removed_at_run_time_even_by_their_own_job(timed: Timed) -> None:
    app = App("memory://")
    ran: list[int] = []

    async def poll(ctx: JobContext[dict[str, int]]) -> None:
        ran.append(ctx.data["tenant"])
        if ctx.data["tenant"] == 2:
            await ctx.job.queue.schedules.remove("tenant-2")

    queue = app.queue("q", [poll])
    async with timed(app) as test:
        for tenant in (1, 2):
            view = await queue.schedules.put(f"tenant-{tenant}", poll, {"tenant": tenant}, every=5, min_interval=60)
            assert (view.every, view.owner) == (60, None)
        await test.drain()
        await test.after(60)
        await test.drain()

        assert sorted(ran) == [1, 1, 2]
        assert [each.id for each in (await queue.schedules.list()).items] == ["tenant-1"]
        with pytest.raises(NotFound, match="no schedule 'tenant-2' in queue 'q'"):
            await queue.schedules.get("tenant-2")


async def test_a_schedule_is_paused_and_goes_on_and_runs_when_told(timed: Timed) -> None:
    app = App("memory://")
    ran: list[int] = []

    async def tick(ctx: JobContext[None]) -> None:
        ran.append(test.clock.now())

    queue = app.queue("q", [tick])
    async with timed(app) as test:
        start = test.clock.now()
        await queue.schedules.put("s", tick, every=60)
        await test.drain()
        await queue.schedules.pause("s")
        await test.after(150)
        await queue.schedules.run_now("s")
        await test.drain()
        await queue.schedules.resume("s")
        await queue.schedules.resume("s")
        await test.after(30)
        runs = await queue.schedules.upcoming("s")

        assert [at - start for at in ran] == [0, 150_000, 180_000]
        assert [ms_of(at) - start for at in runs] == [(4 + n) * MINUTE for n in range(10)]


@pytest.mark.covers("R219")
@pytest.mark.parametrize(("catch_up", "expected"), [("none", []), ("one", [0]), ("all", [-3, -2, -1, 0])])
async def test_times_missed_while_nobody_worked_are_made_up_for_as_declared(
    timed: Timed, catch_up: str, expected: list[int]
) -> None:
    app = App("memory://")
    ran: list[str] = []

    async def tick(ctx: JobContext[None]) -> None:
        ran.append(ctx.job_id)

    queue = app.queue("q", [tick])
    queue.schedule("s", tick, every=60, catch_up=catch_up, window=200)  # type: ignore[arg-type]
    async with timed(app) as test:
        start = test.clock.now()
        await test.drain()
        ran.clear()
        test.skip("10m")
        await test.drain()

        slots = [(int(each.rsplit(":")[-1]) - start) // MINUTE - 10 for each in ran]
        assert slots == ([-9] if catch_up == "one" else expected)
        assert (await queue.schedules.get("s")).slot == moment(start + 11 * MINUTE)
        assert (await queue.counts()).delayed == 1


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue_one"])
async def test_a_run_that_meets_the_one_before_does_as_declared(
    timed: Timed, overlap: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toril")
    app = App("memory://")
    running: list[str] = []
    started: list[str] = []
    release = asyncio.Event()

    async def slow(ctx: JobContext[None]) -> None:
        running.append(ctx.job_id)
        started.append(ctx.job_id)
        await release.wait()
        running.remove(ctx.job_id)

    queue = app.queue("q", [slow], concurrency=5, lease=3600)
    queue.schedule("s", slow, every=60, overlap=overlap)  # type: ignore[arg-type]
    async with timed(app) as test:
        first = test.clock.now()
        runs = [f"repeat:s:{first + n * MINUTE}" for n in range(3)]
        worker = asyncio.ensure_future(app.run())
        await until(lambda: running == runs[:1])
        test.clock.advance(MINUTE)
        while not await settled(queue, overlap, runs[1], running):
            test.clock.advance(1)  # the worker may have asked just before
            await asyncio.sleep(0.002)
        most = len(running)
        release.set()
        while runs[1 if overlap != "skip" else 2] not in started:
            test.clock.advance(1000)
            await asyncio.sleep(0.01)
        app.stop()
        await worker

    assert most == (2 if overlap == "allow" else 1)
    assert (runs[1] in started) == (overlap != "skip")
    assert len(set(started)) == len(started)
    told = [line.getMessage().split(" queue=")[0] for line in caplog.records if vars(line).get("job_id") == runs[1]]
    if overlap == "skip":
        assert told == ["scheduled run skipped: the previous run had not ended"]
    else:
        assert "job completed" in told


async def settled(queue: Queue, overlap: str, second: str, running: list[str]) -> bool:
    """Whether the second run has met the first as it should."""
    match overlap:
        case "allow":
            return second in running
        case "skip":
            return any(run.id == second and "skipped" in run.text for run in (await queue.runs()).items)
        case _:
            record = (await queue.store.jobs("q", [second]))[0]
            return record is not None and record.starts > 0 and record.state is State.DELAYED


@pytest.mark.covers("X16")
@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        # The night to 29 March has no 02:30: it comes at 03:00, which is 01:00 UTC.
        (datetime(2026, 3, 27, 12, tzinfo=UTC), ["28 01:30", "29 01:00", "30 00:30"]),
        # The night to 25 October has it twice: the first is 00:30 UTC.
        (datetime(2026, 10, 23, 12, tzinfo=UTC), ["24 00:30", "25 00:30", "26 01:30"]),
    ],
    ids=["skipped", "twice"],
)
async def test_a_worker_runs_once_a_day_whatever_the_clocks_do(
    timed: Timed, begin: datetime, expected: list[str]
) -> None:
    """Half an hour at a time, over three nights."""
    app = App("memory://")
    ran: list[str] = []

    async def nightly(ctx: JobContext[None]) -> None:
        ran.append(f"{datetime.fromtimestamp(test.clock.now() / 1000, UTC):%d %H:%M}")

    queue = app.queue("q", [nightly])
    queue.schedule("nightly", nightly, cron="30 2 * * *", tz="Europe/Berlin")
    async with timed(app) as test:
        test.clock.advance(round(begin.timestamp() * 1000) - test.clock.now())
        for _ in range(3 * 48):
            if await waits(queue, test.clock.now()):
                await test.drain()
            test.clock.advance(30 * MINUTE)

    assert ran == expected


async def waits(queue: Queue, now: int) -> bool:
    """Whether there is something to do: to boot for nothing takes most of the time."""
    found = (await queue.schedules.list()).items
    return not found or found[0].slot <= moment(now)


@pytest.mark.covers("R216")
async def test_an_interval_from_the_environment_holds_from_the_next_boot_on(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> App:
        app = App("memory://")
        app.queue("q", [nothing]).schedule("s", nothing, {"v": 1}, every=float(os.environ.get("SWEEP_EVERY", "900")))
        return app

    monkeypatch.setenv("SWEEP_EVERY", "1800")
    app = made()
    async with timed(app) as test:
        await test.drain()
        before = await app.queues["q"].schedules.get("s")
        app.queues["q"].declared.clear()
        monkeypatch.delenv("SWEEP_EVERY")
        app.queues["q"].declared.update(made().queues["q"].declared)
        await test.drain()
        after = await app.queues["q"].schedules.get("s")

    assert (before.every, after.every) == (1800, 900)


@pytest.mark.covers("X17")
async def test_jitter_moves_all_runs_of_a_schedule_by_what_its_id_says(timed: Timed) -> None:
    app = App("memory://")
    queue = app.queue("q", [nothing])
    for name in ("a", "b"):
        queue.schedule(name, nothing, {"v": 1}, cron="0 * * * *", jitter=240)
    async with timed(app) as test:
        await test.drain()
        moved = [[ms_of(slot) % (60 * MINUTE) for slot in await queue.schedules.upcoming(name)] for name in ("a", "b")]

    assert [len(set(each)) for each in moved] == [1, 1]
    assert moved[0] != moved[1]
    assert all(0 < each[0] < 4 * MINUTE for each in moved)


async def test_a_run_that_vanished_is_followed_by_the_next() -> None:
    app = App("memory://")
    queue = app.queue("q", [nothing])
    queue.schedule("s", nothing, {"v": 1}, every=60)
    async with memory(app) as test:
        await test.drain()
        (next_run,) = (await queue.jobs("delayed")).items
        slot = int(next_run.id.rsplit(":")[-1])
        await next_run.remove()
        async with test.clock.running():
            worker = asyncio.ensure_future(app.run())
            await until(lambda: test.clock.now() > slot + 10_000)
            app.stop()
            await worker

        assert (await queue.schedules.get("s")).slot == moment(slot + MINUTE)


@pytest.mark.covers("B55")
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "schedule 's' needs every or cron"),
        ({"every": 60, "cron": "* * * * *"}, "schedule 's' has both every and cron; give one of them"),
        ({"every": 0.01}, "every must be between 0.1 s"),
        ({"cron": "* * *"}, "five fields"),
        ({"cron": "* * * * *", "tz": "Mars/Base"}, "time zone"),
        ({"every": 60, "tz": "Mars/Base"}, "time zone"),
        ({"every": 60, "jitter": 61}, "jitter must not exceed the 60 s"),
        ({"cron": "* * * * *", "jitter": 61}, "jitter must not exceed the 60 s"),
        ({"every": 60, "limit": 0}, "limit must be a whole number from 1"),
        ({"every": 60, "overlap": "never"}, "overlap must be one of allow, skip, queue_one"),
        ({"every": 60, "catch_up": True}, "catch_up must be one of none, one, all"),
        ({"every": 60, "start": "tomorrow"}, "start must be a datetime with a time zone"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_where_it_is_declared(
    options: dict[str, object], complaint: str
) -> None:
    queue = App("memory://").queue("q", [nothing])

    with pytest.raises(InvalidOption, match=complaint):
        queue.schedule("s", nothing, {"v": 1}, **options)  # type: ignore[arg-type]


async def test_what_only_single_jobs_can_have_is_refused() -> None:
    app = App("memory://")
    queue = app.queue("q", [nothing])
    async with memory(app):
        with pytest.raises(InvalidOption, match="schedules do not take delay"):
            await queue.schedules.put("s", nothing, {"v": 1}, every=60, delay=5)


def test_two_schedules_of_one_id_are_a_mistake() -> None:
    queue = App("memory://").queue("q", [nothing])
    queue.schedule("s", nothing, {"v": 1}, every=60)

    with pytest.raises(UsageError, match="'s' of queue 'q' is already declared"):
        queue.schedule("s", nothing, {"v": 1}, every=60)


EVERY, RESTARTS, SHARE = 0.2, 4, 50  # each worker stays until so many jobs have run


@pytest.mark.covers("R214", "R219")
async def test_every_slot_has_one_run_whatever_comes_and_goes(shared_url: str) -> None:
    """Three workers, 25 schedules of a short interval, and restarts all the while."""
    ran: Counter[str] = Counter()
    news = asyncio.Condition()

    async def tick(ctx: JobContext[None]) -> None:
        async with news:
            ran[ctx.job_id] += 1
            news.notify_all()

    def made() -> App:
        app = App(shared_url)
        queue = app.queue("q", [tick], concurrency=10)
        for n in range(25):
            queue.schedule(f"s{n}", tick, every=EVERY, catch_up="all")
        return app

    async def more_runs(count: int) -> None:
        async with asyncio.timeout(120), news:
            wanted = ran.total() + count
            await news.wait_for(lambda: ran.total() >= wanted)

    async def restarted() -> None:
        for _ in range(RESTARTS):
            app = made()
            worker = asyncio.ensure_future(app.run())
            await more_runs(SHARE)
            app.stop()
            assert await worker == 0

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(restarted())

    assert set(ran.values()) == {1}
    async with made() as app:
        pending = (await app.queues["q"].jobs("delayed", limit=100)).items
        pending += (await app.queues["q"].jobs("waiting", limit=100)).items
    for n in range(25):
        slots = sorted(int(each.rsplit(":")[-1]) for each in ran if each.startswith(f"repeat:s{n}:"))
        assert len(slots) >= RESTARTS
        assert slots == list(range(slots[0], slots[-1] + 1, round(EVERY * 1000)))
        assert [int(job.id.rsplit(":")[-1]) for job in pending if job.id.startswith(f"repeat:s{n}:")] == [
            slots[-1] + round(EVERY * 1000)
        ]


@pytest.fixture(params=["sqlite", "redis"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several apps can use."""
    from tests import servers

    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    server = servers.running()
    assert server.tell("FLUSHALL") == b"+OK"
    return server.url
