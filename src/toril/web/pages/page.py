"""One page: its address, who may see it, its template, and the function that provides its contents."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import ConfigDict

from toril.web.access import Role
from toril.web.fleet_status import FleetStatus, Recall
from toril.web.routing import Form, Request

__all__ = ["PageRequest", "PageSpec", "View"]


class View(Form):
    """The parts of the query that change what the server renders. Others, such as `theme`, are for the script."""

    model_config = ConfigDict(extra="ignore", frozen=True)


@dataclass(frozen=True, slots=True)
class PageRequest(Request):
    """A request for a page. `around` is the status of the whole app, which has been read already; expensive values are
    read through `recall`, which asks again only if the answer is older than the given seconds."""

    around: FleetStatus
    recall: Recall


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSpec:
    """`show` returns the values of the template; `nav` is its entry in the navigation. An element whose id begins with
    `n-` and that contains only text is updated while the page is open."""

    method: ClassVar[str] = "GET"

    path: str
    template: str
    show: Callable[[PageRequest], Awaitable[Mapping[str, Any]]]
    role: Role = Role.READ
    query: type[View] = View
    nav: str = "overview"
