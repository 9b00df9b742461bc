"""The JSON schemas of payload types, for programs that do not have the types."""

import json
from functools import lru_cache
from typing import Any, Final

from toril.codec.payload import checkable
from toril.model import MAX_SCHEMA

__all__ = ["schema_of"]

_KNOWN: Final = 256


def schema_of(annotation: object) -> dict[str, Any] | None:
    """The JSON schema of the values of a type, as they are sent; None if it has none, or a very large one."""
    try:
        return _known(annotation)
    except TypeError:  # the type cannot be hashed
        return _made(annotation)


def _made(annotation: object) -> dict[str, Any] | None:
    # pydantic takes a while to import, and few queues declare signals.
    from pydantic import TypeAdapter  # noqa: PLC0415
    from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError  # noqa: PLC0415

    try:
        found = TypeAdapter(checkable(annotation)).json_schema(mode="validation")
    except (PydanticUserError, PydanticUndefinedAnnotation):
        return None
    return found if len(json.dumps(found, separators=(",", ":"))) <= MAX_SCHEMA else None


_known = lru_cache(_KNOWN)(_made)
