"""The page of groups: which are waiting, which are at their limit."""

from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toril.web.api.groups import GroupDefaultsForm, all_groups
from toril.web.pages.drawing import slots
from toril.web.pages.page import PageSpec, View
from toril.web.routing import Request

__all__ = ["GROUPS"]

_A_PAGE: Final = 50
_LAST: Final = 500


class GroupsView(View):
    """A text to find in the name, a queue, a state, and how many to show."""

    q: Annotated[str, Field(max_length=200)] = ""
    queue: Annotated[str, Field(max_length=512)] = ""
    only: Literal["", "paused", "limit"] = ""
    show: Annotated[int, Field(ge=1, le=_LAST)] = _A_PAGE


async def groups(asking: Request) -> dict[str, Any]:
    view: GroupsView = asking.query
    meant = GroupDefaultsForm(limit=view.show, only=view.only or None, queue=view.queue or None, q=view.q or None)
    found = await all_groups(replace(asking, query=meant))
    following = min(_LAST, view.show + _A_PAGE) if found["match"] > view.show < _LAST else None
    return {
        "title": "Groups", "view": view, "found": found, "following": following,
        "rows": [_row(each) for each in found["items"]],
    }  # fmt: skip


def _row(group: dict[str, Any]) -> dict[str, Any]:
    most = group["concurrency"]
    per = group["rate_per_ms"]
    return group | {
        "cells": None if most is None else slots(group["running"], most),
        "rate": None if per is None else f"{group['rate_max']:,} {_each(per)}",
    }


def _each(ms: int) -> str:
    known = {1000: "per second", 60_000: "per minute", 3_600_000: "per hour", 86_400_000: "per day"}
    return known.get(ms, f"per {ms / 1000:g} s")


GROUPS: Final = (PageSpec(path="/groups", template="groups.html", show=groups, query=GroupsView, nav="groups"),)
