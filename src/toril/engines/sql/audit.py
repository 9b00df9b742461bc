"""The audit log in SQL: one row per entry."""

from functools import partial
from typing import Final, TypeVar

from toril.engines.shared import cursor_numbers, dump_audit, load_audit
from toril.engines.sql.statements import statements
from toril.engines.sql.transaction import Steps, Transaction
from toril.model import AUDIT_LENGTH, AuditEntry, Page
from toril.store.capabilities import AuditStore
from toril.store.checked import implements

__all__ = ["SqlAudit"]

T = TypeVar("T")
_SQL: Final = statements("audit")
_LAST: Final = 2**63 - 1


@implements(AuditStore)
class SqlAudit:
    """The audit log of the seam."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def append(self, entry: AuditEntry, *, now: int | None = None) -> None:
        await self._steps.write(partial(_note, entry=entry), now)

    async def page(self, *, cursor: str | None = None, limit: int = 50) -> Page[AuditEntry]:
        before = _LAST if cursor is None else cursor_numbers(cursor)[0]
        return await self._steps.read(partial(_notes, before=before, limit=limit))


def _note(tx: Transaction, entry: AuditEntry) -> None:
    tx.run(_SQL["add"], (tx.now, dump_audit(entry)))
    tx.run(_SQL["trim"], (AUDIT_LENGTH,))


def _notes(tx: Transaction, before: int, limit: int) -> Page[AuditEntry]:
    rows = tx.all(_SQL["page"], (before, limit + 1))
    more = f"{rows[limit - 1][0]}-0" if len(rows) > limit else None
    return Page(tuple(load_audit(text, at) for _, at, text in rows[:limit]), more)
