"""The app that these files run. Replace it with yours. `TORIL_URL` says where the store is."""

import asyncio
import os

from toril import App, Exponential, JobContext, Retry

app = App()


async def greet(ctx: JobContext[str]) -> str:
    """A job that takes a moment, like one that calls another service."""
    await asyncio.sleep(float(os.environ.get("GREET_SECONDS", "0.01")))
    return f"hello {ctx.data}"


# A lease of a minute: after a worker has died, its jobs run elsewhere within that time.
LEASE = float(os.environ.get("MAIL_LEASE", "60"))
mail = app.queue("mail", [greet], concurrency=20, lease=LEASE, retry=Retry(5, Exponential(1, jitter="full")))
