"""The audit log: who has changed what over HTTP."""

from typing import Any, Final

from toril.web.access import Role
from toril.web.api.common import Paging
from toril.web.endpoint import Asking, Endpoint

__all__ = ["AUDIT"]


async def list_audit(asking: Asking) -> dict[str, Any]:
    page = await asking.app.store.notes(cursor=asking.query.cursor, limit=asking.query.limit)
    items = [
        {
            "at": entry.at, "who": entry.who, "address": entry.address, "action": entry.action, "target": entry.target,
            "detail": entry.detail, "ended": entry.ended,
        }
        for entry in page.items
    ]  # fmt: skip
    return {"items": items, "cursor": page.cursor}


AUDIT: Final = (
    Endpoint(
        method="GET", path="/audit", role=Role.ADMIN, run=list_audit, query=Paging,
        does="What was changed over HTTP, by whom, the last first.",
    ),
)  # fmt: skip
