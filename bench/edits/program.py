"""One process of one system: `SYSTEM URL EDIT [WORKFLOW]`. Without a workflow it starts one, which it runs by the code
of this edit until somebody kills it; with one it goes on with that. It prints what its steps do, and how that ends."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

__all__ = ["EDITS"]

EDITS: Final = {
    "none": "nothing is edited",
    "insert": "a step is inserted before recorded ones",
    "append": "a step is appended",
    "drop": "a recorded step is dropped",
    "rename": "a recorded step is renamed",
    "reorder": "recorded steps are reordered",
    "body": "a recorded step does something else",
    "type": "a recorded step returns another type",
    "arguments": "a recorded step gets other arguments",
    "kind": "a recorded step becomes a sleep",
    "branches": "concurrent steps of one name come in another order",
    "version": "the application has another version",
}
NAP: Final = 4.0  # seconds, within which the first process is killed


class Steps(Protocol):
    async def step(self, name: str, fn: Callable[..., Awaitable[Any]], *args: Any) -> Any: ...

    async def sleep(self, name: str, seconds: float) -> None: ...


SYSTEM, URL, EDIT = sys.argv[1:4] if len(sys.argv) > 3 else ("", "", "none")
WORKFLOW: Final = sys.argv[4] if len(sys.argv) > 4 else None

if EDIT == "type":

    @dataclass
    class A:
        m: int

else:

    @dataclass
    class A:  # type: ignore[no-redef]
        n: int


def say(*words: Any) -> None:
    print(*words, flush=True)


async def a(number: int) -> A:
    say("ran", "a")
    return A(2 if EDIT == "body" else number)


async def b() -> str:
    say("ran", "b")
    return "b"


async def c() -> str:
    say("ran", "c")
    return "c"


async def new() -> str:
    say("ran", "new")
    return "new"


async def part(number: int) -> str:
    say("ran", f"part-{number}")
    return f"part-{number}"


def field(value: Any) -> Any:
    """What the code reads of the value of a, which some systems give as a dict."""
    name = "m" if EDIT == "type" else "n"
    return value[name] if isinstance(value, dict) else getattr(value, name)


async def code(steps: Steps) -> list[Any]:
    """The workflow, by the code of this edit."""
    if EDIT.startswith("branches"):
        pauses = (0.0, 0.4) if EDIT == "branches" else (0.4, 0.0)

        async def branch(number: int) -> Any:
            await asyncio.sleep(pauses[number])
            return await steps.step("part", part, number)

        found = await asyncio.gather(branch(0), branch(1))
        await steps.sleep("nap", NAP)
        return [*found, await steps.step("c", c)]
    values: list[Any] = []
    if EDIT == "insert":
        values.append(await steps.step("new", new))
    if EDIT == "reorder":
        values.append(await steps.step("b", b))
    values.append(field(await steps.step("a", a, 7 if EDIT == "arguments" else 1)))
    if EDIT == "kind":
        await steps.sleep("b", 1)
    elif EDIT == "rename":
        values.append(await steps.step("b2", b))
    elif EDIT not in {"drop", "reorder"}:
        values.append(await steps.step("b", b))
    await steps.sleep("nap", NAP)
    values.append(await steps.step("c", c))
    if EDIT == "append":
        values.append(await steps.step("new", new))
    return values


async def toril() -> None:
    from toril import App, JobContext, JobFailed, Retry

    class Mine:
        def __init__(self, ctx: JobContext[None]) -> None:
            self.ctx = ctx

        async def step(self, name: str, fn: Callable[..., Awaitable[Any]], *args: Any) -> Any:
            return await self.ctx.step(name, fn, *args)

        async def sleep(self, name: str, seconds: float) -> None:
            await self.ctx.sleep(name, seconds)

    async def workflow(ctx: JobContext[None]) -> list[Any]:
        return await code(Mine(ctx))

    app = App(URL)
    queue = app.queue("q", [workflow], retry=Retry(1), keep_completed=True, keep_failed=True, lease=5)
    async with app:
        job = await queue.add(workflow) if WORKFLOW is None else await queue.job(WORKFLOW)
        assert job is not None
        say("workflow", job.id)
        worker = asyncio.create_task(app.run())
        try:
            say("result", await job.result(60))
        except JobFailed as error:
            say("error", error.reason)
        say("log", *await job.logs())
        app.stop()
        await worker


async def dbos() -> None:
    from dbos import DBOS, SetWorkflowID

    class Theirs:
        async def step(self, name: str, fn: Callable[..., Awaitable[Any]], *args: Any) -> Any:
            return await DBOS.run_step_async({"name": name}, fn, *args)

        async def sleep(self, name: str, seconds: float) -> None:
            del name
            await DBOS.sleep_async(seconds)

    version = "2" if EDIT == "version" else "1"  # by default, a hash of the code of all workflows
    DBOS(config={"name": "edits", "system_database_url": URL, "application_version": version, "log_level": "ERROR"})

    @DBOS.workflow()  # type: ignore[untyped-decorator]
    async def workflow() -> list[Any]:
        return await code(Theirs())

    DBOS.launch()
    if WORKFLOW is None:
        with SetWorkflowID("1"):
            handle = await DBOS.start_workflow_async(workflow)
    else:
        handle = await DBOS.retrieve_workflow_async(WORKFLOW)
    say("workflow", "1")
    try:
        say("result", await handle.get_result())
    except Exception as error:
        say("error", f"{type(error).__name__}: {error}")


async def absurd() -> None:
    import absurdctl
    import psycopg
    from absurd_sdk import AsyncAbsurd

    if WORKFLOW is None:
        async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as connection:
            await connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)

    class Theirs:
        def __init__(self, ctx: Any) -> None:
            self.ctx = ctx

        async def step(self, name: str, fn: Callable[..., Awaitable[Any]], *args: Any) -> Any:
            async def call() -> Any:
                value = await fn(*args)
                return vars(value) if isinstance(value, A) else value

            return await self.ctx.step(name, call)

        async def sleep(self, name: str, seconds: float) -> None:
            await self.ctx.sleep_for(name, seconds)

    app = AsyncAbsurd(URL, queue_name="q")

    @app.register_task("workflow", default_max_attempts=1)  # type: ignore[untyped-decorator]
    async def workflow(params: Any, ctx: Any) -> Any:
        del params
        return await code(Theirs(ctx))

    if WORKFLOW is None:
        await app.create_queue("q")
        task = (await app.spawn("workflow", {}))["task_id"]
    else:
        task = WORKFLOW
    say("workflow", task)
    while True:
        await app.work_batch(claim_timeout=5)
        found = await app.fetch_task_result(task)
        if found is not None and found.state not in {"pending", "running", "sleeping"}:
            break
        await asyncio.sleep(0.1)
    if found.state == "completed":
        say("result", found.result)
    else:
        say("error", found.state, getattr(found, "failure", ""))


if __name__ == "__main__":
    asyncio.run({"toril": toril, "dbos": dbos, "absurd": absurd}[SYSTEM]())
