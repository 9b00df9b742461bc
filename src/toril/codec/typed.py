"""Annotations in a form that pydantic takes. Before Python 3.12 it refuses the standard library's typed dicts."""

import sys
import types
from collections.abc import Hashable, Iterator
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

__all__ = ["checkable", "is_plain"]

_PLAIN = {dict, list, str, int, float, bool, type(None), None, Any, object}


def is_plain(annotation: Any) -> bool:
    """Whether values of this type are JSON as they stand, like `dict[str, Any]`: nothing is to be converted."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in {Union, types.UnionType, list}:
        return all(is_plain(argument) for argument in arguments)
    if origin is dict:
        return arguments[0] is str and is_plain(arguments[1])
    return isinstance(annotation, Hashable) and annotation in _PLAIN


def checkable(annotation: Any) -> Any:
    """The same type, with every typed dict in it made anew as one that can be checked."""
    return annotation if sys.version_info >= (3, 12) else _rebuilt(annotation, frozenset())


def _rebuilt(annotation: Any, outer: frozenset[Any]) -> Any:
    if is_typeddict(annotation) and annotation not in outer:
        return _typed_dict(annotation, outer | {annotation})
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is None or origin is Literal:
        return annotation
    if origin is Annotated:
        return Annotated[(_rebuilt(arguments[0], outer), *arguments[1:])]
    new = tuple(_rebuilt(argument, outer) for argument in arguments)
    if new == arguments:
        return annotation
    return Union[new] if origin in {Union, types.UnionType} else origin[new]  # noqa: UP007 - made of a tuple


def _typed_dict(annotation: Any, outer: frozenset[Any]) -> Any:
    from typing_extensions import TypedDict  # noqa: PLC0415 - pydantic brings it, and is only now needed

    return TypedDict(annotation.__name__, dict(_fields(annotation, outer)))  # type: ignore[operator]


def _fields(annotation: Any, outer: frozenset[Any]) -> Iterator[tuple[str, Any]]:
    for name, hint in get_type_hints(annotation, include_extras=True).items():
        said = get_origin(hint)
        needed = said is Required or (said is not NotRequired and name in annotation.__required_keys__)
        kind = _rebuilt(get_args(hint)[0] if said in {Required, NotRequired} else hint, outer)
        yield name, Required[kind] if needed else NotRequired[kind]
