"""Typed payloads, validated by pydantic."""

import contextlib
import sys
import types
from collections.abc import Callable, Hashable, Iterator
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Protocol,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from toril.codec.encoding import MAX_PAYLOAD, Serializer, Undecodable, decode, encode, unwrap, wrap
from toril.errors import InvalidPayload, NotSerializable, preview
from toril.model.attempts import Result

__all__ = ["Payload", "checkable", "is_plain", "payload_for", "result_for"]

_PLAIN = {dict, list, str, int, float, bool, type(None), None, Any, object}


def is_plain(annotation: Any) -> bool:
    """Whether values of this type are JSON as they are, like `dict[str, Any]`, with nothing to convert."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in {Union, types.UnionType, list}:
        return all(is_plain(argument) for argument in arguments)
    if origin is dict:
        return arguments[0] is str and is_plain(arguments[1])
    return isinstance(annotation, Hashable) and annotation in _PLAIN


def checkable(annotation: Any) -> Any:
    """The same type, with every typed dict in it replaced by one that pydantic can validate."""
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


class Payload(Protocol):
    """Turns values into text for the store, and back."""

    def encode(self, value: Any) -> str:
        """The text of a valid value. Raises `InvalidPayload`, which names the invalid field."""

    def decode(self, text: str) -> Any:
        """The value. Raises `Undecodable` or `InvalidPayload` if the text is not one."""

    def prepare(self) -> None:
        """Build the validators now, so that the first value does not have to wait for them."""


def payload_for(annotation: object, *, what: str = "data", serializer: Serializer | None = None) -> Payload:
    """How to encode values of this type. Without an annotation, or with `Any`: anything that JSON can represent."""
    if serializer is not None:
        return _Serialized(serializer, what)
    if annotation is Any or annotation is object:
        return _Plain(what)
    return _Typed(annotation, what)


def result_for(annotation: object, *, serializer: Serializer | None = None) -> Payload:
    """How to encode what a handler returns: the same, and a `Result` whatever the annotation is."""
    return _Returned(payload_for(annotation, what="the result", serializer=serializer), serializer)


class _Plain:
    """Any JSON value."""

    def __init__(self, what: str) -> None:
        self._what = what

    def encode(self, value: Any) -> str:
        return encode(value, what=self._what)

    def decode(self, text: str) -> Any:
        return decode(text, what=self._what)

    def prepare(self) -> None:
        """There is nothing to prepare."""


class _Serialized:
    """Values that the queue's own serializer encodes."""

    def __init__(self, serializer: Serializer, what: str) -> None:
        self._serializer = serializer
        self._what = what

    def encode(self, value: Any) -> str:
        try:
            data = self._serializer.dumps(value)
        except Exception as error:
            name = type(self._serializer).__name__
            raise NotSerializable(f"{name} cannot serialize {self._what}: {error}") from error
        return wrap(data, what=self._what)

    def decode(self, text: str) -> Any:
        data = unwrap(text, what=self._what)
        if not isinstance(data, bytes):
            return data  # plain JSON, from a producer that does not know the serializer
        try:
            return self._serializer.loads(data)
        except Exception as error:
            raise Undecodable(f"{type(self._serializer).__name__} cannot deserialize {self._what}: {error}") from error

    def prepare(self) -> None:
        """There is nothing to prepare."""


class _Returned:
    """A handler's results."""

    def __init__(self, declared: Payload, serializer: Serializer | None) -> None:
        self._declared = declared
        self._structured = payload_for(Result, what="the result", serializer=serializer)

    def prepare(self) -> None:
        self._declared.prepare()

    def encode(self, value: Any) -> str:
        return (self._structured if isinstance(value, Result) else self._declared).encode(value)

    def decode(self, text: str) -> Any:
        if text == "null":
            return None  # the handler returned nothing, or its result could not be kept
        try:
            return self._declared.decode(text)
        except InvalidPayload:
            found = decode(text, what="the result")
            if isinstance(found, dict) and found.keys() == {"skipped", "reason"}:
                return found  # `only_if` skipped the handler, so there is no value of its type
            raise


class _Typed:
    """Values of a declared type: pydantic models, dataclasses, typed dicts, and everything else that pydantic
    supports."""

    def __init__(self, annotation: object, what: str) -> None:
        self._annotation = annotation
        self._plain = is_plain(annotation)
        self._what = what
        self._adapter: Any = None

    def encode(self, value: Any) -> str:
        adapter = self._adapter or self._make()
        with _naming(self._what):
            known = adapter.validate_python(value)
        text = encode(known if self._plain else self._dumped(adapter, known), what=self._what)
        # What is made is read back: a dataclass made of the wrong things, or a model that does not read its own
        # words, is refused here and not by the worker.
        with _naming(self._what):
            adapter.validate_json(text)
        return text

    def decode(self, text: str) -> Any:
        adapter = self._adapter or self._make()
        if len(text) > MAX_PAYLOAD:
            decode(text, what=self._what)  # raises, with the sizes
        try:
            return adapter.validate_json(text)
        except Exception as error:
            with _naming(self._what):
                raise error from None

    def prepare(self) -> None:
        with contextlib.suppress(Exception):  # jobs of a type that cannot be checked fail with that error
            self._adapter = self._adapter or self._make()

    def _dumped(self, adapter: Any, known: Any) -> Any:
        try:
            return adapter.dump_python(known, mode="json", by_alias=True, warnings=False)
        except Exception as error:  # from pydantic, or from a serializer of the type itself
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise NotSerializable(f"{self._what} cannot be serialized to JSON: {reason}") from error

    def _make(self) -> Any:
        # pydantic takes a while to import, and a queue of plain JSON does not need it.
        from pydantic import TypeAdapter  # noqa: PLC0415
        from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError  # noqa: PLC0415

        try:
            self._adapter = TypeAdapter(checkable(self._annotation))
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            reason = str(error).splitlines()[0]
            raise InvalidPayload(
                f"{self._what} cannot be validated against {preview(self._annotation)}: {reason}"
            ) from None
        return self._adapter


class _naming:  # noqa: N801 - reads as a verb where it is used
    """Turns pydantic's report into one sentence that names the field. What is not even JSON is `Undecodable`."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        errors: Callable[..., list[Any]] | None = getattr(error, "errors", None)
        if errors is None or kind is None or kind.__name__ != "ValidationError":
            return
        found = errors(include_url=False)
        first = found[0]
        if first["type"] == "json_invalid":
            raise Undecodable(f"{self._what} is not JSON: {first['ctx']['error']}") from None
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        problem = first["msg"][:1].lower() + first["msg"][1:]
        raise InvalidPayload(f"{self._what}{path}: {problem}, not {preview(first['input'])}{more}") from None
