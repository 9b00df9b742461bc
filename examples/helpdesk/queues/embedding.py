"""Segments of documents get their vectors, twenty at a time."""

from pydantic import BaseModel

from helpdesk import database, documents
from helpdesk.desk import declared
from helpdesk.outside import Outside
from toril import JobContext

__all__ = ["Batch", "embed_batch", "queue"]


class Batch(BaseModel):
    """Segments `first` to `last` of a document: a batch, its number and how many there are."""

    document: str
    index: int
    of: int
    first: int
    last: int


async def embed_batch(ctx: JobContext[Batch]) -> int:
    """Return how many segments were embedded; the document's own job reads this."""
    outside: Outside = ctx.state
    batch = ctx.data
    numbers = range(batch.first, batch.last + 1)
    await ctx.log(f"batch {batch.index + 1} of {batch.of} of {batch.document}")
    texts = await database.run(documents.texts, batch.document, numbers)
    ctx.raise_if_cancelled()  # the last chance before it costs money
    key = f"{batch.document}-{batch.index}"  # if the document is restarted, its new jobs do not pay again
    vectors = await outside.post("/embeddings", key=key, body=texts)
    await database.run(documents.save_vectors, batch.document, dict(zip(numbers, vectors, strict=True)))
    return len(texts)


queue = declared("embedding", {"embed_batch": embed_batch}, subject="document")
