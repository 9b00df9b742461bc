"""The audit log: a stream, trimmed as it grows."""

from dataclasses import replace
from typing import Final

from toril.engines.redis.layout import FLEET
from toril.engines.redis.runner import RedisStore
from toril.engines.shared import dump, load, place_of
from toril.model import AUDIT_LENGTH, Audited, Page

__all__ = ["RedisAudits"]

_ENTRY: Final = "entry"


class RedisAudits(RedisStore):
    """The audit log of the seam."""

    async def note(self, entry: Audited, *, now: int | None = None) -> None:
        self._check_open()
        time = self._now(now)
        text = dump(entry if time == "" else replace(entry, at=int(time)))
        # Sent again after a lost answer it stands there twice, which does less harm than not at all.
        await self._server.ask("XADD", self._audit, "MAXLEN", "~", AUDIT_LENGTH, "*", _ENTRY, text)

    async def notes(self, *, cursor: str | None = None, limit: int = 50) -> Page[Audited]:
        self._check_open()
        newest = "+" if cursor is None else "({}-{}".format(*place_of(cursor))
        rows = await self._server.ask("XREVRANGE", self._audit, newest, "-", "COUNT", limit + 1)
        entries = [load(fields[1], int(place.partition("-")[0])) for place, fields in rows[:limit]]
        return Page(tuple(entries), rows[limit - 1][0] if len(rows) > limit else None)

    @property
    def _audit(self) -> str:
        return self._fleet + FLEET["audit"]
