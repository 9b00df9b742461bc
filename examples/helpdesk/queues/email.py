"""Mail to customers and colleagues."""

from typing import Literal

from pydantic import BaseModel

from helpdesk.desk import declared
from helpdesk.outside import Outside
from toril import Job, JobContext, Result

__all__ = ["Email", "queue", "send", "send_email"]


class Email(BaseModel):
    kind: Literal["confirmation", "survey", "digest", "trial"]
    to: str
    about: str


async def send_email(ctx: JobContext[Email]) -> Result:
    outside: Outside = ctx.state
    await outside.post("/email", key=ctx.job_id, body=ctx.data.model_dump())
    return Result(f"{ctx.data.kind} sent to {ctx.data.to}", counts={"emails": 1})


queue = declared("email", {"send_email": send_email})


async def send(email: Email, *, organisation: str = "acme", delay: float = 0) -> Job[Result]:
    """Add a mail, once for each thing that it is about. The metadata says who requested it."""
    asked = queue.scoped(organisation=organisation, source="helpdesk")
    return await asked.add(send_email, email, job_id=f"email-{email.kind}-{email.about}", delay=delay)
