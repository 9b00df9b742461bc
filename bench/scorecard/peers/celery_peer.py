"""Celery on Redis, acknowledging late: what a dead worker had is given back after 5 s, the shortest that holds here."""

import asyncio
import time
from typing import Any

from celery import Celery

from bench.scorecard.common import URL, add_all, ended, main, started

app = Celery("scorecard", broker=URL)
app.conf.update(
    task_ignore_result=True, task_default_queue="scorecard", broker_connection_retry_on_startup=True,
    task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": 5, "unacked_restore_limit": 100},
)  # fmt: skip


@app.task(name="do")  # type: ignore[untyped-decorator]
def do(data: dict[str, Any]) -> None:
    time.sleep(started(data))
    ended(data)


async def produce() -> None:
    loop = asyncio.get_running_loop()
    await add_all(lambda data: loop.run_in_executor(None, lambda: do.apply_async((data,), retry=False)))


def work(slots: int) -> None:
    app.worker_main(["worker", "--pool=threads", f"--concurrency={slots}", "--loglevel=ERROR", "--without-mingle"])


if __name__ == "__main__":
    main(produce, work)
