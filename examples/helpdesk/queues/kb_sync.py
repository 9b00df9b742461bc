"""Articles of the knowledge base are copied to the search index."""

from helpdesk.desk import declared
from helpdesk.outside import Outside
from helpdesk.settings import seconds
from toril import Dedup, Job, JobContext, Result

__all__ = ["article_edited", "publish_article", "queue"]


async def publish_article(ctx: JobContext[str]) -> Result:
    outside: Outside = ctx.state
    await outside.post("/index", key=ctx.job_id, body=ctx.data)
    return Result(f"{ctx.data} is in the index")


queue = declared("kb-sync", {"publish_article": publish_article})


async def article_edited(article: str) -> Job[Result]:
    """Authors save often: changes within five seconds are published once, in their last state."""
    quiet = seconds(5)
    return await queue.add(publish_article, article, delay=quiet, dedup=Dedup(article, ttl=quiet, mode="replace"))
