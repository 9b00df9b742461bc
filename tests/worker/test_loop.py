"""What the loop promises: order, fairness between queues, one run however long the loop is blocked, a clean stop."""

import asyncio
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.worker.conftest import Seen, Timed, working
from toril import App, EngineFull, EngineUnavailable, JobContext, PermanentError, Retry, Snooze, State, TransientError
from toril.model import Claim, Exchange
from toril.policy.retry import Fixed
from toril.testing import memory

SOON = Retry(attempts=3, backoff=Fixed(0.01))


@pytest.mark.covers("R017")
async def test_a_thousand_jobs_of_one_worker_run_in_their_order(app: App) -> None:
    ran: list[int] = []

    async def note(ctx: JobContext[int]) -> None:
        ran.append(ctx.data)

    queue = app.queue("q", {"note": note})
    async with app:
        await queue.add_many([("note", number) for number in range(1000)])
        assert await app.run(burst=True) == 0

    assert ran == list(range(1000))


async def test_many_slots_run_every_job_once(app: App) -> None:
    ran: list[int] = []

    async def note(ctx: JobContext[int]) -> None:
        await asyncio.sleep(0)
        ran.append(ctx.data)

    queue = app.queue("q", {"note": note}, concurrency=100)
    async with app:
        await queue.add_many([("note", number) for number in range(3000)])
        assert await app.run(burst=True) == 0
        counts = await queue.counts()

    assert sorted(ran) == list(range(3000))
    assert (counts.waiting, counts.active, counts.failed) == (0, 0, 0)


@pytest.mark.covers("R008", "R258")
async def test_a_full_slow_queue_does_not_hold_up_another(app: App) -> None:
    held = asyncio.Event()

    async def slow(ctx: JobContext[int]) -> None:
        await held.wait()

    async def quick(ctx: JobContext[None]) -> str:
        return "done"

    slow_queue = app.queue("slow", {"slow": slow}, concurrency=10)
    quick_queue = app.queue("quick", {"quick": quick})
    async with app:
        await slow_queue.add_many([("slow", number) for number in range(10_000)])
        run = asyncio.create_task(app.run(grace=0))
        try:
            assert await quick_queue.add_and_wait("quick") == "done"
            assert (await slow_queue.counts()).active == 10, "it had started"
        finally:
            app.stop()
            assert await run == 1


@pytest.mark.covers("F21", "P5")
async def test_a_handler_that_blocks_the_loop_for_three_leases_runs_once(tmp_path: Path) -> None:
    """Another worker waits for the job to be lost meanwhile, in the same store with a loop of its own."""
    url, ran = f"sqlite:///{tmp_path / 'jobs.db'}", []

    async def busy(ctx: JobContext[None]) -> str:
        ran.append(ctx.attempt)
        until = time.monotonic() + 6.4
        while time.monotonic() < until:
            pass
        return "done"

    def other() -> None:
        idle = App(url)
        idle.queue("q", {"busy": busy}, lease=2)

        async def serve() -> None:
            asyncio.get_running_loop().call_later(10, idle.stop)
            await idle.run()

        asyncio.run(serve())

    app = App(url)
    queue = app.queue("q", {"busy": busy}, lease=2, keep_completed=1)
    async with working(app):
        job = await queue.add("busy", result_ttl=60)
        await asyncio.sleep(0.1)
        rival = asyncio.create_task(asyncio.to_thread(other))
        assert await job.result(60) == "done"
        await rival
        await job.refresh()

    assert ran == [1]
    assert job.stalls == 0


@pytest.mark.covers("F21", "R125")
async def test_a_handler_that_blocks_the_loop_past_the_hang_timeout_loses_its_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another worker runs it, and what the blocked one returns in the end is refused."""
    url, ran = f"sqlite:///{tmp_path / 'jobs.db'}", list[str]()
    blocked, go, ended = threading.Event(), threading.Event(), list[str]()

    async def work(ctx: JobContext[None]) -> str:
        if not blocked.is_set():
            ran.append("first")
            blocked.set()
            go.wait(60)
            return "first"
        ran.append("second")
        return "second"

    def block() -> None:
        app = App(url)
        app.queue("q", {"work": work}, lease=1)

        def note(name: str, _: Any) -> None:
            ended.append(name)
            app.stop()

        for name in ("lease_lost", "completed"):
            app.on(name, partial(note, name))
        asyncio.run(app.run(hang_timeout=0.2))

    app = App(url)
    queue = app.queue("q", {"work": work}, lease=1, keep_completed=1)
    async with app:
        job = await queue.add("work", result_ttl=60)
        blocking = asyncio.create_task(asyncio.to_thread(block))
        try:
            assert await asyncio.to_thread(blocked.wait, 30)
            async with working(app):
                assert await job.result(20) == "second"
                go.set()
                await asyncio.wait_for(blocking, 30)
                await job.refresh()
        finally:
            go.set()
            await blocking

    assert (ran, ended, job.stalls) == (["first", "second"], ["lease_lost"], 1)
    assert "the event loop has been blocked for 0.2 s: the leases of its 1 jobs are no longer renewed" in caplog.text
    assert "go.wait(60)" in caplog.text  # where it stands
    assert "the event loop runs again" in caplog.text


class Raw:
    """A serializer whose values are bytes."""

    def dumps(self, value: bytes) -> bytes:
        return value

    def loads(self, data: bytes) -> bytes:
        return data


@pytest.mark.covers("R166")
async def test_any_bytes_that_a_serializer_makes_come_back(timed: Timed) -> None:
    app, every, seen = App("memory://"), bytes(range(256)), list[bytes]()

    async def turn(ctx: JobContext[Any]) -> bytes:
        seen.append(ctx.data)
        return bytes(reversed(ctx.data))

    queue = app.queue("q", {"turn": turn}, serializer=Raw())
    async with timed(app) as test:
        job = await queue.add("turn", every, result_ttl=60)
        await test.drain()
        result = await job.result(60)

    assert (seen, result) == ([every], every[::-1])


@pytest.mark.covers("R054")
@pytest.mark.parametrize("attempts", [3, 10])
async def test_a_failing_job_is_tried_as_often_as_it_may_be(app: App, attempts: int) -> None:
    tried: list[int] = []

    async def fail(ctx: JobContext[None]) -> None:
        tried.append(ctx.attempt)
        raise ValueError("no")

    queue = app.queue("q", {"fail": fail}, retry=SOON, keep_failed=1)
    seen = Seen(app, "active", "retrying", "failed")
    async with working(app):
        job = await queue.add("fail", attempts=attempts)
        await seen.until("failed")
        await job.refresh()

    assert tried == list(range(1, attempts + 1))
    assert (job.attempts_made, job.error) == (attempts, "no")
    assert seen.names() == ["active", "retrying"] * (attempts - 1) + ["active", "failed"]


@pytest.mark.covers("R064")
async def test_permanent_transient_and_snoozed_are_what_they_say(app: App) -> None:
    async def work(ctx: JobContext[str]) -> str:
        match ctx.data, ctx.attempt:
            case "permanent", _:
                raise PermanentError("never again")
            case "transient", 1:
                raise TransientError("busy", retry_after=0.02)
            case "snooze", _ if ctx.last_checkpoint is None:
                await ctx.checkpoint("slept")
                raise Snooze(0.01)
            case _:
                return f"{ctx.data} in attempt {ctx.attempt}"

    queue = app.queue("q", {"work": work}, retry=SOON, keep_failed=1)
    async with working(app):
        permanent = await queue.add("work", "permanent")
        assert await queue.add_and_wait("work", "transient") == "transient in attempt 2"
        assert await queue.add_and_wait("work", "snooze") == "snooze in attempt 1"
        await permanent.refresh()

    assert (permanent.attempts_made, permanent.error) == (1, "never again")


@pytest.mark.covers("R247")
async def test_a_stop_waits_for_what_runs_and_claims_no_more(app: App) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def work(ctx: JobContext[None]) -> str:
        started.set()
        await go_on.wait()
        return "done"

    queue = app.queue("q", {"work": work})
    async with app:
        first, second = await queue.add("work", result_ttl=60), await queue.add("work")
        run = asyncio.create_task(app.run())
        await started.wait()
        app.stop()
        go_on.set()

        assert await run == 0
        assert await first.result(0) == "done"
        assert await second.state() is State.WAITING


@pytest.mark.covers("R250", "P6")
async def test_what_outlasts_the_grace_is_given_back_with_its_attempts(app: App) -> None:
    started = asyncio.Event()
    why: list[str | None] = []

    async def work(ctx: JobContext[None]) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            why.append(ctx.signal.reason)

    queue = app.queue("q", {"work": work})
    async with app:
        job = await queue.add("work")
        run = asyncio.create_task(app.run(grace=0.05))
        await started.wait()
        app.stop()

        assert await run == 1
        await job.refresh()
        assert await job.state() is State.WAITING
        assert (job.attempts_made, job.stalls) == (0, 0)
    assert why == ["the worker is shutting down"]


async def test_a_handler_that_swallows_its_cancellation_gives_up_its_slot(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toril.worker.worker.STUCK_GRACE", 0.1)
    let_go = asyncio.Event()

    async def deaf(ctx: JobContext[None]) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    async def hear(ctx: JobContext[None]) -> str:
        return "heard"

    queue = app.queue("q", {"deaf": deaf, "hear": hear}, retry=Retry(attempts=1), timeout=0.1)
    seen = Seen(app, "stuck", "failed")
    async with working(app):
        await queue.add("deaf")
        assert await queue.add_and_wait("hear", result_ttl=60) == "heard"
        let_go.set()

    assert sorted(seen.names()) == ["failed", "stuck"]


@pytest.mark.covers("F18")
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("odd")])
async def test_whatever_a_handler_raises_fails_its_job_and_nothing_else(app: App, error: BaseException) -> None:
    async def work(ctx: JobContext[bool]) -> str:
        if ctx.data:
            raise error
        return "well"

    queue = app.queue("q", {"work": work}, retry=Retry(attempts=1), keep_failed=1)
    seen = Seen(app, "failed")
    async with working(app):
        await queue.add("work", True)
        told = await seen.until("failed")
        assert await queue.add_and_wait("work", False) == "well"

    assert told.kind == type(error).__name__


async def test_a_handler_that_awaits_something_cancelled_fails(app: App) -> None:
    async def work(ctx: JobContext[None]) -> None:
        inner = asyncio.create_task(asyncio.sleep(60))
        inner.cancel()
        await inner

    queue = app.queue("q", {"work": work}, retry=Retry(attempts=1))
    seen = Seen(app, "failed")
    async with working(app):
        await queue.add("work")
        told = await seen.until("failed")

    assert told.kind == "CancelledError"


async def test_a_job_cancelled_while_it_runs_stops_at_its_next_breakpoint(app: App) -> None:
    started = asyncio.Event()

    async def work(ctx: JobContext[None]) -> None:
        started.set()
        await ctx.signal.wait()
        ctx.raise_if_cancelled()

    queue = app.queue("q", {"work": work}, keep_failed=1)
    seen = Seen(app, "cancelled")
    async with working(app):
        job = await queue.add("work")
        await started.wait()
        assert await job.cancel("not needed") == "requested"
        told = await seen.until("cancelled")

    assert told.error == "not needed"


@pytest.mark.covers("R023")
async def test_work_goes_on_within_two_seconds_of_the_stores_return(monkeypatch: pytest.MonkeyPatch) -> None:
    app, started = App("memory://"), list[int]()

    async def note(ctx: JobContext[None]) -> None:
        started.append(test.clock.now())

    queue = app.queue("q", {"note": note})
    async with memory(app) as test, test.clock.running():
        exchange, returns = app.store.exchange, list[int]()

        async def away(*args: Any, **options: Any) -> Any:
            if returns and test.clock.now() < returns[-1]:
                raise EngineUnavailable("the store is away")
            return await exchange(*args, **options)

        monkeypatch.setattr(app.store, "exchange", away)
        for seconds in (7, 20, 33, 61):
            await queue.add("note")
            returns.append(test.clock.now() + seconds * 1000)
            assert await app.run(burst=True) == 0

    assert len(started) == len(returns)
    assert all(0 <= at - back <= 2_000 for at, back in zip(started, returns, strict=True))


@pytest.mark.covers("F24", "X30")
async def test_a_job_that_outlives_its_timeout_is_tried_again(app: App) -> None:
    async def work(ctx: JobContext[None]) -> str:
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        return "in time"

    queue = app.queue("q", {"work": work}, retry=SOON, timeout=0.05)
    async with working(app):
        assert await queue.add_and_wait("work") == "in time"


async def test_a_store_that_takes_no_progress_fails_no_job(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(ctx: JobContext[None]) -> str:
        await ctx.update_progress(50)
        await ctx.log("half way")
        return "done"

    async def away(*args: object, **options: object) -> None:
        raise EngineFull("no room")

    queue = app.queue("q", {"work": work}, retry=Retry(attempts=1))
    async with working(app):
        monkeypatch.setattr(app.store, "report", away)

        assert await queue.add_and_wait("work") == "done"


@pytest.mark.covers("R102")
async def test_every_claim_of_a_worker_has_a_token_of_its_own(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each queue, with one slot and with many, in the next run and in another worker of the same name."""
    claims: list[str] = []
    leases: set[tuple[str, str]] = set()

    async def nothing(ctx: JobContext[None]) -> None: ...

    for each in (app, App(app.url)):
        queues = [each.queue(name, {"n": nothing}, concurrency=slots) for name, slots in (("one", 1), ("many", 20))]
        monkeypatch.setattr(each.services.engine, "exchange", noted(each.services.engine.exchange, claims, leases))
        async with each:
            for _ in range(2):
                for queue in queues:
                    await queue.add_many([("n", None)] * 5)
                assert await each.run(burst=True, name="same") == 0

    assert len(leases) == 2 * 2 * 2 * 5
    assert {token for _, token in leases} <= set(claims)
    assert len(claims) == len(set(claims)) > 20


def noted(exchange: Any, claims: list[str], leases: set[tuple[str, str]]) -> Any:
    """The same, and the token of each claim and of each job that it brought is noted."""

    async def exchanged(queue: str, batch: Any, claim: Claim, **options: Any) -> Exchange:
        answer: Exchange = await exchange(queue, batch, claim, **options)
        if claim.want:
            claims.append(claim.token)
        leases.update((f"{queue}/{job.lease.id}", job.lease.token) for job in answer.jobs)
        return answer

    return exchanged
