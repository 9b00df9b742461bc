"""The results of a morning, as a table."""

from helpdesk import database
from helpdesk.database import Connection
from helpdesk.tables import QUEUES
from toril import App

__all__ = ["summary"]


async def summary(app: App, took: float) -> str:
    overview = await app.overview()
    lines = [f"{'queue':<22}{'at once':>8}{'done':>7}{'failed':>8}{'retries':>9}   the last result"]
    total = 0
    for row in overview.queues:
        if row.queue in QUEUES:
            runs = (await app.queues[row.queue].runs("completed", limit=1)).items
            done, failed = sum(row.completed), sum(row.failed)
            last = runs[0].text if runs else ""
            total += done
            slots = QUEUES[row.queue].concurrency
            lines.append(f"{row.queue:<22}{slots:>8}{done:>7}{failed:>8}{row.retries:>9}   {last}")
    schedules = [each for queue in app.queues.values() for each in (await queue.schedules.list()).items]
    alerts = await database.run(_alerts)
    told = ", ".join(f"{count} of {kind}" for kind, count in alerts)
    return "\n".join([
        *lines, "",
        f"{total} jobs in {took:.1f} s; {len(schedules)} schedules; dead letters: {await app.dead_letters.count()}",
        f"alerts: {told or 'none'}",
    ])  # fmt: skip


def _alerts(db: Connection) -> list[tuple[str, int]]:
    return db.execute("SELECT kind, count(*) FROM alerts GROUP BY kind ORDER BY kind").fetchall()
