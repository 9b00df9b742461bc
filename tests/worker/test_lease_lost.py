"""What an app can do about a job that was lost while it ran."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.conftest import Seen, working
from toril import App, Job, JobContext, LeaseLost
from toril.context import StopReason
from toril.model import Lease, Renewed
from toril.model.states import State
from toril.supervisor.leases import FleetLeases
from toril.testing import ManualClock
from toril.worker.lease_table import LeaseEntry
from toril.worker.leases import LeaseKeeper, Tell


@pytest.mark.covers("R108", "R109", "R110", "R113", "F26", "Q2")
async def test_a_lost_job_is_told_to_its_handler_and_to_the_hooks_that_want_it(app: App) -> None:
    seen, told, started = Seen(app, "lease_lost", "completed"), list[str](), asyncio.Event()
    reasons: list[str | None] = []
    fences: list[int] = []

    async def work(ctx: JobContext[dict[str, Any]]) -> None:
        fences.append(ctx.fence)
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx.signal.reason)

    queue = app.queue("q", {"n": work}, lease=1, renew=0.1, max_stalls=0)

    def failing(job: Job[Any]) -> None:
        raise RuntimeError("a hook that fails")

    async def mend(job: Job[Any]) -> None:
        told.append(f"{job.name} {job.data['id']}")
        fences.append(job.fence)

    queue.on_lease_lost(failing)
    queue.on_lease_lost(mend, when=lambda job: "id" in job.data)
    queue.on_lease_lost(lambda _: told.append("never"), when=lambda job: "other" in job.data)
    async with working(app):
        job = await queue.add("n", {"id": 7})
        await started.wait()
        await lose(app, job.id)

        await seen.until("lease_lost")

    assert told == ["n 7"]
    assert fences == [fences[0]] * 2, "the hook knows which start was lost"
    assert fences[0] > 0
    assert reasons == ["the lease was lost"]
    assert seen.of("completed") == []


WRITES: list[tuple[str, Callable[[JobContext[Any]], Awaitable[None]]]] = [
    ("progress", lambda ctx: ctx.update_progress(99)),
    ("log", lambda ctx: ctx.log("too late")),
    ("data", lambda ctx: ctx.update_data("too late")),
    ("checkpoint", lambda ctx: ctx.checkpoint("too late")),
]


@pytest.mark.covers("R107", "F26", "F27")
async def test_who_has_lost_a_job_can_neither_write_nor_end_it(app: App) -> None:
    """Even if it does not listen to its cancellation, and another has the job already."""
    seen, started, refused = Seen(app, "lease_lost", "completed"), asyncio.Event(), list[str]()

    async def work(ctx: JobContext[str]) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for name, write in WRITES:
                with pytest.raises(LeaseLost, match="has lost its lease on job"):
                    await write(ctx)
                refused.append(name)
        return "too late"

    queue = app.queue("q", {"n": work}, lease=1, renew=0.1)
    async with working(app):
        job = await queue.add("n", "as it was")
        await started.wait()
        await queue.pause()
        await lose(app, job.id)
        event = await seen.until("lease_lost")
        (record,) = await app.store.jobs("q", [job.id])
        logs = await app.store.logs("q", job.id)

    assert refused == [name for name, _ in WRITES]
    assert (event.job_id, event.duration is not None) == (job.id, True)  # it was the settlement that was refused
    assert seen.of("completed") == []
    assert record is not None
    assert (record.state, record.stalls, record.attempts_made) == (State.WAITING, 1, 0)
    assert (record.data, record.progress, record.checkpoint, logs.items) == ('"as it was"', None, None, ())


@pytest.mark.covers("F26")
async def test_an_attempt_whose_own_process_takes_its_job_back_is_told_at_once(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody renews its lease, as when the supervisor that should is frozen; the recovery of its own process, which is
    the first to see that the lease has run out, tells it."""

    async def nothing(_: LeaseKeeper) -> None: ...

    monkeypatch.setattr(LeaseKeeper, "renew_due", nothing)
    seen, starts, told = Seen(app, "completed"), list[int](), list[object]()

    async def work(ctx: JobContext[None]) -> None:
        starts.append(ctx.fence)
        if len(starts) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                told.append(ctx.signal.kind)

    queue = app.queue("q", {"n": work}, lease=1)
    async with working(app):
        await queue.add("n")
        await seen.until("completed")

    assert told == [StopReason.LEASE_LOST]
    assert len(starts) == 2


@pytest.mark.covers("F30")
async def test_a_process_that_is_given_its_own_lost_job_never_runs_it_twice_at_once(app: App) -> None:
    """The first run is told, and over, before the second begins; and each has a number of its own."""
    seen, started, live, most = Seen(app, "completed", "lease_lost"), asyncio.Event(), 0, 0
    fences: list[int] = []

    async def work(ctx: JobContext[None]) -> None:
        nonlocal live, most
        live, most = live + 1, max(most, live + 1)
        fences.append(ctx.fence)
        started.set()
        try:
            if len(fences) == 1:
                await asyncio.Event().wait()
        finally:
            live -= 1

    queue = app.queue("q", {"n": work}, concurrency=5, lease=1, renew=0.1)
    async with working(app):
        job = await queue.add("n")
        await started.wait()
        await lose(app, job.id)
        await seen.until("completed")

    assert (most, len(seen.of("lease_lost"))) == (1, 1)
    assert fences == sorted(set(fences))
    assert len(fences) == 2


@pytest.mark.covers("R113")
async def test_whatever_a_hook_does_changes_nothing(app: App, caplog: pytest.LogCaptureFixture) -> None:
    """Nor does it keep the next hook from being called, though the worker ends at that moment."""
    seen, told, started = Seen(app, "worker_stopped"), list[str](), asyncio.Event()

    async def work(ctx: JobContext[None]) -> None:
        started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        app.stop()

    queue = app.queue("q", {"n": work}, lease=1, renew=0.1, max_stalls=0, keep_failed=1)

    def leave(job: Job[Any]) -> None:
        sys.exit("not for a hook to say")

    async def cancel_itself(job: Job[Any]) -> None:
        raise asyncio.CancelledError

    async def mend(job: Job[Any]) -> None:
        await asyncio.sleep(0)
        told.append(job.id)

    queue.on_lease_lost(leave)
    queue.on_lease_lost(cancel_itself)
    queue.on_lease_lost(mend, when=lambda _: 1 // 0 == 0)
    queue.on_lease_lost(mend)
    async with working(app):
        job = await queue.add("n")
        await started.wait()
        await lose(app, job.id)
        await seen.until("worker_stopped")

    assert told == [job.id]
    assert sum("on_lease_lost failed for job" in record.message for record in caplog.records) == 3


class Renewing:
    """A store whose leases hold, and which notes when it is asked to renew them."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.asked: list[float] = []

    async def renew(self, leases: Sequence[Lease], *, ttl: int) -> Renewed:
        assert leases
        assert ttl > 0
        self.asked.append(self._clock.monotonic())
        return Renewed()


async def renewals(ttl: int, renew: int, *, by_supervisor: bool) -> list[float]:
    """When a lease of this length is renewed, in seconds, by the worker itself or by its supervisor."""
    clock = ManualClock()
    renewing = Renewing(clock)
    store: Any = renewing
    lease = Lease("q", "1", "t")
    if by_supervisor:
        table = SimpleNamespace(unreadable={}, renew=lambda *_: None)
        child: Any = SimpleNamespace(pid=1, held=lambda: [LeaseEntry(lease, 0.0, ttl, renew)], table=table)
        keeper: LeaseKeeper = FleetLeases(store, clock, "supervisor", lambda: [child])
    else:
        keeper = LeaseKeeper(store, clock)
        keeper.hold(lease, ttl=ttl, renew=renew, since=0.0, tell=lambda _: None)
    while clock.monotonic() < 3.5 * renew / 1000:
        clock.advance(round(keeper.rest * 1000))
        await keeper.renew_due()
    return renewing.asked


@pytest.mark.covers("R104", "R137")
@pytest.mark.parametrize(
    ("options", "lease", "renew"), [({}, 30_000, 10_000), ({"lease": 300, "renew": 150}, 300_000, 150_000)],
    ids=["by default", "for long jobs"],
)  # fmt: skip
async def test_a_queue_has_the_lease_that_it_asks_for_and_it_is_renewed_so(
    options: dict[str, Any], lease: int, renew: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, started, kept = App("memory://"), asyncio.Event(), list[tuple[int, int]]()
    hold = LeaseKeeper.hold

    def held(self: LeaseKeeper, lease: Lease, *, ttl: int, renew: int, since: float, tell: Tell) -> None:
        kept.append((ttl, renew))
        hold(self, lease, ttl=ttl, renew=renew, since=since, tell=tell)

    monkeypatch.setattr(LeaseKeeper, "hold", held)

    async def work(ctx: JobContext[None]) -> None:
        started.set()
        await asyncio.Event().wait()

    queue = app.queue("q", {"n": work}, **options)
    async with working(app, grace=0):
        job = await queue.add("n")
        await started.wait()
        (record,) = await app.store.jobs("q", [job.id])

    assert record is not None
    assert record.deadline is not None
    assert record.started_at is not None
    assert record.deadline - record.started_at == lease
    assert kept == [(lease, renew)]
    for by_supervisor in (False, True):
        assert await renewals(lease, renew, by_supervisor=by_supervisor) == [n * renew / 1000 for n in (1, 2, 3)]


async def lose(app: App, job_id: str) -> None:
    """Another worker, a minute ahead, finds that the lease has run out, even if it is renewed meanwhile."""
    (record,) = await app.store.jobs("q", [job_id])
    assert record is not None
    await app.store.recover("q", now=(record.deadline or 0) + 60_000)


async def test_a_hook_must_be_a_function(app: App) -> None:
    hook: Any = "mend"
    with pytest.raises(TypeError, match="on_lease_lost must be a function"):
        app.queue("q").on_lease_lost(hook)
