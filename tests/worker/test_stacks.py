"""Where a running job is: in its coroutine, in its thread, in its process, and in what it waits for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.worker.handlers_for_processes import forever
from toril import App, JobContext, NotFound, SyncJobContext, WrongState, handler
from toril.model import Claim, Heartbeat, NewJob
from toril.worker.stacks import of_task


async def inner(ctx: JobContext[Any]) -> None:
    await ctx.signal.wait()


async def awaits(ctx: JobContext[Any]) -> None:
    await inner(ctx)


def blocks(ctx: SyncJobContext[Any]) -> None:
    in_a_thread(ctx)


def in_a_thread(ctx: SyncJobContext[Any]) -> None:
    ctx.wait_for_cancel(60)


@asynccontextmanager
async def working(**handlers: Any) -> AsyncIterator[App]:
    app = App("memory://")
    app.queue("q", handlers, concurrency=5)
    async with app:
        work = asyncio.create_task(app.run(grace=0.1, signals="leave"))
        yield app
        app.stop()
        await work


async def stack_of(app: App, name: str, innermost: str) -> str:
    """Of a job of this name, once it has got there."""
    queue = app.queue("q")
    job = await queue.add(name)
    async with asyncio.timeout(60):
        while True:
            try:
                found = await queue.stack(job.id)
            except WrongState:
                await asyncio.sleep(0.05)
                continue
            assert (found.queue, found.id, found.silent) == ("q", job.id, 0)
            assert found.worker
            if innermost in found.text:
                return found.text


async def test_a_coroutine_is_shown_with_all_that_it_waits_in() -> None:
    async with working(awaits=awaits) as app:
        text = await stack_of(app, "awaits", "in inner")

    assert text.index("in awaits\n    await inner(ctx)") < text.index("in inner\n    await ctx.signal.wait()")


async def test_a_plain_function_is_shown_where_its_thread_is() -> None:
    async with working(blocks=blocks) as app:
        text = await stack_of(app, "blocks", "in in_a_thread")

    assert text.index("in blocks\n    in_a_thread(ctx)") < text.index("in in_a_thread\n    ctx.wait_for_cancel(60)")


async def test_a_function_in_a_process_of_its_own_says_where_it_is() -> None:
    async with working(forever=handler(forever, executor="process")) as app:
        text = await stack_of(app, "forever", "in forever")

    assert text.startswith("Process ")
    assert "handlers_for_processes.py" in text


async def test_what_a_task_waits_for_is_shown_too() -> None:
    rests = asyncio.Event()

    async def leaf() -> None:
        await rests.wait()

    async def gathers() -> None:
        await asyncio.gather(*(leaf() for _ in range(12)))

    async def groups() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(leaf(), name="one of the group")

    async def joins() -> None:
        await asyncio.create_task(leaf(), name="the other")

    tasks = [asyncio.create_task(each()) for each in (gathers, groups, joins)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gathered, grouped, joined = map(of_task, tasks)
    rests.set()
    await asyncio.gather(*tasks)

    assert (gathered.count("in leaf"), "and for 2 more" in gathered) == (10, True)
    assert "It is waiting for one of the group:" in grouped
    assert joined.index("in joins") < joined.index("It is waiting for the other:") < joined.index("in leaf")


async def test_a_job_that_does_not_run_has_no_stack() -> None:
    async with App("memory://") as app:
        queue = app.queue("q")
        job = await queue.add("n")
        with pytest.raises(WrongState, match="is not running"):
            await queue.stack(job.id)
        with pytest.raises(NotFound):
            await queue.stack("nobody")


@pytest.mark.parametrize(("alive", "told"), [(False, "sends no heartbeats"), (True, "does not answer")])
async def test_a_worker_that_does_not_answer_is_said_to(alive: bool, told: str) -> None:
    async with App("memory://") as app:
        await app.store.add("q", [NewJob(name="n", id="j7")])
        await app.store.exchange("q", [], Claim(want=1, token="t", lease=30_000, worker="w"))
        if alive:
            await app.store.heartbeat(Heartbeat(worker="w", queues=["q"], slots=1, running=1), ttl=60_000)
        with pytest.raises(WrongState, match=told):
            await app.queue("q").stack("j7", patience=0.2)
