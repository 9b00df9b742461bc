"""Durable steps in real workers: recorded in the store, and ended with the attempt."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.worker import handlers_for_processes as in_processes
from tests.worker.conftest import working
from toril import App, JobContext, JobFailed, LeaseLost, PermanentError, Retry, SyncJobContext, handler
from toril.codec.steps import load_step
from toril.context import current_step
from toril.errors import StepFailed
from toril.model import Lease
from toril.policy.retry import Fixed
from toril.testing import Memory, memory


async def double(number: int) -> int:
    return 2 * number


async def test_a_later_attempt_goes_on_after_what_is_recorded() -> None:
    app, done = App("memory://"), list[str]()

    def note(name: str) -> str:
        done.append(name)
        return name

    async def handler(ctx: JobContext[None]) -> list[str]:
        values = await ctx.gather(*(ctx.step(name, note, name) for name in ("a", "b")))
        if ctx.attempt == 1:
            raise ConnectionError("away")
        return [*values, await ctx.step("c", note, "c")]

    queue = app.queue("q", {"run": handler}, retry=Retry(3))
    async with memory(app) as test:
        job = await queue.add("run", result_ttl=600)
        await test.after("1m")

        assert await job.result() == ["a", "b", "c"]
    assert done == ["a", "b", "c"]


async def test_a_failed_step_is_grouped_by_its_cause() -> None:
    app = App("memory://")

    def charge() -> None:
        raise PermanentError("declined")

    async def handler(ctx: JobContext[None]) -> None:
        await ctx.step("charge", charge)

    queue = app.queue("q", {"run": handler}, retry=Retry(3))
    async with memory(app) as test:
        await queue.add("run")
        await test.drain()
        (letter,) = (await app.dead_letters.page()).items

    assert (letter.failure.kind, letter.failure.reason) == ("PermanentError", "declined")
    assert letter.attempts_made == 1
    assert "in charge" in letter.failure.traceback


async def test_a_failure_that_was_caught_holds_for_its_attempt() -> None:
    app, done = App("memory://"), list[str]()

    async def charge() -> None:
        done.append("charge")
        raise ConnectionError("away")

    async def handler(ctx: JobContext[None]) -> None:
        try:
            await ctx.step("charge", charge, retry=Retry(2, Fixed(0)))
        except StepFailed as error:
            await ctx.step("undo", done.append, "undo")
            raise ConnectionError(error.reason) from error

    queue = app.queue("q", {"run": handler}, retry=Retry(2))
    async with memory(app) as test:
        job = await queue.add("run", keep_failed=True)
        await test.after("1m")
        rows = (await app.store.steps.page("q", job.id)).items

    assert done == ["charge", "charge", "undo", "charge", "charge"], "the second attempt tries again"
    assert [row.kind.value for key, text in rows if (row := load_step(key, text)) is not None] == ["d", "e"]


async def test_a_worker_that_dies_with_a_step_under_way_loses_only_that(tmp_path: Path) -> None:
    app, done = App(f"sqlite:///{tmp_path}/jobs.db"), list[str]()
    queue = app.queue("q", concurrency=1)
    tests: list[Memory] = []

    @queue.handler
    async def run(ctx: JobContext[None]) -> str:
        await ctx.step("a", done.append, "a")

        async def dies() -> None:
            done.append("b")
            if done.count("b") == 1:
                tests[0].kill_here()

        await ctx.step("b", dies)
        return str(await ctx.step("c", lambda: "c"))

    async with memory(app) as test:
        tests.append(test)
        job = await queue.add(run, result_ttl=60)
        await test.after("2m")

        assert await job.result() == "c"
    assert done == ["a", "b", "b"]


async def test_an_attempt_that_has_lost_its_lease_records_nothing(app: App) -> None:
    lost, ended = asyncio.Event(), asyncio.Event()
    raised: list[BaseException] = []
    leases, began = list[Lease](), asyncio.Event()

    async def slow() -> None:
        await asyncio.wait_for(lost.wait(), 10)

    async def run(ctx: JobContext[None]) -> None:
        if leases:
            return
        leases.append(ctx._claimed.lease)
        began.set()
        try:
            await ctx.step("slow", slow)
        except BaseException as error:
            raised.append(error)
            raise
        finally:
            ended.set()

    queue = app.queue("q", {"run": run})
    async with working(app):
        job = await queue.add("run", keep_completed=True)
        await asyncio.wait_for(began.wait(), 10)
        await app.store.recover("q", dead=leases)
        lost.set()
        await asyncio.wait_for(ended.wait(), 10)
        rows = (await app.store.steps.page("q", job.id)).items

    assert [type(error) for error in raised] == [LeaseLost]
    assert list(rows) == []


@pytest.mark.parametrize("name", ["serializer", "plain"])
async def test_steps_are_encoded_as_their_queue_says(name: str) -> None:
    class Backwards:
        def dumps(self, value: Any) -> bytes:
            return str(value).encode()[::-1]

        def loads(self, data: bytes) -> Any:
            return data[::-1].decode()

    app = App("memory://")

    async def handler(ctx: JobContext[Any]) -> Any:
        return await ctx.step("a", lambda: "secret")

    queue = app.queue("q", {"run": handler}, serializer=Backwards() if name == "serializer" else None)
    async with memory(app) as test:
        job = await queue.add("run", keep_completed=True)
        await test.drain()
        ((_, text),) = (await app.store.steps.page("q", job.id)).items

    assert ("secret" in text) is (name == "plain")


@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_plain_functions_have_the_same_steps(tmp_path: Path, executor: str) -> None:
    app, log = App("memory://"), tmp_path / "log"
    made = handler(in_processes.counts, executor=executor)  # type: ignore[arg-type]
    queue = app.queue("q", {"counts": made}, retry=Retry(2, Fixed(0)))
    async with working(app):
        job = await queue.add("counts", str(log), result_ttl=600)
        assert await job.result(30) == [True, True, 1]

    assert log.read_text() == "x"


async def test_a_step_of_a_plain_handler_runs_in_its_thread() -> None:
    app = App("memory://")
    seen: list[Any] = []

    def note() -> None:
        info = current_step()
        seen.append((threading.current_thread(), info and info.key))

    async def wrong() -> None:
        """Cannot be awaited there."""

    def run(ctx: SyncJobContext[None]) -> None:
        ctx.step("note", note)
        seen.append((threading.current_thread(), current_step()))
        with pytest.raises(TypeError, match="needs a plain function"):
            ctx.step("wrong", wrong)  # type: ignore[unused-coroutine]

    queue = app.queue("q", {"run": run})
    async with memory(app) as test:
        job = await queue.add("run", result_ttl=60)
        await test.drain()
        await job.result()

    (thread, key), (handlers_thread, none) = seen
    assert thread is handlers_thread
    assert (key, none) == ("note", None)


@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_plain_functions_rest(tmp_path: Path, executor: str) -> None:
    app, log, rested = App("memory://"), tmp_path / "log", list[str]()
    made = handler(in_processes.naps, executor=executor)  # type: ignore[arg-type]
    queue = app.queue("q", {"naps": made})
    app.on("parked", lambda event: rested.append(event.job_name))
    async with working(app):
        job = await queue.add("naps", str(log), result_ttl=600)
        assert await job.result(30) == [1, 3, True]

    assert log.read_text() == "xx"
    assert rested == ["naps"]


@pytest.mark.parametrize("executor", ["thread", "process"])
@pytest.mark.parametrize("how", ["returns", "raises"])
async def test_a_plain_function_that_catches_its_rest_rests_anyway(
    executor: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, rested = App("memory://"), list[str]()
    made = handler(in_processes.swallows, executor=executor)  # type: ignore[arg-type]
    queue = app.queue("q", {"swallows": made}, retry=Retry(1))
    app.on("parked", lambda event: rested.append(event.job_name))
    async with working(app):
        job = await queue.add("swallows", how, result_ttl=600)
        assert await job.result(30) == "attempt 1"

    assert rested == ["swallows"]
    assert f"job {job.id} of queue q rests, but its handler has caught Resting" in caplog.text


async def test_a_function_in_a_process_of_its_own_cannot_call_other_jobs() -> None:
    app = App("memory://")
    queue = app.queue("q", {"calls": handler(in_processes.calls, executor="process")}, retry=Retry(1))
    async with working(app):
        with pytest.raises(JobFailed, match="cannot add children from there"):
            await queue.add_and_wait("calls")
