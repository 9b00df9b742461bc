"""The app that these files run; put yours in its place. `TORIL_URL` says where the store is."""

import asyncio
import os

from toril import App, Exponential, JobContext, Retry

app = App()


async def greet(ctx: JobContext[str]) -> str:
    """A job that takes a moment, as one that calls another service does."""
    await asyncio.sleep(float(os.environ.get("GREET_SECONDS", "0.01")))
    return f"hello {ctx.data}"


# A lease of a minute: how long after a worker's death, at most, its jobs run elsewhere.
LEASE = float(os.environ.get("MAIL_LEASE", "60"))
mail = app.queue("mail", [greet], concurrency=20, lease=LEASE, retry=Retry(5, Exponential(1, jitter="full")))
