"""Workers tell the store what their code declares, and programs without that code go by it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from tests.worker.conftest import Timed
from toril import (
    App,
    Exponential,
    Fixed,
    GroupLimits,
    JobContext,
    Keep,
    Queue,
    RateLimit,
    Retry,
    SignalKind,
    UsageError,
    handler,
)
from toril.client.options import as_workers_declare
from toril.codec.schemas import schema_of
from toril.model import Declarations, Heartbeat
from toril.testing import Memory


@dataclass
class Approval:
    ok: bool
    by: str | None = None


ODD: Any = Callable[[], int]  # JSON has no such values


async def send(ctx: JobContext[Any]) -> None: ...


async def once(ctx: JobContext[Any]) -> None: ...


def declared_app() -> App:
    app = App("memory://")
    app.queue(
        "q", {"send": send, "once": handler(once, retry=Retry(1))}, concurrency=10, lease=60, timeout=20,
        retry=Retry(3, Fixed(7)), rate_limit=RateLimit(50, per=2), groups=GroupLimits(concurrency=2), max_waiting=500,
        keep_completed=9, keep_failed=Keep(age=60), subject="tenant", target_wait=5, priority_first=True,
        signals=[SignalKind("approval", Approval), SignalKind("paid", int), SignalKind("odd", ODD)],
    )  # fmt: skip
    return app


@asynccontextmanager
async def at_work(test: Memory, app: App) -> AsyncIterator[None]:
    """The app's workers, from their first sign of life to their last."""
    work = asyncio.create_task(app.run(signals="leave"))
    try:
        async with asyncio.timeout(30):
            while not await app.store.workers():  # noqa: ASYNC110 - a sign of life has no event
                await asyncio.sleep(0.001)
        yield
    finally:
        app.stop()
        while not work.done():
            test.clock.advance(100)
            await asyncio.sleep(0.001)
        await work


async def until_declared(test: Memory, app: App, *, but: Declarations = Declarations()) -> Declarations:
    """What is declared once that is something else; heartbeats come by the clock."""
    async with asyncio.timeout(30):
        while (found := await app.store.declarations("q")) == but:
            test.clock.advance(500)
            await asyncio.sleep(0.001)
    return found


def elsewhere(app: App) -> Queue:
    """The queue in a program that does not have its code."""
    other = App("memory://")
    vars(other.services).update(engine=app.store, clock=app.services.clock, users=1)
    return other.queue("q")


async def test_a_worker_tells_what_its_code_declares_while_it_lives(timed: Timed) -> None:
    app = declared_app()
    async with timed(app) as test:
        before = await app.queues["q"].declaration()
        async with at_work(test, app):
            found = await app.queues["q"].declaration()
            seen = await elsewhere(app).declaration()
        after = await app.queues["q"].declaration()

    assert (before, after) == (None, None)
    assert found is not None
    assert found == seen
    assert (found.workers, found.slots, found.differs, found.concurrency) == (1, 10, (), 10)
    assert (found.lease, found.timeout, found.target_wait) == (60.0, 20.0, 5.0)
    assert (found.max_attempts, found.backoff.kind, found.backoff.delay) == (3, "fixed", 7.0)
    assert (found.rate, found.groups, found.max_waiting) == (RateLimit(50, per=2), GroupLimits(concurrency=2), 500)
    assert (found.keep_completed, found.keep_failed, found.priority_first) == (Keep(9), Keep(age=60), True)
    assert (found.handlers, found.any_name) == (("once", "send"), False)


async def test_the_types_of_signals_are_told_as_schemas(timed: Timed) -> None:
    app = declared_app()
    async with timed(app) as test, at_work(test, app):
        found = (await app.store.declarations("q")).newest

    assert found is not None
    assert found.signals is not None
    approval = found.signals["approval"]
    assert set(approval["properties"]) == {"ok", "by"}
    assert approval["required"] == ["ok"]
    assert (found.signals["paid"], found.signals["odd"]) == ({"type": "integer"}, None)


def test_a_schema_that_is_very_large_stays_at_home() -> None:
    large: Any = dataclass(type("Large", (), {"__annotations__": {f"field_{n}": str for n in range(200)}}))

    assert schema_of(large) is None
    assert schema_of(Annotated[int, []]) == {"type": "integer"}  # a type that has no hash


async def test_what_changes_is_told_soon(timed: Timed) -> None:
    app = declared_app()
    async with timed(app) as test, at_work(test, app):
        before = await app.store.declarations("q")
        app.queues["q"].handlers.register("late", send)

        after = await until_declared(test, app, but=before)

    assert before.handled(1) == frozenset({"once", "send"})
    assert after.handled(1) == frozenset({"late", "once", "send"})


async def test_it_is_told_only_when_it_is_news(timed: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    app = declared_app()
    async with timed(app) as test:
        told: list[bool] = []
        real = app.store.heartbeat

        async def beat(beat: Any, **rest: Any) -> Any:
            told.append(beat.declares is not None)
            return await real(beat, **rest)

        monkeypatch.setattr(app.store, "heartbeat", beat)
        async with at_work(test, app):
            async with asyncio.timeout(30):
                while len(told) < 4:
                    test.clock.advance(1000)
                    await asyncio.sleep(0.001)

    assert told == [True] + [False] * (len(told) - 1)


async def test_a_store_that_was_emptied_is_told_again(timed: Timed) -> None:
    app = declared_app()
    async with timed(app) as test, at_work(test, app):
        (worker,) = await app.store.workers()
        found = await app.store.declarations("q")
        gone = Heartbeat(worker=worker.id, queues=worker.queues, slots=1, running=0, started_at=worker.started_at)
        await app.store.heartbeat(gone, ttl=0)  # as if it had never been heard of
        assert await app.store.declarations("q") == Declarations()

        again = await until_declared(test, app)

    assert again.newest == found.newest


async def test_a_queue_has_the_concurrency_that_its_worker_was_started_with(timed: Timed) -> None:
    app = declared_app()
    async with timed(app) as test:
        work = asyncio.create_task(app.run(signals="leave", queues={"q": 3}))
        found = await until_declared(test, app)
        app.stop()
        while not work.done():
            test.clock.advance(100)
            await asyncio.sleep(0.001)
        await work

    assert (found.newest and found.newest.concurrency, found.slots) == (3, 3)


async def test_a_program_without_the_code_adds_jobs_as_the_application_does(timed: Timed) -> None:
    app = declared_app()
    async with timed(app) as test, at_work(test, app):
        here, there = app.queues["q"], elsewhere(app)
        as_declared = await as_workers_declare(there)
        assert as_declared is not None
        for name in ("send", "once", "unheard_of"):
            data = {"tenant": "acme"}
            ours, theirs = here.new(name, data).job, as_declared.new(name, data).job
            assert ours == theirs, name
        own = as_declared.new("send", {"tenant": "acme"}, attempts=9, backoff=Exponential(1), keep_failed=1).job
        assert (own.attempts, own.options.keep_failed, own.options.subject) == (9, Keep(1), "acme")
        assert as_declared.new("once", {"tenant": "acme"}).job.attempts == 1


async def test_where_nobody_declares_a_queue_its_defaults_are_not_known(timed: Timed) -> None:
    app = declared_app()
    async with timed(app):
        assert await as_workers_declare(elsewhere(app)) is None
        assert await as_workers_declare(app.queues["q"]) is app.queues["q"], "the code is here"


async def test_payloads_that_only_the_application_can_write_are_not_added_elsewhere(timed: Timed) -> None:
    class Shouted:
        def dumps(self, value: Any) -> bytes:
            return str(value).upper().encode()

        def loads(self, data: bytes) -> Any:
            return data.decode().lower()

    app = App("memory://")
    app.queue("q", {"send": send}, serializer=Shouted())
    async with timed(app) as test, at_work(test, app):
        with pytest.raises(UsageError, match="queue 'q' has a serializer, which only the application has"):
            await as_workers_declare(elsewhere(app))
