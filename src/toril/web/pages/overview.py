"""Overview: is anything wrong, and how all queues are."""

from typing import Any, Final

from toril.web.endpoint import Asking
from toril.web.pages.page import Page

__all__ = ["OVERVIEW"]


async def overview(asking: Asking) -> dict[str, Any]:
    return {"title": "Overview", "queues": sorted(await asking.app.store.queues())}


OVERVIEW: Final = (Page(path="/", template="overview.html", show=overview),)
