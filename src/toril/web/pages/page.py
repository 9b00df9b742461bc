"""One page: its address, who may see it, its template, and the function that provides its contents."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from pydantic import ConfigDict

from toril.web.access import Role
from toril.web.fleet_status import FleetStatus, Recall
from toril.web.routing import Endpoint, Form, Request

__all__ = ["Act", "FormAnswer", "FormPost", "FormRequest", "PageRequest", "PageSpec", "Redrawn", "SeeOther", "View"]


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


class Act(Protocol):
    """Does what an endpoint of the API does, for the one who sent a form, and writes it to the audit log."""

    async def __call__(self, endpoint: Endpoint, path: Mapping[str, str], body: Form) -> Any: ...


@dataclass(frozen=True, slots=True)
class FormRequest(PageRequest):
    """A form that was sent, by the names of its fields."""

    form: Mapping[str, str]
    act: Act


@dataclass(frozen=True, slots=True)
class SeeOther:
    """It is done; `to` and the query are the page to go on with."""

    to: tuple[str, ...]
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Redrawn:
    """It was refused: the page again, with what was typed and what is wrong with it."""

    values: Mapping[str, Any]
    status: int


FormAnswer: TypeAlias = SeeOther | Redrawn


@dataclass(frozen=True, slots=True, kw_only=True)
class FormPost:
    """The form of a page that works without a script: it is sent to the page's own path."""

    method: ClassVar[str] = "POST"

    path: str
    template: str
    send: Callable[[FormRequest], Awaitable[FormAnswer]]
    role: Role = Role.OPERATE
    query: type[View] = View
    nav: str = "overview"
