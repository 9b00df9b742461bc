"""Functions that run jobs: how they are declared, what they are given, what becomes of what they return."""

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.fundamentals.apps import drained, working
from toril import (
    App,
    Fixed,
    Job,
    JobContext,
    JobFailed,
    Queue,
    Result,
    Retry,
    SyncJobContext,
    UsageError,
    handler,
    only_if,
)
from toril.sync import SyncJob

AT_ONCE = Retry(attempts=3, backoff=Fixed(0))


async def double(ctx: JobContext[int]) -> int:
    return ctx.data * 2


async def triple(ctx: JobContext[int]) -> int:
    return ctx.data * 3


async def results(app: App, queue: Queue, jobs: dict[str, Any]) -> dict[str, Any]:
    """What the handlers of these names return for this data."""
    added = {name: await queue.add(name, data, result_ttl=60) for name, data in jobs.items()}
    await drained(app)
    return {name: await job.result(5) for name, job in added.items()}


# declaring


@pytest.mark.covers("R018")
async def test_a_plain_mapping_says_which_function_runs_which_job(app: App) -> None:
    queue = app.queue("q", {"twice": double, "thrice": triple})

    assert queue.handlers.names == ["twice", "thrice"]
    assert await results(app, queue, {"twice": 2, "thrice": 2}) == {"twice": 4, "thrice": 6}


@pytest.mark.covers("R018")
async def test_a_list_goes_by_the_functions_own_names(app: App) -> None:
    queue = app.queue("q", [double, handler(triple, timeout=5)])

    assert queue.handlers.names == ["double", "triple"]
    assert await results(app, queue, {"double": 2, "triple": 2}) == {"double": 4, "triple": 6}


@pytest.mark.covers("R018")
async def test_a_decorator_is_sugar_for_the_same_mapping(app: App) -> None:
    queue = app.queue("q")

    @queue.handler
    async def plain(ctx: JobContext[int]) -> int:
        return ctx.data + 1

    @queue.handler(name="renamed", timeout=5)
    async def other(ctx: JobContext[int]) -> int:
        return ctx.data + 2

    assert queue.handlers.names == ["plain", "renamed"]
    assert await results(app, queue, {"plain": 1, "renamed": 1}) == {"plain": 2, "renamed": 3}
    assert (await queue.add(plain, 1)).name == "plain"
    assert (await queue.add(other, 1)).name == "renamed"


@pytest.mark.covers("R018")
async def test_partials_methods_and_objects_that_can_be_called_are_handlers_too(app: App) -> None:
    class Adder:
        def __init__(self, by: int) -> None:
            self.by = by

        async def method(self, ctx: JobContext[int]) -> int:
            return ctx.data + self.by

        async def __call__(self, ctx: JobContext[int]) -> int:
            return ctx.data + self.by

    async def add(by: int, ctx: JobContext[int]) -> int:
        return ctx.data + by

    adder = Adder(10)
    handlers: dict[str, Any] = {"partial": partial(add, 5), "method": adder.method, "object": adder}
    queue = app.queue("q", handlers)

    assert await results(app, queue, {"partial": 1, "method": 1, "object": 1}) == {
        "partial": 6, "method": 11, "object": 11,
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"data: input should be a valid integer"):
        await queue.add("object", "x")


@pytest.mark.covers("X29")
async def test_an_alias_serves_jobs_that_were_added_under_an_older_name(app: App) -> None:
    queue = app.queue("q", {"twice": handler(double, aliases=["double", "times-two"])})

    assert await results(app, queue, {"twice": 1, "double": 2, "times-two": 3}) == {
        "twice": 2, "double": 4, "times-two": 6,
    }  # fmt: skip
    assert (await queue.add(double, 1)).name == "twice"


async def test_a_handler_can_still_be_called_as_the_function_that_it_is() -> None:
    class Context:
        data = 4

    assert await handler(double, timeout=5)(Context()) == 8  # type: ignore[arg-type]


async def test_a_function_that_is_no_handler_of_the_queue_is_named(app: App) -> None:
    queue = app.queue("q", [double])

    with pytest.raises(UsageError, match="'triple' is not a handler of queue 'q'; register it"):
        await queue.add(triple, 1)


async def test_annotations_that_cannot_be_read_are_refused_when_declared(app: App) -> None:
    async def missing(ctx: "JobContext[Nowhere]") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    async def broken(ctx: "JobContext[") -> None: ...  # type: ignore[valid-type]  # noqa: F722

    with pytest.raises(UsageError, match="the annotations of 'missing' refer to 'Nowhere', which is not defined"):
        app.queue("q", [missing])
    with pytest.raises(UsageError, match="the annotations of 'broken' cannot be read"):
        app.queue("q", [broken])


async def test_only_the_first_parameter_says_what_the_payload_is(app: App) -> None:
    async def work(ctx, scale: list[int] = [2]):  # type: ignore[no-untyped-def]  # noqa: B006
        return ctx.data

    queue = app.queue("q", [work])

    assert await results(app, queue, {"work": "text"}) == {"work": "text"}


def test_a_context_of_the_wrong_kind_is_refused(app: App) -> None:
    def plain(ctx: JobContext[int]) -> int:
        return ctx.data

    async def coroutine(ctx: SyncJobContext[int]) -> int:
        return ctx.data

    async def bare(ctx: SyncJobContext) -> None: ...  # type: ignore[type-arg]

    says = "'plain' is a plain function and cannot await the methods of a JobContext; make it `async def`, or annotate"
    with pytest.raises(UsageError, match=says):
        app.queue("one", [plain])  # type: ignore[list-item]
    for fn in (coroutine, bare):
        with pytest.raises(UsageError, match="is `async def`, but the methods of a SyncJobContext block"):
            app.queue(fn.__name__, {"work": fn})
    queue = app.queue("decorated")
    with pytest.raises(UsageError, match="cannot await"):
        queue.handler(plain)  # type: ignore[type-var]
    app.queue("raw", {"plain": handler(plain, raw=True)})  # type: ignore[dict-item,type-var]  # which gets no context


# unknown names


@pytest.mark.parametrize("how", ["add", "add_many", "new", "sync"])
async def test_a_name_that_looks_like_a_slip_is_refused(how: str, app: App) -> None:
    queue = app.queue("q", {"greet": double, "resize-1": triple, "send": double})
    released = app.queue("released", {"greet": double}, unknown="release")

    async def add(queue: Queue, name: str) -> None:
        match how:
            case "add":
                await queue.add(name, 1)
            case "add_many":
                await queue.add_many([("greet", 1), (name, 2)])
            case "new":
                queue.new(name, 1)
            case _:
                await asyncio.to_thread(queue.sync.add, name, 1)

    with pytest.raises(UsageError, match="queue 'q' has no handler for 'gret'; did you mean 'greet'"):
        await add(queue, "gret")
    with pytest.raises(UsageError, match="queue 'q' has no handler for 'sned'; did you mean 'send'"):
        await add(queue, "sned")
    assert (await queue.counts()).waiting == 0
    await add(queue, "resize-2")
    await add(released, "gret")
    await add(app.queue("elsewhere"), "gret")


@pytest.mark.covers("R019", "F112")
async def test_a_job_of_an_unknown_name_fails_once_and_says_so(app: App) -> None:
    queue = app.queue("q", [double], keep_failed=1)
    job = await queue.add("tripple", 1)
    await drained(app)

    await job.refresh()
    assert (job.error, job.attempts_made, await job.state()) == ("Job function not found: tripple", 1, "failed")


@pytest.mark.covers("R019", "F112")
async def test_a_queue_may_leave_unknown_jobs_to_workers_that_know_them(app: App) -> None:
    queue = app.queue("q", [double], unknown="release")
    job = await queue.add("tripple", 1)
    await drained(app)

    await job.refresh()
    assert (job.attempts_made, await job.state(), job.error) == (0, "delayed", None)


# what a handler is given


@pytest.mark.covers("R025", "R083")
async def test_a_context_tells_all_about_its_job(app: App) -> None:
    seen: dict[str, Any] = {}

    async def work(ctx: JobContext[dict[str, int]]) -> None:
        job = await ctx.job.refresh()
        seen.update(
            data=ctx.data, id=ctx.job_id, name=ctx.job_name, queue=ctx.queue_name, attempt=ctx.attempt,
            metadata=dict(ctx.metadata), cancelled=ctx.is_cancelled(), aborted=ctx.signal.aborted,
            same=job.id == ctx.job_id, state=ctx.state, fenced=ctx.fence > 0,
        )  # fmt: skip
        ctx.raise_if_cancelled()

    queue = app.queue("q", [work])
    job = await queue.add(work, {"a": 1}, metadata={"actor": "me"})
    await drained(app)

    assert seen == {
        "data": {"a": 1}, "id": job.id, "name": "work", "queue": "q", "attempt": 1, "metadata": {"actor": "me"},
        "cancelled": False, "aborted": False, "same": True, "state": None, "fenced": True,
    }  # fmt: skip


@pytest.mark.covers("R025", "R026", "R027")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_progress_and_log_lines_can_be_seen_while_the_job_runs(app: App, kind: str) -> None:
    reported, seen = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def on_the_loop(ctx: JobContext[Any]) -> None:
        await ctx.update_progress(40)
        await ctx.log("first")
        await ctx.log("second")
        reported.set()
        await asyncio.to_thread(seen.wait)

    def in_a_thread(ctx: SyncJobContext[Any]) -> None:
        ctx.update_progress(40)
        ctx.log("first")
        ctx.log("second")
        loop.call_soon_threadsafe(reported.set)
        seen.wait()

    queue = app.queue("q", {"work": on_the_loop if kind == "async" else in_a_thread})
    job = await queue.add("work")
    async with working(app):
        await reported.wait()
        assert ((await job.refresh()).progress, await job.logs()) == (40, ["first", "second"])
        seen.set()


@pytest.mark.covers("R024")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_queue_without_cancellation_gives_no_signal(app: App, kind: str) -> None:
    seen: list[Any] = []

    def note(ctx: Any) -> None:
        ctx.raise_if_cancelled()
        seen.append((ctx.signal, ctx.is_cancelled()))

    async def on_the_loop(ctx: JobContext[Any]) -> None:
        note(ctx)

    queue = app.queue("q", {"work": on_the_loop if kind == "async" else note}, cancellation=False)
    await queue.add("work")
    await drained(app)

    assert seen == [(None, False)]


@pytest.mark.covers("R036")
async def test_a_raw_handler_is_given_the_job_itself(app: App) -> None:
    seen: list[Any] = []

    async def legacy(job: Job[Any]) -> str:
        seen.append((type(job), job.id, job.name, job.data))
        return "done"

    def plain(job: SyncJob[Any]) -> str:
        seen.append((type(job), job.id, job.name, job.data))
        return "done too"

    handlers: dict[str, Any] = {
        "legacy": handler(legacy, raw=True),
        "plain": handler(plain, raw=True),
        "modern": double,
    }
    queue = app.queue("q", handlers)

    assert await results(app, queue, {"legacy": [1], "plain": [2], "modern": 3}) == {
        "legacy": "done", "plain": "done too", "modern": 6,
    }  # fmt: skip
    assert sorted(seen, key=lambda each: str(each[2])) == [(Job, "1", "legacy", [1]), (SyncJob, "2", "plain", [2])]


# around a handler


@pytest.mark.covers("R035")
async def test_middleware_runs_in_declared_order_and_sees_how_it_ends(app: App) -> None:
    story: list[str] = []

    def teller(name: str) -> Any:
        async def around(ctx: Any, call_next: Callable[[Any], Any]) -> Any:
            story.append(f"{name} before {ctx.job_name}")
            try:
                result = await call_next(ctx)
            except ValueError as error:
                story.append(f"{name} saw {error}")
                raise
            story.append(f"{name} saw {result}")
            return result

        return around

    app.middleware(teller("outer"))
    app.middleware(teller("inner"))

    async def fail(ctx: JobContext[Any]) -> None:
        raise ValueError("a failure")

    queue = app.queue("q", [double, fail])
    await queue.add(double, 2)
    await queue.add(fail, None, attempts=1)
    await drained(app)

    assert story == [
        "outer before double", "inner before double", "inner saw 4", "outer saw 4",
        "outer before fail", "inner before fail", "inner saw a failure", "outer saw a failure",
    ]  # fmt: skip


@pytest.mark.covers("R035", "X07")
async def test_middleware_stands_around_every_kind_of_handler_and_may_change_the_result(app: App) -> None:
    @app.middleware
    async def around(ctx: Any, call_next: Callable[[Any], Any]) -> Any:
        return [ctx.job_id, await call_next(ctx)]

    async def raw(job: Job[Any]) -> Any:
        return f"raw {job.data}"

    def thread(ctx: SyncJobContext[Any]) -> Any:
        return f"thread {ctx.data}"

    async def loop(ctx: JobContext[Any]) -> Any:
        return f"loop {ctx.data}"

    handlers: dict[str, Any] = {"raw": handler(raw, raw=True), "thread": thread, "loop": loop}
    queue = app.queue("q", handlers)

    assert await results(app, queue, {"raw": 1, "thread": 2, "loop": 3}) == {
        "raw": ["1", "raw 1"], "thread": ["2", "thread 2"], "loop": ["3", "loop 3"],
    }  # fmt: skip


@pytest.mark.covers("R030", "R263")
async def test_a_job_whose_condition_does_not_hold_is_skipped(app: App) -> None:
    ran: list[str] = []
    mode = {"cloud": False}

    @only_if(lambda: mode["cloud"], "not in self-hosted mode")
    async def bill(ctx: JobContext[Any]) -> str:
        ran.append(ctx.job_id)
        return "billed"

    queue = app.queue("q", {"bill": bill})
    skipped = await queue.add("bill", result_ttl=60)
    await drained(app)
    mode["cloud"] = True
    billed = await queue.add("bill", result_ttl=60)
    await drained(app)

    assert await skipped.result(5) == {"skipped": True, "reason": "not in self-hosted mode"}
    assert await billed.result(5) == "billed"
    assert ran == [billed.id]
    assert len(await queue.runs("failed")) == 0


@pytest.mark.covers("R030")
async def test_a_skipped_job_is_logged_by_its_reason_which_may_name_the_job(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    """One condition serves many handlers."""
    caplog.set_level(logging.INFO, "toril")
    hosted = only_if(lambda: False, "Skipping {job} in self-hosted mode")
    queue = app.queue("q", {"bill": hosted(double), "send": hosted(handler(double, timeout=5))})
    jobs = [await queue.add(name, 1, result_ttl=60) for name in ("bill", "send")]
    await drained(app)

    lines = [record for record in caplog.records if hasattr(record, "job_id")]
    assert [(line.levelname, line.getMessage().split(" queue=")[0], vars(line)["job_name"]) for line in lines] == [
        ("INFO", "Skipping bill in self-hosted mode", "bill"), ("INFO", "Skipping send in self-hosted mode", "send"),
    ]  # fmt: skip
    assert await jobs[0].result(5) == {"skipped": True, "reason": "Skipping bill in self-hosted mode"}


@pytest.mark.covers("R030")
async def test_a_condition_that_fails_is_a_failed_attempt(app: App) -> None:
    def broken() -> bool:
        raise RuntimeError("the mode is not known")

    queue = app.queue("q", {"bill": only_if(broken, "never")(double)}, keep_failed=1, retry=AT_ONCE)
    job = await queue.add("bill", 1)
    await drained(app)

    assert ((await job.refresh()).error, job.attempts_made) == ("the mode is not known", 3)


# the results


@pytest.mark.covers("R029")
async def test_what_a_handler_returns_is_kept_with_its_job(app: App) -> None:
    async def work(ctx: JobContext[Any]) -> dict[str, Any]:
        return {"rows": 3}

    queue = app.queue("q", [work], keep_completed=1)
    job = await queue.add(work, None)
    await drained(app)

    record = (await job.refresh()).record
    assert record is not None
    assert record.result == {"rows": 3}
    assert await job.result(5) == {"rows": 3}


@pytest.mark.covers("R029")
async def test_a_result_that_is_not_what_was_declared_is_not_kept(app: App) -> None:
    async def work(ctx: JobContext[Any]) -> int:
        return "not a number"  # type: ignore[return-value]

    queue = app.queue("q", [work], keep_completed=1)
    job = await queue.add(work, None)
    await drained(app)

    (run,) = await queue.runs()
    assert run.text.startswith("the result was dropped: the result: input should be a valid integer")
    assert await job.state() == "completed"


async def structured(ctx: JobContext[Any]) -> Result:
    return Result(summary="42 emails synced", counts={"synced": 42, "skipped": 1}, warnings=["a", "b", "c"])


def structured_in_a_process(ctx: Any) -> Any:
    return Result("7 files read", counts={"files": 7})


@pytest.mark.covers("R033")
async def test_a_structured_result_shows_its_summary_in_the_run_record(app: App) -> None:
    queue = app.queue("q", [structured])
    job = await queue.add(structured, None, result_ttl=60)
    await drained(app)

    (run,) = await queue.runs()
    assert run.text == "42 emails synced (3 warnings)"
    assert await job.result(5) == Result(
        summary="42 emails synced", counts={"synced": 42, "skipped": 1}, warnings=["a", "b", "c"]
    )


@pytest.mark.covers("R033")
async def test_a_structured_result_needs_no_annotation_and_may_come_from_anywhere(app: App) -> None:
    async def untyped(ctx):  # type: ignore[no-untyped-def]
        return Result("nothing to do")

    queue = app.queue("q", {"untyped": untyped, "process": handler(structured_in_a_process, executor="process")})
    kept = await results(app, queue, {"untyped": 1, "process": 1})

    assert kept == {
        "untyped": {"summary": "nothing to do", "counts": {}, "warnings": []},
        "process": {"summary": "7 files read", "counts": {"files": 7}, "warnings": []},
    }
    assert sorted(run.text for run in await queue.runs()) == ["7 files read", "nothing to do"]


@pytest.mark.covers("R033")
async def test_a_structured_result_of_the_wrong_things_is_not_kept(app: App) -> None:
    async def work(ctx: JobContext[Any]) -> Result:
        return Result("done", counts={"rows": "many"})  # type: ignore[dict-item]

    queue = app.queue("q", [work])
    await queue.add(work, None)
    await drained(app)

    (run,) = await queue.runs()
    assert run.text.startswith("the result was dropped: the result.counts.rows")


# the same for all


@pytest.mark.covers("R020", "R021", "R022", "R034")
async def test_every_queue_tells_the_same_story_without_code_of_its_own(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(ctx: JobContext[Any]) -> None:
        raise ValueError("no")

    def plain(ctx: SyncJobContext[Any]) -> int:
        return 1

    async def raw(job: Job[Any]) -> int:
        return 1

    heard: dict[str, list[str]] = {}
    for event in ("completed", "retrying", "failed"):
        app.on(event, lambda said, event=event: heard.setdefault(said.queue, []).append(event))  # type: ignore[misc]
    good: dict[str, Any] = {"loop": double, "thread": plain, "raw": handler(raw, raw=True)}
    queues = [app.queue(name, {"good": fn, "bad": fail}, retry=AT_ONCE) for name, fn in good.items()]
    caplog.set_level(logging.INFO, "toril")
    for queue in queues:
        assert queue.handlers.names == ["good", "bad"]
        await queue.add_many([("good", 1), ("bad", 1)])
    await drained(app)

    for queue in queues:
        assert sorted(heard[queue.name]) == ["completed", "failed", "retrying", "retrying"]
        lines = [record for record in caplog.records if getattr(record, "queue", None) == queue.name]
        (done,) = [line.__dict__ for line in lines if line.getMessage().startswith("job completed")]
        failed = [line.__dict__ for line in lines if "job f" in line.getMessage()]
        assert (done["job_name"], done["job_id"]) == ("good", "1")
        assert done["duration"] >= 0
        assert [(line["job_name"], line["error"], line["attempt"]) for line in failed] == [
            ("bad", "no", 1), ("bad", "no", 2), ("bad", "no", 3),
        ]  # fmt: skip


@pytest.mark.covers("R021")
async def test_the_duration_in_the_log_is_how_long_the_handler_took(app: App, caplog: pytest.LogCaptureFixture) -> None:
    async def work(ctx: JobContext[Any]) -> None:
        await asyncio.sleep(0.2)

    caplog.set_level(logging.INFO, "toril")
    queue = app.queue("q", [work])
    await queue.add(work, None)
    await drained(app)

    (line,) = [record for record in caplog.records if record.getMessage().startswith("job completed")]
    assert line.__dict__["duration"] >= 199


async def test_a_failed_job_is_an_error_to_whoever_waits_for_it(app: App) -> None:
    async def fail(ctx: JobContext[Any]) -> None:
        raise KeyError("k")

    queue = app.queue("q", [fail])
    job = await queue.add(fail, None, attempts=1, result_ttl=60)
    await drained(app)

    with pytest.raises(JobFailed, match=f"job {job.id} failed: 'k'"):
        await job.result(5)
