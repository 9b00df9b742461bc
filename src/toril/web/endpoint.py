"""One thing that can be asked for over HTTP: where, by whom, with what, and what it does."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError

from toril.app import App
from toril.web.access import Role, Who
from toril.web.problems import Problem

__all__ = ["Asking", "Endpoint", "Form", "Method", "asked_for", "sent"]

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Form(BaseModel):
    """What a query or a body may have. What is not named here is refused by its name."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Asking:
    """A request that is allowed and well-formed: the parts of its path, its query and its body."""

    app: App
    who: Who
    path: Mapping[str, str]
    query: Any
    body: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A method of a path. `does` is what the API's document says of it; what is not GET is written to the audit log
    under `action`."""

    method: Method
    path: str
    role: Role
    does: str
    run: Callable[[Asking], Awaitable[Any]]
    query: type[Form] | None = None
    body: type[Form] | None = None
    status: int = 200
    media: str = "application/json"

    @property
    def action(self) -> str:
        return self.run.__name__.strip("_").replace("_", " ")


def asked_for(form: type[Form] | None, query: Mapping[str, str]) -> Any:
    """The form filled with a query; a Problem names the parameter that is wrong."""
    if form is None:
        if query:
            raise Problem(422, "invalid", "this takes no parameters", field=next(iter(query))[:80])
        return None
    try:
        return form.model_validate_strings(query)
    except ValidationError as error:
        raise _wrong(error) from None


def sent(form: type[Form] | None, body: bytes) -> Any:
    """The form filled with a body; a Problem names the field that is wrong."""
    if form is None:
        if body not in (b"", b"{}"):
            raise Problem(422, "invalid", "this takes no body")
        return None
    try:
        return form.model_validate_json(body or b"{}", strict=True)
    except ValidationError as error:
        raise _wrong(error) from None


def _wrong(error: ValidationError) -> Problem:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = ".".join(str(step) for step in first["loc"])[:200]
    return Problem(422, "invalid", f"{field or 'the body'}: {first['msg']}"[:400], field=field or None)
