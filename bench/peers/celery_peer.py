"""Celery on Redis: JSON, no results, its pool of threads."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from celery import Celery

from bench.peers.adapter import URL, Adapter, Producer, main, noop, wait

app = Celery("bench", broker=URL)
app.conf.update(task_ignore_result=True, task_default_queue="bench", broker_connection_retry_on_startup=True)
TASKS = {"noop": app.task(noop, name="noop"), "io": app.task(wait, name="io")}


class Celeries(Producer):
    async def one(self, kind: str, data: dict[str, Any]) -> object:
        return TASKS[kind].delay(data)


@asynccontextmanager
async def opened() -> AsyncIterator[Producer]:
    yield Celeries()


def work(slots: int) -> None:
    app.worker_main(["worker", "--pool=threads", f"--concurrency={slots}", "--loglevel=WARNING", "--without-mingle"])


if __name__ == "__main__":
    main(Adapter(opened, work))
