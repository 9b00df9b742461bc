"""Events are sent to those who subscribed to them."""

from pydantic import BaseModel

from helpdesk.desk import declared
from helpdesk.outside import Outside
from toril import JobContext, Result

__all__ = ["Delivery", "deliver_webhook", "queue"]


class Delivery(BaseModel):
    subscriber: str
    ticket: int


async def deliver_webhook(ctx: JobContext[Delivery]) -> Result:
    """A busy subscriber says for how long, and is left alone until then; see `Outside`."""
    outside: Outside = ctx.state
    await outside.post(f"/hooks/{ctx.data.subscriber}", key=ctx.job_id, body={"ticket": ctx.data.ticket})
    return Result(f"{ctx.data.subscriber} was told of ticket {ctx.data.ticket}")


queue = declared("webhooks", {"deliver_webhook": deliver_webhook}, subject="subscriber")
