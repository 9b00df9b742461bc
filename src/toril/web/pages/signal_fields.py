"""The fields of the form for a signal, made from the JSON schema of its type, and what was typed into them."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, Literal, TypeAlias

from toril.web.messages import Problem, parsed

__all__ = ["FIELD", "Filled", "SignalField", "filled", "shown_values", "signal_fields"]

FIELD: Final = "data:"  # what the names of form fields begin with
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,400}")
_MOST_REFS: Final = 10

Schema: TypeAlias = Mapping[str, Any]
Simple: TypeAlias = Literal["text", "int", "float", "bool", "choice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalField:
    """One field. `path` is its place in the payload, empty if it is the whole of it. A `list` has an item on each line,
    each of the kind `item`; `json` is anything else. `choices` are JSON texts."""

    path: tuple[str, ...]
    kind: Simple | Literal["list", "json"]
    label: str
    group: str = ""
    item: Simple = "text"
    choices: tuple[str, ...] = ()
    required: bool = True
    nullable: bool = False
    default: str = ""
    hint: str = ""
    schema: Schema

    @property
    def name(self) -> str:
        return FIELD + ".".join(self.path)

    @property
    def left_out(self) -> bool:
        """Whether it may be left empty."""
        return self.nullable or not (self.required or self.default)


def signal_fields(schema: Schema | None) -> tuple[SignalField, ...]:
    """The fields for values of a schema: one for each property, and for those of objects within it. Without a schema,
    there is one field for JSON."""
    if schema is None:
        return (SignalField(path=(), kind="json", label="Payload", default="true", schema={}),)
    whole = _resolved(schema, schema)
    if not _has_fields(whole):
        return (_field((), whole, schema, label="Payload", required=True),)
    return tuple(_of_object((), whole, schema))


def _of_object(path: tuple[str, ...], found: Schema, root: Schema, group: str = "") -> Iterator[SignalField]:
    needed = found.get("required", ())
    for name, part in found["properties"].items():
        inner, required = _resolved(part, root), name in needed
        if not path and required and _has_fields(inner):
            yield from _of_object((name,), inner, root, group=_label(name))
        else:
            yield _field((*path, name), inner, root, label=_label(name), required=required, group=group)


def _has_fields(found: Schema) -> bool:
    return found.get("type") == "object" and bool(found.get("properties")) and not found.get("additionalProperties")


def _label(name: str) -> str:
    text = name.replace("_", " ").strip() or name
    return text[:1].upper() + text[1:]


def _field(
    path: tuple[str, ...], found: Schema, root: Schema, *, label: str, required: bool, group: str = ""
) -> SignalField:
    inner, nullable = _without_null(found, root)
    kind: Simple | Literal["list", "json"] = "json"
    item: Simple = "text"
    choices: tuple[str, ...] = ()
    if (simple := _simple(inner)) is not None:
        kind, choices = simple
    elif inner.get("type") == "array" and isinstance(inner.get("items"), dict) and "prefixItems" not in inner:
        of = _simple(_resolved(inner["items"], root))
        if of is not None and of[0] != "bool":
            kind, (item, choices) = "list", of
    return SignalField(
        path=path, kind=kind, item=item, choices=choices, label=label, group=group, required=required,
        nullable=nullable, default=_typed(found.get("default"), kind, item), schema=inner,
        hint=str(found.get("description") or inner.get("description") or "") if path else "",
    )  # fmt: skip


def _resolved(part: Any, root: Schema) -> Schema:
    """A part of the schema without references, as far as there are few of them."""
    found: dict[str, Any] = part if isinstance(part, dict) else {}
    for _ in range(_MOST_REFS):
        if isinstance(found.get("allOf"), list) and len(found["allOf"]) == 1:
            found = {**found["allOf"][0], **{name: part for name, part in found.items() if name != "allOf"}}
        ref = found.get("$ref")
        if not isinstance(ref, str):
            return found
        known = root.get("$defs", {}).get(ref.removeprefix("#/$defs/"))
        if known is None:
            return {}
        found = {**known, **{name: part for name, part in found.items() if name != "$ref"}}
    return {}


def _without_null(found: Schema, root: Schema) -> tuple[Schema, bool]:
    """What `X | None` is besides None, and whether it may be None."""
    if found.get("type") == "null":
        return {"const": None}, False
    options = found.get("anyOf")
    if not isinstance(options, list):
        return found, False
    others = [inner for each in options if (inner := _resolved(each, root)).get("type") != "null"]
    nullable = len(others) < len(options)
    if len(others) == 1:
        return others[0], nullable
    if {each.get("type") for each in others} == {"integer", "number"}:
        return {"type": "number"}, nullable
    return found, nullable


_SIMPLE: Final[Mapping[str, Simple]] = {"string": "text", "integer": "int", "number": "float", "boolean": "bool"}


def _simple(found: Schema) -> tuple[Simple, tuple[str, ...]] | None:
    if "const" in found:
        return "choice", (_json(found["const"]),)
    options = found.get("enum")
    if isinstance(options, list) and options:
        return "choice", tuple(_json(each) for each in options)
    kind = _SIMPLE.get(str(found.get("type")))
    return None if kind is None else (kind, ())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _typed(default: Any, kind: str, item: str) -> str:
    """A default as one would type it."""
    match default:
        case None:
            return ""
        case list() if kind == "list":
            return "\n".join(_typed(each, item, "") for each in default)
        case str() if kind == "text":
            return default
        case _:
            return _json(default)


# What was typed


@dataclass(frozen=True, slots=True)
class Filled:
    """The payload, and what is wrong with which field, by its name."""

    data: Any
    wrong: Mapping[str, str]


class _WrongEntryError(ValueError):
    """What is wrong, in words for the one who typed it."""


def filled(fields: Sequence[SignalField], form: Mapping[str, str]) -> Filled:
    """The payload that was typed into these fields. What is empty is left out if it may be."""
    data: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for field in fields:
        typed = form.get(field.name, "").replace("\r\n", "\n")
        try:
            value = _value(field, typed) if typed.strip() else _empty(field)
        except _WrongEntryError as error:
            wrong[field.name] = str(error)
            continue
        if not field.path:
            return Filled(None if value is _LEFT_OUT else value, wrong)
        if value is not _LEFT_OUT:
            at = data
            for part in field.path[:-1]:
                at = at.setdefault(part, {})
            at[field.path[-1]] = value
    return Filled(data, wrong)


_LEFT_OUT: Final = object()


def _empty(field: SignalField) -> Any:
    """What an empty field says. What was emptied by hand does not get its default back."""
    if not field.required and not field.default:
        return _LEFT_OUT
    if field.kind == "list":
        return []
    if field.nullable:
        return None
    if not field.required:
        return "" if field.kind == "text" else _LEFT_OUT
    raise _WrongEntryError("Choose one." if field.kind in ("bool", "choice") else "Enter a value.")


def shown_values(fields: Sequence[SignalField], form: Mapping[str, str] | None) -> dict[str, str]:
    """What stands in the fields: what was typed or, at first, the defaults."""
    return {field.name: field.default if form is None else form.get(field.name, "") for field in fields}


def _value(field: SignalField, typed: str) -> Any:
    if field.kind == "json":
        try:
            return parsed(typed.encode("utf-8", "surrogatepass"))
        except Problem as problem:
            raise _WrongEntryError(problem.message.replace("the body", "This", 1) + ".") from None
    if field.kind != "list":
        return _simple_value(field.kind, field.choices, field.schema, typed)
    found = []
    for number, line in enumerate(typed.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found.append(_simple_value(field.item, field.choices, {}, line.strip(), listed=True))
        except _WrongEntryError as error:
            raise _WrongEntryError(f"Line {number}: {error}") from None
    return found


def _simple_value(kind: str, choices: Sequence[str], schema: Schema, typed: str, *, listed: bool = False) -> Any:
    match kind:
        case "int":
            if not _WHOLE.fullmatch(typed.strip()):
                raise _WrongEntryError("Enter a whole number.")
            return _within(int(typed), schema)
        case "float":
            try:
                found = float(typed)
            except ValueError:
                found = math.nan
            if not math.isfinite(found):
                raise _WrongEntryError("Enter a number.")
            return _within(found, schema)
        case "bool":
            if typed not in ("true", "false"):
                raise _WrongEntryError("Choose one.")
            return typed == "true"
        case "choice":
            chosen = [each for each in choices if typed in (each, str(json.loads(each)) if listed else each)]
            if not chosen:
                raise _WrongEntryError(f"Choose one of {', '.join(str(json.loads(each)) for each in choices)}.")
            return json.loads(chosen[0])
        case _:
            return _text(typed, schema)


def _within(value: float, schema: Schema) -> float:
    limits: tuple[tuple[str, Callable[[float], bool], str], ...] = (
        ("minimum", lambda limit: value >= limit, "at least"),
        ("maximum", lambda limit: value <= limit, "at most"),
        ("exclusiveMinimum", lambda limit: value > limit, "more than"),
        ("exclusiveMaximum", lambda limit: value < limit, "less than"),
    )
    for name, fits, words in limits:
        if name in schema and not fits(schema[name]):
            raise _WrongEntryError(f"Enter a number of {words} {schema[name]:g}.")
    return value


def _uuid(typed: str) -> None:
    if not re.fullmatch("[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}", typed):
        raise ValueError(typed)


_FORMATS: Final[Mapping[str, tuple[Callable[[str], object], str]]] = {
    "date": (date.fromisoformat, "Enter a date like 2026-05-01."),
    "date-time": (datetime.fromisoformat, "Enter a time like 2026-05-01T12:00:00Z."),
    "uuid": (_uuid, "Enter a UUID."),
}


def _text(typed: str, schema: Schema) -> str:
    if len(typed) < schema.get("minLength", 0):
        raise _WrongEntryError(f"Enter at least {schema['minLength']} characters.")
    if len(typed) > schema.get("maxLength", len(typed)):
        raise _WrongEntryError(f"Enter at most {schema['maxLength']} characters.")
    parse, words = _FORMATS.get(str(schema.get("format")), (str, ""))
    try:
        parse(typed)
    except ValueError:
        raise _WrongEntryError(words) from None
    return typed
