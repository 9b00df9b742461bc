"""Read by mypy in `test_types.py`. A line that ends with `# E: code` must be reported with that code; no other may."""

from dataclasses import dataclass
from typing import assert_type

from toril import App, Job, JobContext, SyncJobContext, handler
from toril.sync import SyncJob


@dataclass
class Welcome:
    user_id: int


async def send(ctx: JobContext[Welcome]) -> str:
    return str(ctx.data.user_id)


async def tick(ctx: JobContext[None]) -> int:
    return ctx.attempt


def resize(ctx: SyncJobContext[Welcome]) -> float:
    ctx.update_progress(50)
    return ctx.data.user_id / 2


app = App("memory://")
queue = app.queue("q", {"send": send, "tick": tick, "resize": handler(resize, executor="process")})
listed = app.queue("listed", [send, tick, resize])


async def adds() -> None:
    assert_type(await queue.add(send, Welcome(1), delay=60), Job[str])
    assert_type(await queue.add(tick), Job[int])
    assert_type(await queue.add(resize, Welcome(1), priority=3), Job[float])
    assert_type(await (await queue.add(send, Welcome(1))).result(5), str)
    await queue.add("send", {"user_id": 1}, job_id="a")
    await queue.add(send, "not a Welcome")  # E: arg-type
    await queue.add(send, {"user_id": 1})  # E: arg-type
    await queue.add(send)  # E: arg-type
    await queue.add(resize, 3)  # E: arg-type
    await queue.add(send, Welcome(1), prioritty=3)  # E: call-overload
    await queue.add("send", {}, dealy=3)  # E: call-overload
    await queue.add(send, Welcome(1), priority="high")  # E: call-overload


async def waits() -> None:
    assert_type(await queue.add_and_wait(send, Welcome(1), timeout=3), str)
    assert_type(await queue.add_and_wait(tick), int)
    await queue.add_and_wait(send, "not a Welcome")  # E: arg-type


def blocks() -> None:
    assert_type(queue.sync.add(send, Welcome(1)), SyncJob[str])
    assert_type(queue.sync.add(resize, Welcome(1)).result(3), float)
    queue.sync.add(send, 3)  # E: arg-type


def declares() -> None:
    app.queue("other", {"send": send}, concurency=3)  # E: call-arg
    handler(send, timeot=3)  # E: call-arg
    app.on("complete", print)  # E: arg-type
