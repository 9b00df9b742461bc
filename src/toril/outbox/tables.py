"""The tables of an outbox and all that is said to them, in the words of SQLite and of PostgreSQL."""

from typing import Final, Literal, TypeAlias

__all__ = ["DDL", "INSERT", "Dialect", "statements"]

Dialect: TypeAlias = Literal["sqlite", "postgresql"]

# Times are milliseconds of the database's own clock: those who write and those who read may be on other machines.
_NOW: Final[dict[Dialect, str]] = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
}
# Numbers are never given twice, not even those of rows that are gone.
_KEY: Final[dict[Dialect, str]] = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
}


def _ddl(dialect: Dialect) -> tuple[str, ...]:
    return (
        f"""CREATE TABLE IF NOT EXISTS toril_outbox (
    id {_KEY[dialect]},
    queue TEXT NOT NULL,
    job_id TEXT NOT NULL,
    request TEXT NOT NULL,
    created_at BIGINT NOT NULL DEFAULT ({_NOW[dialect]}),
    lane TEXT,
    error TEXT
)""",
        """CREATE INDEX IF NOT EXISTS toril_outbox_waiting
    ON toril_outbox (id) WHERE lane IS NULL AND error IS NULL""",
        "CREATE INDEX IF NOT EXISTS toril_outbox_taken ON toril_outbox (lane) WHERE lane IS NOT NULL",
        """CREATE TABLE IF NOT EXISTS toril_outbox_lanes (
    name TEXT PRIMARY KEY,
    seq BIGINT NOT NULL,
    leased_until BIGINT NOT NULL
)""",
    )


DDL: Final[dict[Dialect, tuple[str, ...]]] = {"sqlite": _ddl("sqlite"), "postgresql": _ddl("postgresql")}

INSERT: Final = "INSERT INTO toril_outbox (queue, job_id, request) VALUES (?, ?, ?)"

# `$now` is the database's clock, `$lock` keeps others off a row without waiting for theirs, where that can be said.
_STATEMENTS: Final = {
    "anything": """SELECT EXISTS (SELECT 1 FROM toril_outbox WHERE lane IS NULL AND error IS NULL)
        OR EXISTS (SELECT 1 FROM toril_outbox WHERE lane IS NOT NULL)""",
    # One whose relay is gone comes first, with the batch that it left.
    "lane": """SELECT name, seq FROM toril_outbox_lanes AS l WHERE leased_until <= $now
        ORDER BY CASE WHEN EXISTS (SELECT 1 FROM toril_outbox WHERE lane = l.name) THEN 0 ELSE 1 END, name
        LIMIT 1 $lock""",
    "new_lane": "INSERT INTO toril_outbox_lanes (name, seq, leased_until) VALUES (?, 0, 0)",
    "waiting": """SELECT id, queue, length(request) FROM toril_outbox
        WHERE lane IS NULL AND error IS NULL $unheld ORDER BY id LIMIT 100 $lock""",
    "requests": "SELECT id, request FROM toril_outbox WHERE id IN ($ids) ORDER BY id",
    "lease": "UPDATE toril_outbox_lanes SET seq = ?, leased_until = $now + ? WHERE name = ?",
    "board": "UPDATE toril_outbox SET lane = ? WHERE id IN ($ids)",
    "batch": "SELECT id, queue, request, $now - created_at FROM toril_outbox WHERE lane = ? ORDER BY id",
    # Whoever holds an older number has lost the lane to another.
    "free": """UPDATE toril_outbox_lanes SET seq = ?, leased_until = 0 WHERE name = ? AND seq = ? RETURNING name""",
    "retire": "DELETE FROM toril_outbox_lanes WHERE name = ? AND seq = ? RETURNING name",
    "delete": "DELETE FROM toril_outbox WHERE lane = ?",
    "leave": "UPDATE toril_outbox SET lane = NULL WHERE lane = ?",
    "refuse": "UPDATE toril_outbox SET error = ? WHERE id = ?",
    "rows": """SELECT id, queue, job_id, $now - created_at, lane, error FROM toril_outbox
        WHERE id > ? ORDER BY id LIMIT ?""",
    "again": "UPDATE toril_outbox SET error = NULL WHERE error IS NOT NULL AND id = ? RETURNING id",
    "standing": """SELECT count(CASE WHEN error IS NULL THEN 1 END), count(error),
        $now - min(CASE WHEN error IS NULL THEN created_at END)
        FROM (SELECT error, created_at FROM toril_outbox ORDER BY id LIMIT 100000) AS first""",
}


def statements(dialect: Dialect) -> dict[str, str]:
    """All of them by name. Parameters are written `?`."""
    lock = "FOR UPDATE SKIP LOCKED" if dialect == "postgresql" else ""
    return {name: text.replace("$now", _NOW[dialect]).replace("$lock", lock) for name, text in _STATEMENTS.items()}
