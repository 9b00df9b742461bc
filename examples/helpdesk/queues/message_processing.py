"""Messages that a colleague writes now and that are sent later."""

from datetime import datetime

from pydantic import BaseModel

from helpdesk.desk import declared
from helpdesk.outside import Outside
from toril import Job, JobContext, Result

__all__ = ["Message", "queue", "send_later", "send_message"]


class Message(BaseModel):
    ticket: int
    text: str


async def send_message(ctx: JobContext[Message]) -> Result:
    outside: Outside = ctx.state
    await outside.post("/email", key=ctx.job_id, body=ctx.data.model_dump())
    return Result(f"an answer to ticket {ctx.data.ticket} was sent")


queue = declared("message-processing", {"send_message": send_message})


async def send_later(message: Message, at: datetime) -> Job[Result]:
    """Until then, any process can withdraw it with `job.cancel()`."""
    return await queue.add(send_message, message, job_id=f"reply-{message.ticket}", at=at)
