"""A document becomes a flow: its segments are embedded in parallel batches, and when the last batch has ended, the
document is finished."""

from datetime import datetime

from helpdesk import database, documents
from helpdesk.desk import app, declared
from helpdesk.queues.embedding import Batch, embed_batch
from helpdesk.queues.embedding import queue as embedding
from helpdesk.settings import seconds
from helpdesk.tables import BATCH
from toril import FailedChild, JobContext, Result

__all__ = ["finish_document", "process_document", "queue"]


async def process_document(ctx: JobContext[str]) -> Result:
    """Split it and add the flow. The ids of its jobs are derived from this job's id, and the jobs are kept. So a second
    run adds no second flow, but a restart does, because it is another job."""
    document = ctx.data
    segments = await database.run(documents.cut, document)
    if not segments:
        await database.run(documents.end, document, "ready")
        return Result(f"{document} is empty", warnings=["nothing to embed"])
    starts = range(0, segments, BATCH)
    batches = [
        Batch(document=document, index=index, of=len(starts), first=start, last=min(start + BATCH, segments) - 1)
        for index, start in enumerate(starts)
    ]
    await app.flow(
        queue.new(finish_document, document, job_id=f"{ctx.job_id}-finish"),
        [embedding.new(embed_batch, batch, job_id=f"{ctx.job_id}-embed-{batch.index}") for batch in batches],
        on_failure="ignore",  # so that the document learns of it and does not wait forever
    )
    return Result(f"{document} has {segments} segments", counts={"segments": segments, "batches": len(batches)})


async def finish_document(ctx: JobContext[str]) -> Result:
    """Runs when all batches have ended, successfully or not."""
    document, batches = ctx.data, await ctx.children(embed_batch, failed="include")
    embedded = sum(batch for batch in batches if not isinstance(batch, FailedChild))
    missing = await database.run(documents.unfinished, document)
    if missing:
        await database.run(documents.end, document, "failed")
        return Result(
            f"{document} is not searchable",
            warnings=[f"{batch.id}: {batch.reason}" for batch in batches if isinstance(batch, FailedChild)],
        )
    await database.run(documents.end, document, "ready")
    return Result(f"{document} is searchable: {embedded} segments", counts={"segments": embedded})


queue = declared(
    "document-processing",
    {"process_document": process_document, "finish_document": finish_document},
    subject=str,
)


def forgotten(before: datetime) -> list[str]:
    return database.done(documents.forgotten, before.timestamp())


async def restart(document: str) -> bool:
    since = await database.run(documents.restart, document)
    if since is not None:
        await queue.add(process_document, document, job_id=f"process-{document}-since-{since:.3f}")
    return since is not None


app.scanner(
    "forgotten-documents", every=seconds(900), threshold=seconds(900), find=forgotten, reset=restart, queue=queue,
)  # fmt: skip
