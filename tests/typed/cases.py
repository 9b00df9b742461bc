"""Read by mypy and pyright in `test_types.py`. A line that ends with `# E: code` must be reported by both, by mypy with
that code; no other may."""

from dataclasses import dataclass
from typing import Any, assert_type

from toril import (
    App,
    FailedChild,
    Flow,
    Job,
    JobContext,
    PreparedJob,
    SignalKind,
    Signalled,
    SyncJob,
    SyncJobContext,
    SyncTask,
    Task,
    chain,
    current_context,
    current_sync_context,
    gather,
    handler,
)
from toril.records import StepRecord
from toril.testing import memory


@dataclass
class Welcome:
    user_id: int


async def send(ctx: JobContext[Welcome]) -> str:
    return str(ctx.data.user_id)


async def tick(ctx: JobContext[None]) -> int:
    return ctx.attempt


async def maybe(ctx: JobContext[int | None]) -> int:
    return ctx.data or 0


def resize(ctx: SyncJobContext[Welcome]) -> float:
    ctx.update_progress(50)
    return ctx.data.user_id / 2


async def raw(job: Job[Any]) -> bytes:
    return job.id.encode()


async def no_handler(number: int) -> int:
    return number


def plain_with_a_context(ctx: JobContext[Welcome]) -> int:
    return ctx.data.user_id


app = App("memory://")
queue = app.queue("q", {"send": send, "tick": tick, "resize": handler(resize, executor="process")})
listed = app.queue("listed", [send, tick, resize])
welcome = queue.task(send)
ticking = queue.task(tick)


def binds() -> None:
    assert_type(queue.task(send), Task[Welcome, str])
    assert_type(queue.task(tick), Task[None, int])
    assert_type(queue.task(resize), Task[Welcome, float])
    assert_type(queue.task(raw), Task[Any, bytes])
    assert_type(queue.sync.task(send), SyncTask[Welcome, str])
    assert_type(welcome.sync, SyncTask[Welcome, str])
    queue.task(no_handler)  # E: arg-type
    queue.task(welcome)  # E: call-overload
    queue.task("send")  # E: call-overload


async def adds() -> None:
    assert_type(await welcome.add(Welcome(1), delay="1m"), Job[str])
    assert_type(await ticking.add(), Job[int])
    assert_type(await ticking.add(None), Job[int])
    assert_type(await queue.task(maybe).add(3), Job[int])
    assert_type(await queue.task(maybe).add(), Job[int])
    assert_type(await (await welcome.add(Welcome(1))).result("5s"), str)
    assert_type(await welcome.add_and_wait(Welcome(1), timeout="5s"), str)
    await welcome.add("not a Welcome")  # E: arg-type
    await welcome.add({"user_id": 1})  # E: arg-type
    await welcome.add()  # E: call-arg
    await welcome.add(Welcome(1), prioritty=3)  # E: call-arg
    await welcome.add(Welcome(1), priority="high")  # E: arg-type
    await ticking.add(Welcome(1))  # E: call-overload
    await welcome.add_and_wait("not a Welcome")  # E: arg-type


async def adds_many() -> None:
    assert_type(await welcome.add_many([Welcome(1), Welcome(2)], priority=3), list[Job[str]])
    assert_type(await queue.add_many([welcome.new(Welcome(1), delay=3)]), list[Job[str]])
    await queue.add_many([("send", {"user_id": 1}), (tick, None, {"delay": 3}), welcome.new(Welcome(1))])
    await welcome.add_many(["not a Welcome"])  # E: list-item
    await welcome.add_many([Welcome(1)], prioritty=3)  # E: call-arg
    await queue.add_many([welcome.new(3)])  # E: arg-type


def makes_ready() -> None:
    assert_type(welcome.new(Welcome(1)), PreparedJob[str])
    assert_type(ticking.new(delay=3), PreparedJob[int])
    assert_type(queue.new(send, Welcome(1)), PreparedJob[str])
    assert_type(queue.new("send", {"user_id": 1}), PreparedJob[Any])
    welcome.new("not a Welcome")  # E: arg-type
    welcome.new()  # E: call-arg
    queue.new(send, "not a Welcome")  # E: arg-type


async def schedules() -> None:
    welcome.schedule("daily", Welcome(1), every="1d")
    ticking.schedule("often", every=60)
    queue.schedule("named", "send", {"user_id": 1}, every=60)
    queue.schedule("typed", send, Welcome(1), every=60)
    app.schedule("app", queue=queue, job=tick, every=60)
    await queue.schedules.put("now", send, Welcome(1), every=60)
    welcome.schedule("daily", "not a Welcome", every=60)  # E: arg-type
    welcome.schedule("daily", every=60)  # E: call-arg
    welcome.schedule("daily", Welcome(1), evry=60)  # E: call-arg
    queue.schedule("typed", send, "not a Welcome", every=60)  # E: arg-type
    await queue.schedules.put("now", send, "not a Welcome", every=60)  # E: arg-type


async def flows() -> None:
    first, last = ticking.new(), welcome.new(Welcome(1))
    assert_type(await app.flow(last, [first, Flow(ticking.new(), [first])]), Job[str])
    assert_type(await app.flow(Flow(last, [first])), Job[str])
    assert_type(chain(first, first, last), Flow[str])
    assert_type(await app.flow(chain(last, first)), Job[int])
    assert_type(gather([first, first], then=last), Flow[str])
    assert_type(await app.flows([last]), list[Job[str]])
    await app.flow(welcome.new("not a Welcome"))  # E: arg-type
    await app.flow(last, [ticking.new(3)])  # E: call-overload
    await app.flow(welcome)  # E: arg-type
    await app.flow(last, [send])  # E: list-item


async def by_handler() -> None:
    assert_type(await queue.add(send, Welcome(1), delay=60), Job[str])
    assert_type(await queue.add(tick), Job[int])
    assert_type(await queue.add(resize, Welcome(1), priority=3), Job[float])
    assert_type(await queue.add(raw, 5), Job[bytes])
    assert_type(await (await queue.add(send, Welcome(1))).result(5), str)
    assert_type(await queue.add_and_wait(send, Welcome(1), timeout=3), str)
    assert_type(await queue.add_and_wait(tick), int)
    await queue.add("send", {"user_id": 1}, job_id="a")
    await queue.add(send, "not a Welcome")  # E: arg-type
    await queue.add(send, {"user_id": 1})  # E: arg-type
    await queue.add(send)  # E: arg-type
    await queue.add(resize, 3)  # E: arg-type
    await queue.add(no_handler, 3)  # E: arg-type
    await queue.add(welcome, Welcome(1))  # E: call-overload
    await queue.add(send, Welcome(1), prioritty=3)  # E: call-overload
    await queue.add("send", {}, dealy=3)  # E: call-overload
    await queue.add(send, Welcome(1), priority="high")  # E: call-overload
    await queue.add_and_wait(send, "not a Welcome")  # E: arg-type


async def reads_children(ctx: JobContext[None], plain: SyncJobContext[None]) -> None:
    assert_type(await ctx.children(tick), list[int])
    assert_type(await ctx.children(welcome), list[str])
    assert_type(await ctx.children(raw), list[bytes])
    assert_type(await ctx.children(resize, failed="include"), list[float | FailedChild])
    assert_type(plain.children(welcome), list[str])
    sum(await ctx.children(welcome))  # E: arg-type
    await ctx.children("send")  # E: call-overload
    await ctx.children(tick, failed="skip")  # E: call-overload


def blocks() -> None:
    assert_type(welcome.sync.add(Welcome(1)), SyncJob[str])
    assert_type(welcome.sync.add_many([Welcome(1)]), list[SyncJob[str]])
    assert_type(welcome.sync.add_and_wait(Welcome(1)), str)
    assert_type(ticking.sync.add().result("3s"), int)
    assert_type(queue.sync.add(send, Welcome(1)), SyncJob[str])
    assert_type(queue.sync.add(resize, Welcome(1)).result(3), float)
    welcome.sync.add(3)  # E: arg-type
    welcome.sync.add_many([3])  # E: list-item
    queue.sync.add(send, 3)  # E: arg-type


def declares() -> None:
    other = app.queue("other", {"send": send, "tick": tick, "resize": resize, "raw": raw})
    other.handler(send)
    other.handler(name="again")(resize)
    app.queue("options", [handler(send, timeout="1m"), handler(resize, executor="process")])
    app.queue("wrong", {"send": no_handler})  # E: dict-item
    app.queue("wrong", [send, no_handler])  # E: list-item
    app.queue("wrong", [plain_with_a_context])  # E: list-item
    other.handler(no_handler)  # E: type-var
    other.handler(name="again")(no_handler)  # E: type-var
    handler(no_handler, timeout=3)  # E: type-var
    app.queue("other", {"send": send}, concurency=3)  # E: call-arg
    handler(send, timeot=3)  # E: call-arg
    app.on("complete", print)  # E: arg-type


async def create(email: str) -> Welcome:
    return Welcome(len(email))


def size(ctx: str) -> int:
    return len(ctx)


async def steps(ctx: JobContext[None]) -> None:
    assert_type(await ctx.step("create", create, "a@example.org"), Welcome)
    assert_type(await ctx.step("size", size, "a"), int)
    await ctx.step("create", create, 3)  # E: arg-type
    assert_type(await ctx.gather(ctx.step("size", size, "a"), ctx.step("size", size, "b")), list[int])


async def signals(ctx: JobContext[None], job: Job[None]) -> None:
    approval = SignalKind("approval", Welcome)
    assert_type(approval, SignalKind[Welcome])
    assert_type(await ctx.wait_for(approval), Welcome | None)
    assert_type(await ctx.wait_for("size", int, timeout="1h"), int | None)
    await ctx.wait_for(approval, int)  # E: call-overload
    assert_type(await job.signal(approval, Welcome(7)), Signalled)


def plain_steps(ctx: SyncJobContext[None]) -> None:
    assert_type(ctx.step("size", size, "a"), int)
    assert_type(ctx.wait_for("size", int), int | None)
    ctx.step("size", size, 3)  # E: arg-type


def helpers() -> None:
    assert_type(current_context(), JobContext[Any] | None)
    assert_type(current_sync_context(), SyncJobContext[Any] | None)


async def tests(app: App, job: Job[None]) -> None:
    async with memory(app, replay="each") as test:
        assert_type(await test.steps(job), list[StepRecord])
        assert_type(await test.assert_steps(job, ["create"]), list[StepRecord])
    memory(app, replay="all")  # E: arg-type
