"""The audit log on Redis: a stream that is trimmed as it grows."""

from dataclasses import replace
from typing import Final

from toril.engines.redis.layout import FLEET
from toril.engines.redis.runner import ScriptRunner
from toril.engines.shared import cursor_numbers, dump_audit, load_audit
from toril.model import AUDIT_LENGTH, AuditEntry, Page
from toril.store.capabilities import AuditStore
from toril.store.checked import implements

__all__ = ["RedisAudit"]

_ENTRY: Final = "entry"


@implements(AuditStore)
class RedisAudit:
    """The audit log of the seam."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner

    async def append(self, entry: AuditEntry, *, now: int | None = None) -> None:
        self._runner.check_open()
        time = self._runner.time_for(now)
        text = dump_audit(entry if time == "" else replace(entry, at=int(time)))
        # If it is sent again after a lost answer, it is stored twice, which does less harm than not at all.
        await self._runner.client.ask("XADD", self._audit, "MAXLEN", "~", AUDIT_LENGTH, "*", _ENTRY, text)

    async def page(self, *, cursor: str | None = None, limit: int = 50) -> Page[AuditEntry]:
        self._runner.check_open()
        newest = "+" if cursor is None else "({}-{}".format(*cursor_numbers(cursor))
        rows = await self._runner.client.ask("XREVRANGE", self._audit, newest, "-", "COUNT", limit + 1)
        entries = [load_audit(fields[1], int(place.partition("-")[0])) for place, fields in rows[:limit]]
        return Page(tuple(entries), rows[limit - 1][0] if len(rows) > limit else None)

    @property
    def _audit(self) -> str:
        return self._runner.fleet + FLEET["audit"]
