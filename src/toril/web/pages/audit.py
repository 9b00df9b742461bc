"""The page of the audit log: who changed what over HTTP."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toril.web.access import Role
from toril.web.api.audit import Noted, audit_page
from toril.web.audit_text import in_words
from toril.web.pages.page import PageSpec, View
from toril.web.routing import Request

__all__ = ["AUDIT"]

_BACK: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


class AuditView(View):
    """A text to find, a time range, and where to start."""

    q: Annotated[str, Field(max_length=200)] = ""
    since: Literal["", "hour", "day", "week"] = ""
    after: Annotated[str, Field(max_length=1024)] = ""


async def audit(asking: Request) -> dict[str, Any]:
    view: AuditView = asking.query
    now = datetime.fromtimestamp((await asking.app.store.health()).now / 1000, UTC)
    since = now - _BACK[view.since] if view.since else None
    form = Noted(q=view.q or None, since=since, cursor=view.after or None)
    found = await audit_page(asking.app.store, form)
    return {
        "title": "Audit log", "view": view, "rows": [(entry, in_words(entry)) for entry in found], "next": found.cursor,
        "filtered": bool(view.q or view.since or view.after),
    }  # fmt: skip


AUDIT: Final = (
    PageSpec(path="/audit", template="audit.html", show=audit, query=AuditView, role=Role.ADMIN, nav="audit"),
)
