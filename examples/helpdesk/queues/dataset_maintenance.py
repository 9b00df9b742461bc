"""Datasets are cleaned up at night. There is one attempt, because the next night finds what this one misses."""

from helpdesk import database
from helpdesk.database import Connection
from helpdesk.desk import declared
from toril import JobContext, Result

__all__ = ["delete_orphaned_segments", "queue"]


async def delete_orphaned_segments(ctx: JobContext[None]) -> Result:  # noqa: ARG001 - it looks at all of them
    count = await database.run(delete_orphans)
    return Result(f"{count} segments without a document deleted", counts={"deleted": count})


def delete_orphans(db: Connection) -> int:
    return db.execute("DELETE FROM segments WHERE document NOT IN (SELECT id FROM documents)").rowcount


queue = declared("dataset-maintenance", {"delete_orphaned_segments": delete_orphaned_segments})
