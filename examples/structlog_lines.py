"""Log lines that name the job in which they were written. The handler does not add it; its context does."""

import asyncio

import structlog

from toril import App, JobContext, SyncJobContext
from toril.integrations.structlog import instrument

structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,  # adds the job's facts
        structlog.processors.add_log_level,
        structlog.processors.JSONRenderer(sort_keys=True),
    ]
)
log = structlog.get_logger()

app = App("memory://")
instrument(app)


async def send(ctx: JobContext[str]) -> None:
    log.info("sending", to=ctx.data)


def resize(ctx: SyncJobContext[int]) -> None:
    log.info("resizing", width=ctx.data)  # the same in a thread


mail = app.queue("mail", [send, resize])


async def main() -> None:
    async with app:
        await mail.add(send, "ada@example.org")
        await mail.add(resize, 800)
        await app.run(burst=True)
    log.info("done")


if __name__ == "__main__":
    asyncio.run(main())
