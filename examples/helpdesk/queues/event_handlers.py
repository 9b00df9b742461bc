"""What follows from an event: mail, webhooks, drafts."""

from helpdesk.desk import declared
from helpdesk.queues.ai_agent import draft_answer
from helpdesk.queues.ai_agent import queue as ai_agent
from helpdesk.queues.ai_autofill import fill_fields
from helpdesk.queues.ai_autofill import queue as ai_autofill
from helpdesk.queues.app_trigger import queue as app_trigger
from helpdesk.queues.app_trigger import run_triggered
from helpdesk.queues.email import Email, send
from helpdesk.queues.webhooks import Delivery, deliver_webhook
from helpdesk.queues.webhooks import queue as webhooks
from helpdesk.tables import A_DAY
from toril import Dedup, JobContext, Result

__all__ = ["SUBSCRIBERS", "on_ticket_created", "on_ticket_solved", "queue"]

SUBSCRIBERS = ("crm", "chat")


async def on_ticket_created(ctx: JobContext[int]) -> Result:
    """All ids are derived from the ticket's, and jobs are kept for a while, so a second run adds nothing twice."""
    ticket = ctx.data
    await send(Email(kind="confirmation", to=f"customer-{ticket}@example.org", about=str(ticket)))
    draft = f"draft-{ticket}"  # a key also outlasts a failure: only a person can request another draft
    await ai_agent.add(draft_answer, ticket, job_id=draft, dedup=Dedup(draft, ttl=A_DAY))
    await ai_autofill.add(fill_fields, ticket, job_id=f"fields-{ticket}")
    await app_trigger.add(run_triggered, ticket, job_id=f"triggered-{ticket}")
    return Result(f"ticket {ticket} is confirmed", counts={"added": 4})


async def on_ticket_solved(ctx: JobContext[int]) -> Result:
    ticket = ctx.data
    await send(Email(kind="survey", to=f"customer-{ticket}@example.org", about=str(ticket)))
    for subscriber in SUBSCRIBERS:
        delivery = Delivery(subscriber=subscriber, ticket=ticket)
        await webhooks.add(deliver_webhook, delivery, job_id=f"{subscriber}-{ticket}")
    return Result(f"ticket {ticket} is told of", counts={"added": 1 + len(SUBSCRIBERS)})


queue = declared("event-handlers", {"on_ticket_created": on_ticket_created, "on_ticket_solved": on_ticket_solved})
