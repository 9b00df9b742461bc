"""Documents of the knowledge base: uploaded, cut into segments, embedded, ready to be searched."""

import time
from collections.abc import Sequence

from helpdesk.database import Connection

__all__ = ["cut", "end", "forgotten", "restart", "save_vectors", "texts", "unfinished"]


def cut(db: Connection, document: str) -> int:
    """Split the text into segments, one per line, and return their number. A second call changes nothing."""
    (text,) = db.execute("SELECT text FROM documents WHERE id = ?", (document,)).fetchone()
    lines = text.splitlines()
    db.executemany(
        "INSERT INTO segments (document, number, text) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        [(document, number, line) for number, line in enumerate(lines)],
    )
    db.execute("UPDATE documents SET status = 'embedding', since = ? WHERE id = ?", (time.time(), document))
    return len(lines)


def texts(db: Connection, document: str, numbers: Sequence[int]) -> list[str]:
    rows = db.execute(
        "SELECT text FROM segments WHERE document = ? AND number BETWEEN ? AND ? ORDER BY number",
        (document, numbers[0], numbers[-1]),
    )
    return [text for (text,) in rows]


def save_vectors(db: Connection, document: str, vectors: dict[int, str]) -> None:
    db.executemany(
        "UPDATE segments SET vector = ? WHERE document = ? AND number = ?",
        [(vector, document, number) for number, vector in vectors.items()],
    )


def unfinished(db: Connection, document: str) -> int:
    """Return how many segments have no vector."""
    (count,) = db.execute("SELECT count(*) FROM segments WHERE document = ? AND vector IS NULL", (document,)).fetchone()
    return int(count)


def end(db: Connection, document: str, status: str) -> None:
    db.execute("UPDATE documents SET status = ?, since = ? WHERE id = ?", (status, time.time(), document))


def forgotten(db: Connection, before: float) -> list[str]:
    """Return documents that have not been started, or that were started and have not ended, since then."""
    rows = db.execute("SELECT id FROM documents WHERE status IN ('uploaded', 'embedding') AND since < ?", (before,))
    return [document for (document,) in rows]


def restart(db: Connection, document: str) -> float | None:
    """Restart it, and return the time of the restart; None if it has ended in the meantime."""
    row = db.execute(
        "UPDATE documents SET status = 'uploaded', since = ? WHERE id = ? AND status IN ('uploaded', 'embedding')"
        " RETURNING since",
        (time.time(), document),
    ).fetchone()
    return None if row is None else float(row[0])
