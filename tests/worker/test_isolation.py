"""What has stalled runs alone in its whole process."""

import asyncio

import pytest

from tests.worker.conftest import working
from toril import App, JobContext
from toril.model import Claim


@pytest.mark.covers("F117", "G6")
async def test_jobs_of_two_queues_that_have_stalled_do_not_run_side_by_side(app: App) -> None:
    running, beside, done = 0, 0, asyncio.Event()
    ended: list[str] = []

    async def work(ctx: JobContext[None]) -> None:
        nonlocal running, beside
        running += 1
        await asyncio.sleep(0.05)
        beside = max(beside, running)
        running -= 1
        ended.append(ctx.job_id)
        if len(ended) == 6:
            done.set()

    queues = [app.queue(name, {"n": work}, concurrency=2) for name in ("a", "b", "c")]
    async with app:
        for queue in queues:
            await queue.add_many([("n", None)] * 2)
            claim = Claim(want=2, token=f"dead-{queue.name}", lease=30_000, worker="dead")
            leases = [job.lease for job in (await app.store.exchange(queue.name, [], claim)).jobs]
            assert len((await app.store.recover(queue.name, dead=leases, cause="a crash")).returned) == 2

        async with working(app), asyncio.timeout(30):
            await done.wait()

    assert beside == 1


async def test_a_queue_with_much_to_do_makes_way_for_a_job_that_has_stalled_in_another(app: App) -> None:
    """Nothing else is claimed while a suspect waits for the process to be empty, so that it does become empty."""
    alone = asyncio.Event()
    running = 0

    async def steady(ctx: JobContext[None]) -> None:
        nonlocal running
        running += 1
        await asyncio.sleep(0.02)
        running -= 1
        if not alone.is_set():
            await busy.add("steady")

    async def suspect(ctx: JobContext[None]) -> None:
        assert running == 0
        alone.set()

    busy = app.queue("busy", [steady], concurrency=3)
    app.queue("q", [suspect])
    async with app:
        await busy.add_many([("steady", None)] * 6)
        await app.queues["q"].add("suspect")
        claim = Claim(want=1, token="dead", lease=30_000, worker="dead")
        (job,) = (await app.store.exchange("q", [], claim)).jobs
        async with working(app), asyncio.timeout(30):
            await asyncio.sleep(0.2)
            await app.store.recover("q", dead=[job.lease])
            await alone.wait()


@pytest.mark.covers("R127", "R145", "P20")
async def test_what_has_stalled_is_taken_back_and_run_although_every_event_is_lost(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = asyncio.Event()

    async def work(ctx: JobContext[None]) -> None:
        done.set()

    async def never(*_: object, **__: object) -> None:
        await asyncio.get_running_loop().create_future()

    queue = app.queue("q", {"n": work}, lease=1)
    async with app:
        monkeypatch.setattr(type(app.store), "wait", never)
        await queue.add("n")
        claim = Claim(want=1, token="gone", lease=1_000, worker="gone")
        assert (await app.store.exchange("q", [], claim)).jobs
        async with working(app), asyncio.timeout(30):
            await done.wait()


@pytest.mark.covers("F117", "G6")
@pytest.mark.parametrize("burst", [True, False])
async def test_without_spare_processes_suspects_run_one_by_one_and_others_after_them(app: App, *, burst: bool) -> None:
    """The bound that is documented for `app.run()` and `--burst`."""
    started: list[tuple[str, int]] = []
    running, done = 0, asyncio.Event()

    async def work(ctx: JobContext[str]) -> None:
        nonlocal running
        running += 1
        started.append((ctx.data, running))
        await asyncio.sleep(0.05)
        running -= 1
        if len(started) == 7 and not running:
            done.set()

    queue = app.queue("q", {"n": work}, concurrency=10)
    async with app:
        await queue.add_many([("n", "suspect")] * 4)
        claim = Claim(want=4, token="dead", lease=30_000, worker="dead")
        leases = [job.lease for job in (await app.store.exchange("q", [], claim)).jobs]
        assert len((await app.store.recover("q", dead=leases, cause="a crash")).returned) == 4
        await queue.add_many([("n", "fresh")] * 3)

        async with working(app, burst=burst), asyncio.timeout(30):
            await done.wait()

    assert started[:4] == [("suspect", 1)] * 4
    assert started[4:] == [("fresh", 1), ("fresh", 2), ("fresh", 3)]
