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
    """What of the query changes what the server draws. The rest, such as `theme`, is the script's."""

    model_config = ConfigDict(extra="ignore", frozen=True)


@dataclass(frozen=True, slots=True)
class PageRequest(Request):
    """Someone looks at a page. `around` is how the whole app is doing, which has been read already; what is costly to
    find out is asked for through `recall`, which asks again only when the answer is so many seconds old."""

    around: FleetStatus
    recall: Recall


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSpec:
    """`show` gives the values of the template; `nav` is the entry of the navigation that it stands under. An element
    with an id that begins with `n-` and nothing but text in it is kept up to date while the page is open."""

    method: ClassVar[str] = "GET"

    path: str
    template: str
    show: Callable[[PageRequest], Awaitable[Mapping[str, Any]]]
    role: Role = Role.READ
    query: type[View] = View
    nav: str = "overview"
