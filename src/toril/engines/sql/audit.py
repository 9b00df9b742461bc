"""The audit log: a row an entry."""

from abc import abstractmethod
from functools import partial
from typing import Final, TypeVar

from toril.engines.shared import dump, load, place_of
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import Op, Tx
from toril.model import AUDIT_LENGTH, Audited, Page

__all__ = ["SqliteAudits"]

T = TypeVar("T")
_SQL: Final = {name: statement("audit", name) for name in ("add", "trim", "page")}
_LAST: Final = 2**63 - 1


class SqliteAudits:
    """The audit log of the seam."""

    @abstractmethod
    async def _write(self, op: Op[T], now: int | None, *, grows: bool = False) -> T: ...

    @abstractmethod
    async def _read(self, op: Op[T], now: int | None = None) -> T: ...

    async def note(self, entry: Audited, *, now: int | None = None) -> None:
        await self._write(partial(_note, entry=entry), now)

    async def notes(self, *, cursor: str | None = None, limit: int = 50) -> Page[Audited]:
        before = _LAST if cursor is None else place_of(cursor)[0]
        return await self._read(partial(_notes, before=before, limit=limit))


def _note(tx: Tx, entry: Audited) -> None:
    tx.run(_SQL["add"], (tx.now, dump(entry)))
    tx.run(_SQL["trim"], (AUDIT_LENGTH,))


def _notes(tx: Tx, before: int, limit: int) -> Page[Audited]:
    rows = tx.all(_SQL["page"], (before, limit + 1))
    more = f"{rows[limit - 1][0]}-0" if len(rows) > limit else None
    return Page(tuple(load(text, at) for _, at, text in rows[:limit]), more)
