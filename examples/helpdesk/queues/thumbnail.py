"""Thumbnails. Computing them takes processor time, so they have their own process and do not delay other jobs."""

import hashlib

from pydantic import BaseModel

from helpdesk.desk import declared
from toril import Dedup, Job, RateLimit, Result, SyncJobContext, handler

__all__ = ["Picture", "make_thumbnail", "picture_uploaded", "queue"]


class Picture(BaseModel):
    name: str
    width: int


def make_thumbnail(ctx: SyncJobContext[Picture]) -> Result:
    """A plain function, as everything that computes should be."""
    pixels = hashlib.sha256(ctx.data.name.encode())
    for row in range(ctx.data.width):
        pixels.update(row.to_bytes(4, "big"))
    return Result(f"{ctx.data.name} in small: {pixels.hexdigest()[:8]}")


queue = declared(
    "thumbnail", {"make_thumbnail": handler(make_thumbnail, executor="process")}, rate_limit=RateLimit(100, per=60)
)


async def picture_uploaded(picture: Picture) -> Job[Result]:
    """The same picture, requested twice within a minute, is drawn once."""
    return await queue.add(make_thumbnail, picture, dedup=Dedup(ttl=60))
