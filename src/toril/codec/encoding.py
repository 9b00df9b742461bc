"""JSON encoding of payloads and results. A value that would not come back equal is refused."""

import base64
import json.encoder
import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from types import CoroutineType
from typing import Any, Final, Protocol

from toril.errors import NotSerializable, PayloadTooLarge, Undecodable, UsageError, preview

__all__ = [
    "MAX_DEPTH",
    "MAX_PAYLOAD",
    "JsonValue",
    "Serializer",
    "Undecodable",
    "decode",
    "encode",
    "metadata_of",
    "readable",
    "unwrap",
    "wrap",
]

MAX_PAYLOAD: Final = 1024 * 1024
MAX_DEPTH: Final = 100  # Lua's JSON reader and Python's stack end at about 1,000
MAX_DIGITS: Final = 4_300  # Python refuses to read longer numbers back

JsonValue = None | bool | int | float | str | list[Any] | dict[str, Any]

_BYTES_KEY: Final = "$bytes"
_TOO_LONG: Final = 10**MAX_DIGITS
_OBJECTS: Final = frozenset({dict, OrderedDict, defaultdict})
_CONTAINERS: Final = _OBJECTS | {list, tuple}
_SMALL: Final = frozenset({float, bool, type(None)})
_PATH: Final = 80  # characters of a path in a message


class Serializer(Protocol):
    """A queue's own way of turning payloads into bytes and back."""

    def dumps(self, value: Any) -> bytes: ...

    def loads(self, data: bytes) -> Any: ...


def encode(value: object, *, what: str = "data", limit: int = MAX_PAYLOAD) -> str:
    """`value` as JSON text. Raises `NotSerializable` for what JSON cannot represent exactly: NaN, bytes, dates, keys
    that are not strings, cycles."""
    room = _room_left(value, limit, 1) if type(value) in _CONTAINERS else _room_left((value,), limit + 2, 0)
    if room < 0:
        raise _refusal(value, what, limit)
    try:
        text = _dumps(value)
        size = len(text) if text.isascii() else len(text.encode())
    except ValueError:  # NaN, infinity, or a lone surrogate
        raise _refusal(value, what, limit) from None
    if size > limit:
        raise PayloadTooLarge(_too_large(what, str(size), limit))
    return text


def decode(text: str | bytes, *, what: str = "data", limit: int = MAX_PAYLOAD) -> Any:
    """The value of stored JSON text. Raises `Undecodable` for anything else."""
    if len(text) > limit:
        raise Undecodable(f"{what} is too large: {len(text)} characters; the limit is {limit}")
    try:
        return _loads(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"{what} is not JSON: {error}") from None


def readable(text: str) -> Any:
    """The value of stored JSON text, or the text itself if it is not JSON."""
    try:
        return decode(text)
    except Undecodable:
        return text


def metadata_of(text: str | None) -> Mapping[str, Any]:
    """The metadata in stored text; empty if it is not a JSON object."""
    value = {} if text is None else readable(text)
    return value if isinstance(value, dict) else {}


def wrap(data: bytes, *, what: str = "data", limit: int = MAX_PAYLOAD) -> str:
    """Any bytes as JSON text, which every store and every reader leaves intact."""
    if not isinstance(data, bytes | bytearray):
        raise NotSerializable(f"a serializer's dumps must return bytes; for {what} it returned {preview(data)}")
    if len(data) > limit:
        raise PayloadTooLarge(_too_large(what, str(len(data)), limit))
    return _dumps({_BYTES_KEY: base64.b64encode(data).decode()})


def unwrap(text: str | bytes, *, what: str = "data", limit: int = MAX_PAYLOAD) -> bytes | JsonValue:
    """The bytes given to `wrap`, or the value of plain JSON, as another producer may have written it."""
    # Base64 makes four characters of three bytes, and a Node producer may have put spaces around them.
    value: JsonValue = decode(text, what=what, limit=limit // 3 * 4 + 100)
    if isinstance(value, dict) and value.keys() == {_BYTES_KEY} and isinstance(value[_BYTES_KEY], str):
        try:
            return base64.b64decode(value[_BYTES_KEY], validate=True)
        except ValueError as error:
            raise Undecodable(f"{what} is not base64: {error}") from None
    return value


def _room_left(value: Any, room: int, depth: int) -> int:
    """How much of `room` bytes is left, at most, after this container is encoded. Negative: look closer. Every payload
    passes through here, so it only finds out whether something is wrong, not what."""
    if depth > MAX_DEPTH:
        return -1
    room -= 2
    if type(value) in _OBJECTS:
        for key in value:
            if type(key) is not str:
                return -1
            room -= len(key) + 3
        value = value.values()
    for item in value:
        kind = type(item)
        if kind is str:
            room -= len(item) + 2
        elif kind is int:
            if not -_TOO_LONG < item < _TOO_LONG:
                return -1
            room -= 1
        elif kind in _SMALL:
            room -= 1
        elif kind in _CONTAINERS:
            room = _room_left(item, room, depth + 1)
            if room < 0:
                return -1
        else:
            return -1
    return room


def _refusal(value: object, what: str, limit: int) -> UsageError:
    """Walk again, slowly, and say what is wrong first."""
    try:
        _Search(what, limit).look(value, what, 1)
    except UsageError as error:
        return error
    return NotSerializable(f"{what} was changed while it was being encoded")


class _Search:
    """Finds the value that cannot be encoded, and the path to it."""

    __slots__ = ("_limit", "_open", "_room", "_what")

    def __init__(self, what: str, limit: int) -> None:
        self._what = what
        self._limit = limit
        self._room = limit
        self._open: set[int] = set()

    def look(self, value: Any, path: str, depth: int) -> None:
        kind = type(value)
        if kind is str:
            self._text(value, path)
        elif kind in _CONTAINERS:
            self._inside(value, path, depth)
        elif kind is int:
            self._spend(1)
            if not -_TOO_LONG < value < _TOO_LONG:
                raise NotSerializable(
                    f"{_short(path)} is a number of more than {MAX_DIGITS} digits; send it as a string"
                )
        elif kind in _SMALL:
            self._spend(1)
            if kind is float and not math.isfinite(value):
                raise NotSerializable(
                    f"{_short(path)} is {value}, which JSON cannot represent; send None or a string instead"
                )
        else:
            raise NotSerializable(_why_not(value, path))

    def _inside(self, value: Any, path: str, depth: int) -> None:
        if id(value) in self._open:
            raise NotSerializable(f"{_short(path)} contains itself, which JSON cannot represent")
        if depth > MAX_DEPTH:
            raise NotSerializable(f"{_short(path)} is nested more than {MAX_DEPTH} levels deep")
        self._open.add(id(value))
        self._spend(2)
        for item_path, item in self._items(value, path):
            self.look(item, item_path, depth + 1)
        self._open.discard(id(value))

    def _items(self, value: Any, path: str) -> Iterator[tuple[str, object]]:
        if type(value) in _OBJECTS:
            for key, item in value.items():
                if type(key) is not str:
                    raise NotSerializable(
                        f"{_short(path)} has the key {preview(key)}; in JSON, keys must be plain strings"
                    )
                self._text(key, f"a key of {path}")
                self._spend(1)
                yield f"{path}.{key}" if key.isidentifier() else f"{path}[{preview(key)}]", item
        else:
            for index, item in enumerate(value):
                yield f"{path}[{index}]", item

    def _text(self, text: str, path: str) -> None:
        self._spend(len(text) + 2)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotSerializable(f"{_short(path)} contains a lone surrogate, which UTF-8 cannot represent") from None

    def _spend(self, size: int) -> None:
        # An estimate from below, so that nothing that fits is refused.
        self._room -= size
        if self._room < 0:
            raise PayloadTooLarge(_too_large(self._what, f"at least {self._limit - self._room}", self._limit))


def _why_not(value: object, path: str) -> str:
    if type(value) is CoroutineType:
        value.close()  # nobody will await it; it would warn later, far from the cause
        return f"{_short(path)} is a coroutine; await it first"
    kind = type(value)
    plain = next((base.__name__ for base in (dict, list, tuple, str, int, float) if issubclass(kind, base)), None)
    if plain is not None:
        return f"{_short(path)} is a {kind.__name__}, which would come back as a plain {plain}; send a plain {plain}"
    return (
        f"{_short(path)} is of type {kind.__name__}, which JSON cannot represent; convert it, "
        "or give the queue a serializer="
    )


def _too_large(what: str, size: str, limit: int) -> str:
    return f"{what} has {size} bytes; the limit is {limit}. Store large data elsewhere and pass a reference to it"


def _short(path: str) -> str:
    return path if len(path) <= _PATH else f"{path[: _PATH // 2]}…{path[1 - _PATH // 2 :]}"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


def _encoder() -> Callable[[object], str]:
    settings = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return settings.encode
    # `settings.encode` would create this for every payload, which takes longer than encoding a small one.
    encode_text = json.encoder.encode_basestring
    chunks = make(None, settings.default, encode_text, None, ":", ",", False, False, False)  # noqa: FBT003
    return lambda value: "".join(chunks(value, 0))


_dumps: Final = _encoder()
_loads: Final = json.JSONDecoder(parse_constant=_refuse_constant).decode
