"""Payloads and results as text. What goes out comes back equal, or is refused before anything is sent."""

import base64
import json
import math
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from toril.errors import NotSerializable, PayloadTooLarge, shown

__all__ = ["MAX_DEPTH", "MAX_PAYLOAD", "JsonValue", "Serializer", "Undecodable", "decode", "encode", "unwrap", "wrap"]

MAX_PAYLOAD: Final = 1024 * 1024
MAX_DEPTH: Final = 100  # Lua's JSON reader stops at 1,000, and so does Python's stack
MAX_DIGITS: Final = 4_300  # more, and Python itself refuses to read the number back

JsonValue = None | bool | int | float | str | list[Any] | dict[str, Any]

_BYTES_KEY: Final = "$bytes"


class Undecodable(Exception):
    """Stored text that is not what it should be. The job fails with this as its reason; it never loops."""


class Serializer(Protocol):
    """A queue's own way of turning payloads into bytes and back."""

    def dumps(self, value: Any) -> bytes: ...

    def loads(self, data: bytes) -> Any: ...


def encode(value: object, *, what: str = "data", limit: int = MAX_PAYLOAD) -> str:
    """`value` as JSON text. Refuses what JSON would bend: NaN, bytes, dates, non-string keys, cycles."""
    _Check(what, limit).value(value, what, 1)
    text = _dumps(value)
    if not text.isascii():
        _check_utf8(text, what)
    if len(text) * 4 > limit and len(text.encode()) > limit:
        raise PayloadTooLarge(_too_large(what, len(text.encode()), limit))
    return text


def decode(text: str, *, what: str = "data", limit: int = MAX_PAYLOAD) -> Any:
    """The value of stored JSON text; `Undecodable` for anything else."""
    if len(text) > limit:
        raise Undecodable(f"{what} is too large: {len(text)} characters, and the limit is {limit}")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"{what} is not JSON: {error}") from None


def wrap(data: bytes, *, what: str = "data", limit: int = MAX_PAYLOAD) -> str:
    """Any bytes as JSON text, so that they pass every store and every reader unharmed."""
    if len(data) > limit:
        raise PayloadTooLarge(_too_large(what, len(data), limit))
    return json.dumps({_BYTES_KEY: base64.b64encode(data).decode()})


def unwrap(text: str, *, what: str = "data", limit: int = MAX_PAYLOAD) -> bytes | JsonValue:
    """The bytes that `wrap` was given; or the value of plain JSON, as another producer may have written it."""
    value: JsonValue = decode(text, what=what, limit=limit * 2)
    if isinstance(value, dict) and value.keys() == {_BYTES_KEY} and isinstance(value[_BYTES_KEY], str):
        try:
            return base64.b64decode(value[_BYTES_KEY], validate=True)
        except ValueError as error:
            raise Undecodable(f"{what} is not base64: {error}") from None
    return value


_dumps: Final[Callable[[object], str]] = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode


class _Check:
    """Walks a value once before it is encoded: types, depth, and a lower bound of the size."""

    __slots__ = ("_limit", "_open", "_size", "_what")

    def __init__(self, what: str, limit: int) -> None:
        self._what = what
        self._limit = limit
        self._size = 0
        self._open: set[int] = set()

    def value(self, value: object, path: str, depth: int) -> None:
        kind = type(value)
        if kind is str:
            self._grow(len(value))  # type: ignore[arg-type]
        elif value is None or kind is bool:
            self._size += 4
        elif kind is int:
            self._int(value, path)  # type: ignore[arg-type]
        elif kind is float:
            if not math.isfinite(value):  # type: ignore[arg-type]
                raise NotSerializable(f"{path} is {value}, which JSON cannot carry; send None or a string instead")
            self._size += 3
        elif kind is dict or kind is list or kind is tuple:
            self._container(value, path, depth)
        else:
            raise NotSerializable(_why_not(value, path))

    def _int(self, value: int, path: str) -> None:
        if value.bit_length() > 14_000:  # about 4,214 digits: surely readable below this
            raise NotSerializable(f"{path} has more than {MAX_DIGITS - 100} digits; send it as a string")
        self._size += 1

    def _container(self, value: Any, path: str, depth: int) -> None:
        if id(value) in self._open:
            raise NotSerializable(f"{path} contains itself")
        if depth > MAX_DEPTH:
            raise NotSerializable(f"{path} is nested more than {MAX_DEPTH} deep")
        self._open.add(id(value))
        for name, item in self._items(value, path):
            self.value(item, name, depth + 1)
        self._open.discard(id(value))

    def _items(self, value: Any, path: str) -> Iterator[tuple[str, object]]:
        if isinstance(value, dict):
            for key, item in value.items():
                if type(key) is not str:
                    raise NotSerializable(f"{path} has the key {shown(key)}; JSON has string keys only")
                self._grow(len(key))
                yield f"{path}.{key}", item
        else:
            for index, item in enumerate(value):
                yield f"{path}[{index}]", item

    def _grow(self, length: int) -> None:
        # Characters are never more than bytes, so this refuses only what is too large, before a copy is made.
        self._size += length + 3
        if self._size > self._limit + 3:
            raise PayloadTooLarge(_too_large(self._what, self._size, self._limit))


def _why_not(value: object, path: str) -> str:
    if hasattr(value, "cr_await") and hasattr(value, "close"):
        value.close()  # a coroutine that nobody will await would warn later, far from the cause
    kind = type(value).__name__
    return f"{path} is of type {kind}, which JSON cannot carry; convert it, or give the queue a serializer="


def _too_large(what: str, size: int, limit: int) -> str:
    return (
        f"{what} has at least {size} bytes and the limit is {limit}; keep large things elsewhere and send their address"
    )


def _check_utf8(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotSerializable(f"{what} has a lone surrogate, which UTF-8 cannot carry") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
