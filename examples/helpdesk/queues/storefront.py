"""Orders of the shops that customers have connected."""

from pydantic import BaseModel

from helpdesk.desk import declared
from helpdesk.outside import Outside
from toril import GroupLimits, Job, JobContext, Result

__all__ = ["Order", "order_changed", "queue", "sync_order"]


class Order(BaseModel):
    shop: str
    number: int


async def sync_order(ctx: JobContext[Order]) -> Result:
    outside: Outside = ctx.state
    await outside.post(f"/shops/{ctx.data.shop}", key=ctx.job_id, body=ctx.data.number)
    return Result(f"order {ctx.data.number} of {ctx.data.shop} is up to date")


# Shops take turns, however many orders one of them has.
queue = declared("storefront", {"sync_order": sync_order}, groups=GroupLimits(concurrency=1), subject="shop")


async def order_changed(order: Order) -> Job[Result]:
    return await queue.add(sync_order, order, group=order.shop, job_id=f"order-{order.shop}-{order.number}")
