"""The OpenAPI 3.1 document of the API, made from its endpoints."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toril.web.routing import Endpoint, Form

__all__ = ["DOCUMENT", "document"]

DOCUMENT: Final = "/openapi.json"
_NAMES: Final = re.compile(r"\{(\w+)\}")
_PROBLEMS: Final = {
    "400": "malformed request",
    "401": "missing or invalid credentials",
    "403": "not allowed",
    "404": "not found",
    "405": "method not allowed",
    "409": "not possible in the current state",
    "408": "the body did not arrive in time",
    "413": "the body is too large",
    "414": "the URL is too long",
    "415": "the body is not JSON",
    "421": "unknown host",
    "422": "a field is invalid; the error names it",
    "429": "too many requests, or the queue is full",
    "503": "the store is unreachable or unusable",
}


def document(endpoints: Sequence[Endpoint], base: str) -> dict[str, Any]:
    """The document of the whole API."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Toril",
            "version": "1",
            "description": "Inspect and operate queues and jobs.",
        },
        "servers": [{"url": base}],
        "paths": paths,
        "components": {"schemas": {"Problem": _PROBLEM}},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": endpoint.run.__name__.strip("_"),
        "summary": endpoint.does,
        "description": f"Requires the {endpoint.role.name.lower()} role.",
        "parameters": [*(_part(name) for name in _NAMES.findall(endpoint.path)), *_parameters(endpoint.query)],
        "responses": {
            str(endpoint.status): {"description": "success", "content": _done(endpoint.media)},
            **{status: _problem(text) for status, text in _PROBLEMS.items()},
        },
    }
    if endpoint.body is not None:
        found["requestBody"] = {"content": _content(_schema(endpoint.body)), "required": _required(endpoint.body)}
    return found


def _part(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _parameters(form: type[Form] | None) -> list[dict[str, Any]]:
    if form is None:
        return []
    schema = _schema(form)
    needed = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": rule}
        for name, rule in schema.get("properties", {}).items()
    ]


def _schema(form: type[Form]) -> dict[str, Any]:
    """A form's schema with everything that it refers to inlined, because parameters have to be self-contained."""
    schema = form.model_json_schema()
    return dict(_inlined(schema, schema.pop("$defs", {})))


def _inlined(value: Any, known: Mapping[str, Any]) -> Any:
    match value:
        case {"$ref": str(name)}:
            return _inlined(known[name.rpartition("/")[2]], known)
        case dict():
            return {key: _inlined(part, known) for key, part in value.items()}
        case list():
            return [_inlined(part, known) for part in value]
        case _:
            return value


def _required(form: type[Form]) -> bool:
    return any(field.is_required() for field in form.model_fields.values())


def _done(media: str) -> dict[str, Any]:
    return _content({"type": "object"}) if media == "application/json" else {media: {"schema": {"type": "string"}}}


def _content(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _problem(text: str) -> dict[str, Any]:
    return {"description": text, "content": _content({"$ref": "#/components/schemas/Problem"})}


_PROBLEM: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "field", "incident"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "field": {"type": ["string", "null"]},
                "incident": {"type": ["string", "null"]},
            },
        }
    },
}
