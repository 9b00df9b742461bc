"""The audit log: who changed what over HTTP."""

from dataclasses import asdict
from typing import Any, Final

from toril.model import AuditEntry, Page
from toril.runtime.clock import SYSTEM
from toril.store.engine import Store
from toril.web.access import Role
from toril.web.api.common import SOON, Moment, PageQuery, Search
from toril.web.audit_text import sentence
from toril.web.routing import Endpoint, Request

__all__ = ["AUDIT", "Noted", "audit_page"]

_A_PAGE: Final = 500


class Noted(PageQuery):
    """Entries with the text `q` in their user, action, target or outcome; entries since a time."""

    q: Search = None
    since: Moment | None = None


async def list_audit(asking: Request) -> dict[str, Any]:
    found = await audit_page(asking.app.store, asking.query)
    return {"items": [asdict(entry) | {"text": sentence(entry)} for entry in found.items], "cursor": found.cursor}


async def audit_page(store: Store, form: Noted) -> Page[AuditEntry]:
    """A page of entries. Each call is limited in time: it may find fewer than wanted, or none, and still have a cursor.
    Cursors point between pages of the store; if a page has more matches than wanted, a smaller part of it is read
    again."""
    found: list[AuditEntry] = []
    until = SYSTEM.monotonic() + SOON
    cursor, limit, text = form.cursor, form.limit, (form.q or "").casefold()
    since = 0 if form.since is None else form.since.timestamp() * 1000
    size = limit if not text else _A_PAGE
    while True:
        page = await store.audit.page(cursor=cursor, limit=size)
        fitting = [index for index, entry in enumerate(page.items) if entry.at >= since and _has(entry, text)]
        room = limit - len(found)
        if len(fitting) > room:
            size = fitting[room - 1] + 1
            continue
        found += [page.items[index] for index in fitting]
        over = page.cursor is None or page.items[-1].at < since
        if over or len(found) == limit or SYSTEM.monotonic() > until:
            return Page(tuple(found), None if over else page.cursor)
        cursor, size = page.cursor, _A_PAGE


def _has(entry: AuditEntry, text: str) -> bool:
    """Whether an entry contains the text, as stored or as worded."""
    written = " ".join((entry.who, entry.address, entry.action, entry.target, entry.detail, entry.ended))
    return not text or text in written.casefold() or text in sentence(entry).casefold()


AUDIT: Final = (
    Endpoint(
        method="GET",
        path="/audit",
        role=Role.ADMIN,
        run=list_audit,
        query=Noted,
        does="List changes made over HTTP, newest first; `text` describes each one.",
    ),
)
