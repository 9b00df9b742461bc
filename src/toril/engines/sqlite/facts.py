"""What the doctor checks in a SQLite file."""

import sqlite3
from typing import Final

from toril.engines.sql.transaction import Transaction
from toril.engines.sqlite.disk_space import free_bytes, size_of
from toril.engines.sqlite.url import FileAddress, filesystem_of, is_network
from toril.model import FileFacts
from toril.runtime.clock import SYSTEM

__all__ = ["file_facts"]

_DAMAGE: Final = 10  # lines of the report


def file_facts(tx: Transaction, address: FileAddress, *, quick: bool) -> FileFacts:
    path = address.path
    pings = []
    for _ in range(5):
        began = SYSTEM.monotonic()
        tx.one("SELECT 1")
        pings.append((SYSTEM.monotonic() - began) * 1000)
    lines = () if quick else tx.all(f"PRAGMA integrity_check({_DAMAGE})")
    damage = None if quick else tuple(line for (line,) in lines if line != "ok")
    kind = "" if path is None else filesystem_of(path.resolve().parent)
    return FileFacts(
        place="memory://" if path is None else str(path),
        version=sqlite3.sqlite_version,
        damage=damage,
        journal=tx.one("PRAGMA journal_mode")[0],
        synchronous=address.synchronous,
        log=0 if path is None else size_of(path.with_name(path.name + "-wal")),
        free=None if path is None else free_bytes(path),
        mode=None if path is None else path.stat().st_mode & 0o777,
        filesystem=kind,
        network=is_network(kind),
        pings=tuple(pings),
    )
