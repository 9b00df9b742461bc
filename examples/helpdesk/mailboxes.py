"""Mailboxes that are polled, and the stages of a mailbox.

    idle ──> list_pending ──> list ──> import_pending ──> import ──> idle
                                └────────> failed <─────────┘

A scanner moves due mailboxes to `list_pending` and adds a job. The job moves the mailbox to `list` while it fetches the
list of messages; a second job moves it to `import` while it fetches the messages. Each step is an UPDATE that names the
stage it starts from. So if two processes try, one succeeds, and nobody moves a mailbox that has already moved on. One
start of a job holds a mailbox. A start that was lost, while the job runs elsewhere, has an older fence and changes
nothing any more. A worker that dies leaves its mailbox in `list` or `import`, where a scanner finds it.
"""

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from helpdesk.database import Connection
from helpdesk.settings import seconds
from helpdesk.tables import BATCH

__all__ = [
    "HOPELESS", "Start", "acknowledge", "begin", "cached", "claim_batch", "due", "end", "fail", "listed", "recover",
    "relaunch", "relaunchable", "stuck", "unstick",
]  # fmt: skip

HOPELESS: Final = ("invalid_grant", "revoked_access", "insufficient_scope")  # only the user can fix these
INTERVAL: Final = 300  # seconds between two polls of a mailbox
COOL_DOWN: Final = 30  # seconds until the same job may be added again
MOST_RELAUNCHES: Final = 5


class Start(NamedTuple):
    """One start of a job: an attempt, or a repetition after its worker was lost."""

    job: str
    fence: int


# polling


def due(db: Connection) -> list[tuple[str, str]]:
    """Return mailboxes to poll now, with their stages. Until the cool-down is over, other callers get others."""
    now = time.time()
    db.execute(
        "UPDATE mailboxes SET stage = 'list_pending', since = ?1"
        " WHERE stage = 'idle' AND auth = 'ok' AND retry_at <= ?1 AND synced <= ?2",
        (now, now - seconds(INTERVAL)),
    )
    return db.execute(
        "UPDATE mailboxes SET queued = ?1 WHERE stage IN ('list_pending', 'import_pending') AND queued <= ?2"
        " RETURNING id, stage",
        (now, now - seconds(COOL_DOWN)),
    ).fetchall()


def begin(db: Connection, mailbox: str, stage: str, start: Start) -> bool:
    """Enter an active stage from the one before it, or again after an earlier start of the same job."""
    return _moved(
        db,
        "UPDATE mailboxes SET stage = ?2, since = ?3, holder = ?4, fence = ?5"
        " WHERE id = ?1 AND (stage = ?2 || '_pending' OR (stage = ?2 AND holder = ?4 AND fence < ?5))",
        (mailbox, stage, time.time(), *start),
    )


def listed(db: Connection, mailbox: str, start: Start, messages: Sequence[str]) -> bool:
    """Finish the first stage: remember what to import, except for what was imported before."""
    db.executemany(
        "INSERT INTO to_import (mailbox, message) SELECT ?1, ?2"
        " WHERE NOT EXISTS (SELECT 1 FROM messages WHERE mailbox = ?1 AND message = ?2) ON CONFLICT DO NOTHING",
        [(mailbox, message) for message in messages],
    )
    return _moved(
        db,
        "UPDATE mailboxes SET stage = 'import_pending', since = ?4, queued = ?4, holder = NULL"
        " WHERE id = ?1 AND stage = 'list' AND holder = ?2 AND fence = ?3",
        (mailbox, *start, time.time()),
    )


def claim_batch(db: Connection, mailbox: str, start: Start) -> list[str]:
    """Return some messages to fetch next, and note the activity. None if another start has the mailbox."""
    alive = "UPDATE mailboxes SET since = ?4 WHERE id = ?1 AND holder = ?2 AND fence = ?3 AND stage = 'import'"
    if not _moved(db, alive, (mailbox, *start, time.time())):
        return []
    rows = db.execute(
        "UPDATE to_import SET job = ?2 WHERE (mailbox, message) IN"
        " (SELECT mailbox, message FROM to_import WHERE mailbox = ?1 ORDER BY message LIMIT ?3) RETURNING message",
        (mailbox, start.job, BATCH),
    ).fetchall()
    return [message for (message,) in rows]


def acknowledge(db: Connection, mailbox: str, subjects: dict[str, str]) -> None:
    """Record imported messages. A second call changes nothing."""
    db.executemany(
        "INSERT INTO messages VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        [(mailbox, message, subject) for message, subject in subjects.items()],
    )
    db.executemany(
        "DELETE FROM to_import WHERE mailbox = ? AND message = ?", [(mailbox, message) for message in subjects]
    )


def end(db: Connection, mailbox: str, start: Start) -> bool:
    """Finish both stages."""
    return _moved(
        db,
        "UPDATE mailboxes SET stage = 'idle', since = ?4, synced = ?4, holder = NULL, failures = 0, relaunches = 0"
        " WHERE id = ?1 AND stage = 'import' AND holder = ?2 AND fence = ?3",
        (mailbox, *start, time.time()),
    )


# failures


def fail(db: Connection, mailbox: str, start: Start, auth: str = "ok") -> bool:
    """The job failed for good: leave the mailbox alone for 30 s, twice as long each time, an hour at most."""
    return _moved(
        db,
        "UPDATE mailboxes SET stage = 'failed', since = ?4, auth = ?5, holder = NULL, failures = failures + 1,"
        " retry_at = ?4 + min(?7, ?6 * (1 << min(failures, 20))) WHERE id = ?1 AND holder = ?2 AND fence = ?3",
        (mailbox, *start, time.time(), auth, seconds(30), seconds(3600)),
    )


def recover(db: Connection, mailbox: str, start: Start) -> bool:
    """The worker lost its job: restart the stage, if the lost start still holds the mailbox. The next start may already
    be at work."""
    held = db.execute("SELECT holder, fence FROM mailboxes WHERE id = ?", (mailbox,)).fetchone()
    return held == start and _reset(db, mailbox)


def _reset(db: Connection, mailbox: str) -> bool:
    """Go back from an active stage to the one before it, or to the first one if there is nothing to import."""
    stage = "import_pending" if cached(db, mailbox) else "list_pending"
    return _moved(
        db,
        "UPDATE mailboxes SET stage = ?2, since = ?3, queued = 0, holder = NULL"
        " WHERE id = ?1 AND stage IN ('list', 'import')",
        (mailbox, stage, time.time()),
    )


def stuck(db: Connection, before: float) -> list[str]:
    """Return mailboxes in an active stage that have shown no activity since then."""
    rows = db.execute("SELECT id FROM mailboxes WHERE stage IN ('list', 'import') AND since < ?", (before,))
    return [mailbox for (mailbox,) in rows]


def unstick(db: Connection, mailbox: str, before: float) -> bool:
    """Do the same as after a lost job, unless there was activity since it was found."""
    return mailbox in stuck(db, before) and _reset(db, mailbox)


def relaunchable(db: Connection, now: float) -> list[str]:
    """Return mailboxes that failed and may be tried again: not too soon, not forever, not if only the user can help."""
    rows = db.execute(
        "SELECT id, auth FROM mailboxes WHERE stage = 'failed' AND retry_at <= ? AND relaunches < ?",
        (now, MOST_RELAUNCHES),
    )
    return [mailbox for mailbox, auth in rows if auth not in HOPELESS]


def relaunch(db: Connection, mailbox: str) -> bool:
    stage = "import_pending" if cached(db, mailbox) else "list_pending"
    return _moved(
        db,
        "UPDATE mailboxes SET stage = ?2, since = ?3, queued = 0, relaunches = relaunches + 1"
        " WHERE id = ?1 AND stage = 'failed'",
        (mailbox, stage, time.time()),
    )


def cached(db: Connection, mailbox: str) -> int:
    """Return how many messages are known and not imported yet."""
    (number,) = db.execute("SELECT count(*) FROM to_import WHERE mailbox = ?", (mailbox,)).fetchone()
    return int(number)


def _moved(db: Connection, statement: str, values: tuple[object, ...]) -> bool:
    """Return whether the row was in the expected stage."""
    return db.execute(statement, values).rowcount == 1
