"""Connections that do as they are told: fail their commits, wait in them, or count what is asked of them."""

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import pytest


class Disk:
    """What becomes of commits. Each one fails while `failing` is above 0; `effect` says whether it happened anyway."""

    def __init__(self) -> None:
        self.failing = 0
        self.effect: Literal["none", "done"] = "none"
        self.code = sqlite3.SQLITE_IOERR_FSYNC
        self.commits = 0
        self.statements: Counter[str] = Counter()
        self.before_commit: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def commit(self, really: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        self.before_commit()
        with self._lock:
            fails, self.failing = self.failing > 0, max(0, self.failing - 1)
        if not fails:
            self.commits += 1
            return really()
        if self.effect == "done":
            really()
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = self.code
        raise error


def replace_disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Connections opened from here on obey this disk."""
    disk = Disk()
    plain = sqlite3.connect

    class Obedient(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            disk.statements[sql] += 1
            if sql == "COMMIT":
                return disk.commit(lambda: super(Obedient, self).execute(sql))
            return super().execute(sql, parameters)

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        return plain(*args, **kwargs, factory=Obedient)

    monkeypatch.setattr(sqlite3, "connect", connect)
    return disk
