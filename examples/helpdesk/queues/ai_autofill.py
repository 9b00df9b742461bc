"""A model fills in the fields of a ticket. That is nice to have, so it gets a minute and no second attempt."""

from helpdesk.desk import declared
from helpdesk.outside import Outside
from helpdesk.settings import seconds
from toril import JobContext, Result, TransientError, handler

__all__ = ["fill_fields", "queue"]


async def fill_fields(ctx: JobContext[int]) -> Result:
    outside: Outside = ctx.state
    try:
        await outside.post("/autofill", key=ctx.job_id, body={"ticket": ctx.data})
    except TransientError as error:
        return Result(f"the fields of ticket {ctx.data} are left as they are", warnings=[str(error)])
    return Result(f"the fields of ticket {ctx.data} are filled in")


queue = declared("ai-autofill", {"fill_fields": handler(fill_fields, timeout=max(5, seconds(60)))})
