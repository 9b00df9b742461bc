"""structlog: what a handler logs has the job's facts, and what others log has not."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from toril import App, JobContext, Retry, SyncJobContext
from toril.integrations.structlog import instrument
from toril.testing import memory


@pytest.fixture
def entries() -> Iterator[list[Any]]:
    before, capture = structlog.get_config(), LogCapture()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, capture])
    yield capture.entries
    structlog.configure(**before)


@pytest.fixture
def log(entries: list[Any]) -> Any:
    return structlog.get_logger()


async def test_a_line_tells_of_the_job_that_it_was_written_in(entries: list[Any], log: Any) -> None:
    async def on_the_loop(ctx: JobContext[None]) -> None:
        log.info("loop")
        if ctx.attempt == 1:
            raise ConnectionError

    def in_a_thread(ctx: SyncJobContext[None]) -> None:
        log.info("thread")

    app = App("memory://")
    instrument(app)
    queue = app.queue("shop", [on_the_loop, in_a_thread], retry=Retry(2))
    async with memory(app) as test:
        one, two = await queue.add(on_the_loop), await queue.add(in_a_thread)
        await test.after("1h")
    log.info("outside")

    loop = {"event": "loop", "log_level": "info", "queue": "shop", "job_id": one.id, "job_name": "on_the_loop"}
    thread = {"event": "thread", "log_level": "info", "queue": "shop", "job_id": two.id, "job_name": "in_a_thread"}
    assert sorted(entries[:-1], key=lambda entry: (entry["event"], entry["attempt"])) == [
        {**loop, "attempt": 1},
        {**loop, "attempt": 2},
        {**thread, "attempt": 1},
    ]
    assert entries[-1] == {"event": "outside", "log_level": "info"}
