"""The audit log: who has changed what over HTTP."""

from dataclasses import asdict
from typing import Any, Final

from toril.engine import Store
from toril.model import Audited, Page
from toril.web.access import Role
from toril.web.api.common import Moment, Paging, Search
from toril.web.endpoint import Asking, Endpoint

__all__ = ["AUDIT"]

_A_PAGE: Final = 500


class Noted(Paging):
    """Entries with this text in who, what, to what or how it ended; those since a time."""

    q: Search = None
    since: Moment | None = None


async def list_audit(asking: Asking) -> dict[str, Any]:
    form: Noted = asking.query
    since = 0 if form.since is None else form.since.timestamp() * 1000
    found = await _looked(asking.app.store, form.cursor, form.limit, (form.q or "").casefold(), since)
    return {"items": [asdict(entry) for entry in found.items], "cursor": found.cursor}


async def _looked(store: Store, cursor: str | None, limit: int, text: str, since: float) -> Page[Audited]:
    """The log is bounded, so it is looked through to its end. Cursors stand between pages of the store: where one
    has more than is wanted it is read again in a smaller part."""
    found: list[Audited] = []
    size = limit if not text else _A_PAGE
    while True:
        page = await store.notes(cursor=cursor, limit=size)
        fitting = [index for index, entry in enumerate(page.items) if text in _words(entry) and entry.at >= since]
        room = limit - len(found)
        if len(fitting) > room:
            size = fitting[room - 1] + 1
            continue
        found += [page.items[index] for index in fitting]
        over = page.cursor is None or page.items[-1].at < since
        if over or len(found) == limit:
            return Page(tuple(found), None if over else page.cursor)
        cursor, size = page.cursor, _A_PAGE


def _words(entry: Audited) -> str:
    return " ".join((entry.who, entry.address, entry.action, entry.target, entry.detail, entry.ended)).casefold()


AUDIT: Final = (
    Endpoint(
        method="GET", path="/audit", role=Role.ADMIN, run=list_audit, query=Noted,
        does="What was changed over HTTP, by whom, the last first.",
    ),
)  # fmt: skip
