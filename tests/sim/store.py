"""The store under test, as the simulator needs it. Another engine joins by another class like this one."""

import atexit
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable
from functools import cache, partial
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Final, Protocol

from toril.engines.sql.schema import job_key
from toril.engines.sqlite import SqliteEngine
from toril.engines.sqlite.database import SqliteDatabase
from toril.engines.sqlite.url import parse
from toril.runtime.clock import SYSTEM, Clock
from toril.store.engine import Store

__all__ = ["FAULTS", "FileStore", "MemoryStore", "SimStore"]

_IN_MEMORY: Final = Path("/dev/shm")  # where files need no disk

# Every way in which rows can contradict each other: a job that stands in no place or in two, a place without its job,
# a count that is not the number of rows.
FAULTS = """
SELECT 'job ' || j.key || ' stands in ' || count(p.key) || ' places'
FROM jobs j LEFT JOIN (SELECT key FROM line UNION ALL SELECT key FROM active) p ON p.key = j.key
GROUP BY j.key HAVING count(p.key) <> 1
UNION ALL
SELECT 'place ' || l.place || ' holds ' || l.key || ', whose row says otherwise'
FROM line l LEFT JOIN jobs j ON j.key = l.key WHERE j.key IS NULL OR j.place <> l.place OR j.rank <> l.rank
UNION ALL
SELECT 'a lease on ' || a.key || ', which does not exist'
FROM active a LEFT JOIN jobs j ON j.key = a.key WHERE j.key IS NULL
UNION ALL
SELECT 'id ' || i.id || ' leads to no job of that id'
FROM ids i LEFT JOIN jobs j ON j.key = i.key WHERE j.id IS NULL OR j.id <> i.id
UNION ALL
SELECT q.name || ' counts ' || c.counted || ' in place ' || c.place || ' and has '
    || (SELECT count(*) FROM line l WHERE l.queue = q.key AND l.place = c.place)
FROM queues q, (
    SELECT key, 0 AS place, waiting AS counted FROM queues UNION ALL SELECT key, 1, suspects FROM queues
    UNION ALL SELECT key, 2, prioritized FROM queues UNION ALL SELECT key, 3, delayed FROM queues
    UNION ALL SELECT key, 5, completed FROM queues UNION ALL SELECT key, 6, failed FROM queues
) c
WHERE c.key = q.key AND c.counted <> (SELECT count(*) FROM line l WHERE l.queue = q.key AND l.place = c.place)
UNION ALL
SELECT q.name || ' counts ' || q.active || ' active and has ' || count(a.key)
FROM queues q LEFT JOIN active a ON a.queue = q.key GROUP BY q.key HAVING count(a.key) <> q.active
UNION ALL
SELECT 'job ' || r.job || ' is noted as resting, and does not'
FROM rests r WHERE NOT EXISTS (SELECT 1 FROM line l WHERE l.key = r.job AND l.place IN (3, 4))
UNION ALL
SELECT q.name || ' counts ' || q.resting || ' and ' || q.resting_for_children || ' resting jobs'
FROM queues q
WHERE q.resting <> (SELECT count(*) FROM rests r JOIN line l ON l.key = r.job AND l.place = 3 WHERE r.queue = q.key)
    OR q.resting_for_children
        <> (SELECT count(*) FROM rests r JOIN line l ON l.key = r.job AND l.place = 4 WHERE r.queue = q.key)
UNION ALL
SELECT 'something is left of the steps of ' || s.job
FROM (SELECT job FROM steps UNION SELECT job FROM recorded UNION SELECT job FROM signals) s
WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.key = s.job)
    AND NOT EXISTS (SELECT 1 FROM letters l WHERE l.recorded = s.job)
UNION ALL
SELECT 'the rows of ' || r.job || ' are counted as ' || r.count || ' with ' || r.bytes || ' bytes'
FROM recorded r LEFT JOIN (
    SELECT job, count(*) AS count, sum(length(CAST(name AS BLOB)) + length(CAST(row AS BLOB))) AS bytes
    FROM steps GROUP BY job
) s ON s.job = r.job WHERE r.count <> coalesce(s.count, 0) OR r.bytes <> coalesce(s.bytes, 0)
UNION ALL
SELECT 'job ' || s.job || ' has steps or signals, and no counts of them'
FROM (SELECT job FROM steps UNION SELECT job FROM signals) s
WHERE NOT EXISTS (SELECT 1 FROM recorded r WHERE r.job = s.job)
UNION ALL
SELECT 'signals by ' || w.word || ' go to ' || w.job || ', which is gone or has ended'
FROM awaited w LEFT JOIN line l ON l.key = w.job LEFT JOIN active a ON a.key = w.job
WHERE a.key IS NULL AND (l.key IS NULL OR l.place > 4)
"""


# A key that is owned until a job ends is owned by a job that has not ended.
_STRAY_KEYS = """
SELECT 'key ' || d.id || ' is owned by ' || d.owner || ', which ' || iif(j.key IS NULL, 'is gone', 'has ended')
FROM dedups d LEFT JOIN jobs j ON j.key = d.key LEFT JOIN line l ON l.key = d.key AND l.place >= 5
WHERE d.till IS NULL AND (j.key IS NULL OR l.key IS NOT NULL)
"""


# A run that has not started is its schedule's current one.
_STRAY_RUNS = """
SELECT 'run ' || j.id || ' has not started, and is not the current one of any schedule'
FROM jobs j LEFT JOIN active a ON a.key = j.key
WHERE j.id LIKE 'repeat:%' AND j.starts = 0 AND a.key IS NULL AND NOT EXISTS (
    SELECT 1 FROM schedules s WHERE s.queue = j.key >> 40 AND j.id = 'repeat:' || s.id || ':' || s.slot AND NOT s.paused
)
"""


# What may only be there of jobs that are.
_STEP_TABLES: Final = ("steps", "recorded", "signals", "awaited", "rests")


class SimStore(Protocol):
    """A store that can be looked into, and restarted. `epoch` grows with every restart, `up` says it is running, and
    `untold` is for how many seconds a waiting worker may not hear of what has arrived."""

    name: str
    untold: float
    epoch: int
    up: bool

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def view(self) -> Store:
        """The store as one process sees it, with what that process remembers by itself."""

    async def restart(self) -> None:
        """Forget all that is not committed."""

    def contradictions(self) -> list[str]:
        """Where the store's own records contradict each other (I1)."""

    def stray_runs(self) -> list[str]:
        """Runs that have not started, and which their schedule does not know (T1)."""

    def stray_keys(self) -> list[str]:
        """Deduplication keys whose job is gone or has ended (T3)."""

    def unfinished(self, ids: Iterable[str]) -> list[str]:
        """Those of these jobs that are there and have not ended."""

    def left_of_steps(self) -> list[str]:
        """What is left of durable steps where no job is left (S10)."""


class MemoryStore:
    """SQLite in memory. What is committed outlives a restart, as a file would; all else does not."""

    name = "memory"
    untold = 0.0

    def __init__(self, clock: Clock) -> None:
        self.epoch = 0
        self.up = True
        self._clock = clock
        self._engine = self._made()
        self._views: list[SqliteEngine] = []

    def _made(self) -> SqliteEngine:
        return SqliteEngine(parse("memory://"), clock=self._clock, inline=True)

    async def open(self) -> None:
        await self._open_with(_empty())

    async def _open_with(self, content: sqlite3.Connection) -> None:
        """Open on a copy. To lay out a new store each time would take a sixth of all the time there is."""
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=256)
        content.backup(copy)
        self._engine._writer.database.open = lambda: copy  # type: ignore[method-assign]
        await self._engine.open()

    async def close(self) -> None:
        await self._engine.close()

    def view(self) -> Store:
        view = self._made()
        view._writer, view._notifier, view._runner = self._engine._writer, self._engine._notifier, self._engine._runner
        view._open = True
        self._views.append(view)
        return view

    async def restart(self) -> None:
        before, self._engine = self._engine, self._made()
        await self._open_with(_connection(before))
        for view in self._views:
            view._open = False
        self._views.clear()
        await before.close()  # which also wakes who waits, as a broken connection does

    def contradictions(self) -> list[str]:
        return [text for (text,) in _connection(self._engine).execute(FAULTS)]

    def stray_runs(self) -> list[str]:
        return [text for (text,) in _connection(self._engine).execute(_STRAY_RUNS)]

    def stray_keys(self) -> list[str]:
        return [text for (text,) in _connection(self._engine).execute(_STRAY_KEYS)]

    def unfinished(self, ids: Iterable[str]) -> list[str]:
        keys = [key for identity in ids if (key := job_key(1, identity)) is not None]
        ask = _connection(self._engine).execute
        sql = "SELECT 1 FROM jobs j LEFT JOIN line l ON l.key = j.key WHERE j.key = ? AND coalesce(l.place, 0) < 5"
        return [str(key) for key in keys if ask(sql, (key,)).fetchone()]

    def left_of_steps(self) -> list[str]:
        ask = _connection(self._engine).execute
        counts = {table: ask(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _STEP_TABLES}
        return [f"{count} rows are left in {table}" for table, count in counts.items() if count]


class FileStore(MemoryStore):
    """SQLite on a file. A restart opens it anew."""

    name = "sqlite"

    def __init__(self, clock: Clock) -> None:
        needs_no_disk = _IN_MEMORY.is_dir() and "TMPDIR" not in os.environ
        self._folder = tempfile.mkdtemp(prefix="toril-sim-", dir=_IN_MEMORY if needs_no_disk else None)
        self._remove = Finalize(None, partial(shutil.rmtree, self._folder), exitpriority=0)  # processes of a pool too
        super().__init__(clock)

    def _made(self) -> SqliteEngine:
        return SqliteEngine(parse(f"sqlite:///{self._folder}/jobs.db"), clock=self._clock, inline=True)

    async def _open_with(self, content: sqlite3.Connection) -> None:
        del content  # it is in the file already
        await self._engine.open()

    async def close(self) -> None:
        await super().close()
        self._remove()


@cache
def _empty() -> sqlite3.Connection:
    """What a new store looks like."""
    connection = SqliteDatabase(parse("memory://"), SYSTEM).open()
    atexit.register(connection.close)
    return connection


def _connection(engine: SqliteEngine) -> sqlite3.Connection:
    connection = engine._writer._connection
    assert isinstance(connection, sqlite3.Connection)
    return connection
