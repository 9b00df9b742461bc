"""`app.reap()` in a program: beside workers, with hooks, and stopped as they are."""

import asyncio
import signal
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.worker.conftest import Seen
from toril import App, EngineUnavailable, InvalidName, InvalidOption, JobContext
from toril.model import Claim
from toril.runtime.clock import SYSTEM
from toril.testing import memory

STOPPED = 60.0  # seconds; one signal is enough, however slow the machine


async def nothing(ctx: JobContext[Any]) -> None: ...


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def other(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path / 'other.db'}")


async def stopped_by_one_signal(
    number: signal.Signals, runs: list[Coroutine[Any, Any, Any]], *up: Awaitable[Any]
) -> Any:
    """What they return, once all of them are up and one signal has come. Afterwards its handler is as it was."""
    before = signal.getsignal(number)
    work = asyncio.gather(*runs)
    try:
        await asyncio.gather(*up)
        signal.raise_signal(number)
        async with asyncio.timeout(STOPPED):
            answers = await work
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    assert signal.getsignal(number) is before
    return answers


@pytest.mark.covers("R145", "R252")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("first", ["worker", "reaper"])
async def test_one_signal_stops_a_worker_and_a_reaper_in_one_program(
    app: App, other: App, number: signal.Signals, first: str
) -> None:
    app.queue("q", {"n": nothing})
    works, leads = Seen(app, "worker_started"), Seen(other, "leadership_acquired", "leadership_lost")
    runs = [app.run(), other.reap()]

    answers = await stopped_by_one_signal(
        number, runs if first == "worker" else runs[::-1], works.until("worker_started"),
        leads.until("leadership_acquired"),
    )  # fmt: skip

    assert sorted(answers, key=repr) == [0, None]
    assert leads.names() == ["leadership_acquired", "leadership_lost"]


async def test_one_signal_stops_two_workers_in_one_program(app: App, other: App) -> None:
    started = []
    for each in (app, other):
        each.queue("q", {"n": nothing})
        started.append(Seen(each, "worker_started").until("worker_started"))

    assert await stopped_by_one_signal(signal.SIGTERM, [app.run(), other.run()], *started) == [0, 0]


async def test_a_signal_stops_a_reaper_that_waits_for_its_store(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def away() -> None:
        asked.set()
        raise EngineUnavailable("nobody answers")

    monkeypatch.setattr(app.services.engine, "open", away)

    assert await stopped_by_one_signal(signal.SIGTERM, [app.reap()], asked.wait()) == [None]


async def test_a_reaper_leaves_signals_to_the_program_if_it_is_to(app: App) -> None:
    before, leads = signal.getsignal(signal.SIGTERM), Seen(app, "leadership_acquired")
    reaping = asyncio.create_task(app.reap(signals="leave"))
    await leads.until("leadership_acquired")

    assert signal.getsignal(signal.SIGTERM) is before

    app.stop()
    async with asyncio.timeout(STOPPED):
        await reaping


async def test_a_reaper_calls_the_hooks_of_its_app_and_waits_for_them(app: App) -> None:
    queue, told = app.queue("q"), list[tuple[str, str | None]]()
    seen = Seen(app, "stalled")

    async def hear(event: Any) -> None:
        app.stop()
        await asyncio.sleep(0)
        told.append((event.job_id, event.worker))

    app.on("stalled", hear)
    async with app:
        job = await queue.add("n")
        await app.store.exchange("q", [], Claim(want=1, token="t", lease=1, worker="gone", max_stalls=5))
        reaping = asyncio.create_task(app.reap(name="reaper-1", queues=["q"], signals="leave"))
        await seen.until("stalled")
        async with asyncio.timeout(STOPPED):
            await reaping

    assert told == [(job.id, "reaper-1")]


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"lease": 0.01}, InvalidOption, "lease must be between 0.1 s"),
        ({"lease": 10, "renew": 10}, InvalidOption, "renew must be shorter than the lease of 10 s"),
        ({"election_interval": 0}, InvalidOption, "election_interval must be between"),
        ({"stall_interval": 0}, InvalidOption, "stall_interval must be between 0.1 s"),
        ({"queues": "email"}, InvalidOption, "queues must be a list of names, not 'email'"),
        ({"queues": ["a:b"]}, InvalidName, "must not contain ':'"),
        ({"name": "two words"}, InvalidName, "one printable word"),
        ({"name": "n" * 91}, InvalidName, "at most 90 bytes"),
    ],
    ids=repr,
)  # fmt: skip
async def test_options_that_make_no_sense_are_refused(
    app: App, options: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        await app.reap(**options)


@pytest.mark.parametrize(
    ("options", "why"), [({"stall_interval": 0}, "between 0.1 s"), ({"name": "two words"}, "word")]
)
async def test_a_worker_refuses_them_too(app: App, options: dict[str, Any], why: str) -> None:
    app.queue("q", {"n": nothing})

    with pytest.raises((InvalidOption, InvalidName), match=why):
        await app.run(**options)


@pytest.mark.covers("R135", "R151")
async def test_the_lead_of_a_worker_ends_with_the_leases_of_its_jobs(app: App) -> None:
    """If it dies, whoever waits for the lead has it by the time at which its jobs can be taken back."""
    app.queue("q", {"n": nothing}, lease=2)
    leads = Seen(app, "leadership_acquired")
    async with app:
        run = asyncio.create_task(app.run())
        await leads.until("leadership_acquired")
        too_soon = await app.store.lead("reaper", "me", ttl=1000)
        in_time = await app.store.lead("reaper", "me", ttl=1000, now=SYSTEM.now() + 6_000)
        app.stop()
        await run

    assert (too_soon, in_time) == (False, True)


async def test_a_worker_has_the_name_that_it_is_given(app: App) -> None:
    """Another may have had it before: the calls of the two are told apart."""
    names, progress = list[str | None](), list[Any]()

    async def work(ctx: JobContext[int]) -> None:
        await ctx.update_progress(ctx.data)
        job = await queue.job(ctx.job_id)
        assert job is not None
        assert job.record is not None
        names.append(job.record.worker)
        progress.append(job.progress)

    queue = app.queue("q", {"n": work})
    async with app:
        for number in (1, 2):
            await queue.add("n", number)
            assert await app.run(burst=True, name="mail:1") == 0

    assert names == ["mail:1", "mail:1"]
    assert progress == [1, 2]


@pytest.mark.parametrize(("options", "rest"), [({}, 30.0), ({"stall_interval": 7}, 7.0)], ids=["the lease", "as asked"])
async def test_stalled_jobs_are_looked_for_as_often_as_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], rest: float
) -> None:
    app, looks, rests, enough = App("memory://"), list[str](), list[float](), asyncio.Event()
    app.queue("q", {"n": nothing})
    async with memory(app) as test:
        recover, sleep = app.store.recover, test.clock.sleep

        async def looked(queue: str, **given: Any) -> Any:
            looks.append(queue)
            if len(looks) == 5:
                enough.set()
            return await recover(queue, **given)

        async def slept(seconds: float) -> None:
            rests.append(seconds)
            await sleep(seconds)

        monkeypatch.setattr(app.store, "recover", looked)
        monkeypatch.setattr(test.clock, "sleep", slept)
        run = asyncio.create_task(app.run(**options))
        async with asyncio.timeout(STOPPED), test.clock.running():
            await enough.wait()
        app.stop()
        await run

    assert rests.count(rest) >= 4
    assert ({7.0, 30.0} - {rest}).isdisjoint(rests)
