"""What processes wrote down outside of the store, and what the store says in the end."""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path


class Ledger:
    """Lines of words, each line in one write at the end of the file: a process that dies leaves no half of one."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, word: str, subjects: Iterable[str]) -> None:
        text = "".join(f"{word} {subject}\n" for subject in subjects)
        if text:
            os.write(self._handle, text.encode())

    def close(self) -> None:
        os.close(self._handle)


def subjects(path: Path, word: str) -> list[str]:
    """All that were noted with this word, in order."""
    if not path.exists():
        return []
    lines = (line.partition(" ") for line in path.read_text().splitlines())
    return [subject for noted, _, subject in lines if noted == word]


def noted(folder: Path, word: str) -> Counter[str]:
    """The same over all ledgers of a folder, counted."""
    return Counter(subject for path in sorted(folder.glob("*.log")) for subject in subjects(path, word))


def stored_ids(database: Path) -> set[str]:
    """The chosen ids of all jobs in the file."""
    with closing(sqlite3.connect(database)) as connection:
        return {identity for (identity,) in connection.execute("SELECT id FROM ids")}


def unsound(database: Path) -> list[str]:
    """What is wrong with the file: its pages, the places of its jobs, its counters. Nothing, it is hoped."""
    with closing(sqlite3.connect(database)) as connection:
        found = [row for (row,) in connection.execute("PRAGMA integrity_check") if row != "ok"]
        for complaint, query in _LAWS.items():
            found += [f"{complaint}: {row}" for row in connection.execute(query)]
    return found


_LAWS = {
    "a job is not in exactly one place": """
        SELECT jobs.key, jobs.place FROM jobs WHERE 1 != (
            (SELECT count(*) FROM active WHERE active.key = jobs.key)
            + (SELECT count(*) FROM line WHERE line.queue = jobs.key >> 40 AND line.place = jobs.place
               AND line.rank = jobs.rank AND line.key = jobs.key))
    """,
    "a line has an entry without a job": "SELECT key FROM line WHERE key NOT IN (SELECT key FROM jobs)",
    "a lease has no job": "SELECT key FROM active WHERE key NOT IN (SELECT key FROM jobs)",
    "a job is in the line twice": "SELECT key, count(*) FROM line GROUP BY key HAVING count(*) > 1",
    "an id has no job": "SELECT id FROM ids WHERE key NOT IN (SELECT key FROM jobs)",
    "a counter is wrong": """
        SELECT name FROM queues WHERE
            (waiting, suspects, prioritized, delayed, completed, failed, active) != (
            (SELECT count(*) FROM line WHERE queue = queues.key AND place = 0),
            (SELECT count(*) FROM line WHERE queue = queues.key AND place = 1),
            (SELECT count(*) FROM line WHERE queue = queues.key AND place = 2),
            (SELECT count(*) FROM line WHERE queue = queues.key AND place = 3),
            (SELECT count(*) FROM line WHERE queue = queues.key AND place = 5),
            (SELECT count(*) FROM line WHERE queue = queues.key AND place = 6),
            (SELECT count(*) FROM active WHERE queue = queues.key))
    """,
}
