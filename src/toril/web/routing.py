"""Endpoints, forms and the table of paths."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from pydantic import BaseModel, ConfigDict, ValidationError

from toril.app import App
from toril.runtime.redaction import Part
from toril.web.access import Role, Who
from toril.web.messages import Problem

__all__ = ["Endpoint", "Form", "Method", "Request", "RouteTable", "asked_for", "canonical", "plain", "query", "sent"]

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Form(BaseModel):
    """The parameters of a query or the fields of a body. Unknown ones are refused by name. `part` is what a field
    `data` is to the app's redaction."""

    part: ClassVar[Part] = "data"

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is allowed and well-formed: the parts of its path, its query and its body."""

    app: App
    who: Who
    path: Mapping[str, str]
    query: Any
    body: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A method of a path. `does` describes it in the API's document; requests other than GET are written to the audit
    log under `action`."""

    method: Method
    path: str
    role: Role
    does: str
    run: Callable[[Request], Awaitable[Any]]
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
            raise Problem(422, "invalid", "this endpoint takes no parameters", field=next(iter(query))[:80])
        return None
    try:
        return form.model_validate_strings(query)
    except ValidationError as error:
        raise _wrong(error) from None


def sent(form: type[Form] | None, body: bytes) -> Any:
    """The form filled with a body; a Problem names the field that is wrong."""
    if form is None:
        if body not in (b"", b"{}"):
            raise Problem(422, "invalid", "this endpoint takes no body")
        return None
    try:
        return form.model_validate_json(body or b"{}", strict=True)
    except ValidationError as error:
        raise _wrong(error) from None


def _wrong(error: ValidationError) -> Problem:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = ".".join(str(step) for step in first["loc"])[:200]
    return Problem(422, "invalid", f"{field or 'the body'}: {first['msg']}"[:400], field=field or None)


_AS_THEY_ARE = "-._~!$&'()*+,;=:@"
_PARAMETERS = 100


def canonical(raw: bytes) -> str:
    """A path with each part escaped in one canonical way, so that a `/` within an id differs from one between parts."""
    parts = []
    for part in raw.split(b"/"):
        try:
            text = unquote_to_bytes(part).decode("utf-8")
        except UnicodeDecodeError:
            raise Problem(400, "bad_path", "the path is not valid UTF-8") from None
        if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
            raise Problem(400, "bad_path", "the path contains control characters")
        if text in (".", ".."):
            raise Problem(404, "not_found", "the path contains . or ..")
        parts.append(quote(text, safe=_AS_THEY_ARE))
    return "/".join(parts)


def plain(part: str) -> str:
    """A part of a path, unescaped."""
    return unquote_to_bytes(part).decode("utf-8")


def query(raw: bytes) -> dict[str, str]:
    """The parameters of a query, each given once."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS)
    except ValueError:
        raise Problem(
            400, "bad_query", f"the query is not valid UTF-8, or has more than {_PARAMETERS} parameters"
        ) from None
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name in found if sum(each == name for each, _ in pairs) > 1)
        raise Problem(400, "bad_query", "a parameter is given twice", field=twice[:80])
    return found


_Parts = tuple[str, ...]


class _Placed(Protocol):
    """An entry of a table."""

    @property
    def path(self) -> str: ...

    @property
    def method(self) -> str: ...


T = TypeVar("T", bound=_Placed)


class RouteTable(Generic[T]):
    """Matches paths part by part: `{name}` stands for any one part. Literal parts take precedence. `missing` is the
    message of a 404."""

    def __init__(self, rows: Sequence[T], missing: str) -> None:
        self._missing = missing
        self._rows: dict[_Parts, dict[str, T]] = {}
        for row in rows:
            self._rows.setdefault(_parts(row.path), {})[row.method] = row
        self._order = sorted(self._rows, key=lambda parts: [part.startswith("{") for part in parts])

    def find(self, method: str, path: str) -> tuple[T, Mapping[str, str]]:
        """The entry, and the values of the names in its path; a Problem if there is none."""
        given = _parts(path)
        for pattern in self._order:
            if len(pattern) == len(given) and all(_fits(*pair) for pair in zip(pattern, given, strict=True)):
                methods = self._rows[pattern]
                found = methods.get("GET" if method == "HEAD" else method)
                if found is None:
                    raise Problem(
                        405, "method", f"{method} is not allowed for this path", headers={"allow": _allow(methods)}
                    )
                return found, _meant(pattern, given)
        raise Problem(404, "not_found", self._missing)


def _parts(path: str) -> _Parts:
    return tuple(path.split("/"))


def _fits(pattern: str, part: str) -> bool:
    return bool(part) if pattern.startswith("{") else pattern == part


def _meant(pattern: _Parts, given: _Parts) -> dict[str, str]:
    pairs = zip(pattern, given, strict=True)
    return {name[1:-1]: plain(part) for name, part in pairs if name.startswith("{")}


def _allow(methods: Mapping[str, Any]) -> str:
    return ", ".join(sorted(set(methods) | ({"HEAD"} if "GET" in methods else set())))
