"""A worker on Redis does the same with Toril's own futures as with asyncio's alone."""

import asyncio
from collections import Counter

import pytest

from tests import servers
from tests.servers import RedisServer
from tests.worker.conftest import Seen, working
from toril import App, JobContext, Retry, TransientError
from toril.engines.redis.connection import connection as answer
from toril.policy.retry import Fixed

pytestmark = pytest.mark.usefixtures("both_kinds_of_asyncio")


@pytest.fixture
def server() -> RedisServer:
    server = servers.running("redis")
    assert server.tell("FLUSHALL") == b"+OK"
    return server


async def test_every_job_runs_and_what_fails_once_runs_again(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, runs = list[object](), Counter[int]()
    prompt, ours = answer.PromptReply.__init__, asyncio.get_running_loop()

    def noted(self: answer.PromptReply[object], loop: asyncio.AbstractEventLoop) -> None:
        prompt(self, loop)
        if loop is ours:  # other tests of this process may have an app at work in a thread
            made.append(self)

    monkeypatch.setattr(answer.PromptReply, "__init__", noted)

    async def work(ctx: JobContext[int]) -> None:
        runs[ctx.data] += 1
        if ctx.data % 10 == 0 and runs[ctx.data] == 1:
            raise TransientError("once")
        if runs.total() == 110:  # a burst would not wait for the last one's retry
            app.stop()

    app = App(server.url)
    queue = app.queue("q", {"work": work}, concurrency=10, retry=Retry(attempts=2, backoff=Fixed(0.01)))
    async with app:
        await queue.add_many([("work", number) for number in range(100)])
        assert await app.run() == 0
        counts = await queue.counts()

    assert runs == Counter({number: 2 if number % 10 == 0 else 1 for number in range(100)})
    assert (counts.waiting, counts.delayed, counts.active, counts.failed) == (0, 0, 0, 0)
    assert bool(made) is (answer.answer_kind() is answer.PromptReply)


async def test_a_worker_that_waits_hears_of_each_job_as_it_comes(server: RedisServer) -> None:
    async def work(ctx: JobContext[int]) -> None: ...

    app = App(server.url)
    seen = Seen(app, "completed")
    queue = app.queue("q", {"work": work})
    async with working(app):
        for number in range(1, 21):
            await queue.add("work", number)
            await seen.until("completed", number)
