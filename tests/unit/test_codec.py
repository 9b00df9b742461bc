"""Payloads and results as text: rows B19 to B33 of the bad-input catalogue."""

import dataclasses
import gzip
import inspect
import json
import sys
import tracemalloc
import uuid
from collections import Counter, OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toril.codec.encoding import MAX_DEPTH, MAX_PAYLOAD, Undecodable, decode, encode, unwrap, wrap
from toril.errors import NotSerializable, PayloadTooLarge, TorilError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


class Colour(Enum):
    RED = "red"


class Word(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Order:
    number: int


def refusal(value: object, **options: Any) -> str:
    with pytest.raises(NotSerializable) as caught:
        encode(value, **options)
    assert str(caught.value).isprintable()
    return str(caught.value)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@settings(deadline=None)
@given(JSON)
@example({"a": [1, 1.0, True, None, -0.0, "\x00\u2028😀"], "": {}})
def test_any_json_value_comes_back_equal_and_of_the_same_types(value: object) -> None:
    assert repr(decode(encode(value))) == repr(value)


@pytest.mark.covers("B29")
@pytest.mark.parametrize("value", [None, 0, "", [], {}, False, [[]], [{}], {"a": []}], ids=repr)
def test_empty_values_come_back_as_they_were(value: object) -> None:
    assert repr(decode(encode(value))) == repr(value)


@pytest.mark.covers("B19")
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_numbers_that_json_does_not_have_are_refused(number: float) -> None:
    assert refusal(number) == f"data is {number}, which JSON cannot represent; send None or a string instead"
    assert refusal({"a": [1.5, {"b": number}]}).startswith(f"data.a[1].b is {number}, ")


@pytest.mark.covers("B20")
@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**64, 10**4300 - 1, 1 - 10**4300], ids=lambda n: n % 97)
def test_large_whole_numbers_come_back_exactly(number: int) -> None:
    assert decode(encode([number])) == [number]


@pytest.fixture
def _no_digit_limit() -> Iterator[None]:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.covers("B21")
@pytest.mark.parametrize("number", [10**5000, -(10**5000), 10**4300], ids=["5001", "-5001", "4301"])
def test_numbers_that_python_cannot_read_back_are_refused(number: int) -> None:
    assert refusal({"n": number}) == "data.n is a number of more than 4300 digits; send it as a string"


@pytest.mark.covers("B21")
@pytest.mark.usefixtures("_no_digit_limit")
def test_they_are_refused_even_where_this_process_could_read_them() -> None:
    assert "more than 4300 digits" in refusal(10**5000)


@pytest.mark.covers("B22")
@pytest.mark.parametrize(("value", "path"), [
    ("\ud800", "data"), ({"a": ["x", "\udfff"]}, "data.a[1]"), ({"a": {"\udc80": 1}}, "a key of data.a"),
])  # fmt: skip
def test_lone_surrogates_are_refused(value: object, path: str) -> None:
    assert refusal(value) == f"{path} contains a lone surrogate, which UTF-8 cannot represent"


@pytest.mark.covers("B23")
@pytest.mark.parametrize(
    "value",
    [b"x", bytearray(), datetime.now(UTC), Decimal(1), uuid.UUID(int=1), {1}, frozenset(), Order(1), Colour.RED, 1j],
    ids=lambda value: type(value).__name__,
)
def test_what_json_has_no_word_for_is_refused_with_the_path_and_the_way_out(value: object) -> None:
    assert refusal({"items": [0, 1, 2, {"when": value}]}) == (
        f"data.items[3].when is of type {type(value).__name__}, which JSON cannot represent; convert it, "
        "or give the queue a serializer="
    )


@pytest.mark.covers("B24")
@pytest.mark.parametrize("key", [1, None, True, 1.5, (1, 2), b"1", Word.RED], ids=repr)
def test_keys_that_are_not_strings_are_refused(key: object) -> None:
    message = refusal({"a": [{"1": 0, key: 1}]})

    assert message.startswith("data.a[0] has the key ")
    assert message.endswith("; in JSON, keys must be plain strings")


@pytest.mark.covers("B25")
def test_a_value_that_contains_itself_is_refused() -> None:
    ring: list[Any] = [0]
    ring.append({"again": ring})
    knot: list[Any] = []
    knot += [knot] * 20

    assert refusal({"a": ring}) == "data.a[1].again contains itself, which JSON cannot represent"
    assert refusal(knot) == "data[0] contains itself, which JSON cannot represent"


def test_a_value_that_is_shared_is_written_twice() -> None:
    shared = {"a": [1]}

    assert decode(encode([shared, shared])) == [shared, shared]


@pytest.mark.covers("B26")
def test_nesting_is_bounded() -> None:
    assert decode(encode(nested(MAX_DEPTH))) == nested(100)
    assert refusal(nested(101)).endswith(" is nested more than 100 levels deep")
    assert refusal({"a": nested(100_000)}).endswith(" is nested more than 100 levels deep")


@pytest.mark.covers("B26", "B28")
def test_a_small_value_that_would_unfold_without_end_is_refused_soon() -> None:
    value: list[Any] = []
    for _ in range(90):
        value = [value, value]

    with pytest.raises(PayloadTooLarge):
        encode(value)


@pytest.mark.covers("B27")
@pytest.mark.parametrize("filling", ["x", "ü", "😀"])
def test_a_payload_may_have_exactly_a_mebibyte_of_utf_8(filling: str) -> None:
    room = MAX_PAYLOAD - len('{"a":"yy"}')
    text = filling * (room // len(filling.encode())) + "y" * (room % len(filling.encode())) + "yy"

    assert len(encode({"a": text}).encode()) == MAX_PAYLOAD == 1024 * 1024
    with pytest.raises(PayloadTooLarge, match=f"data has (at least )?{MAX_PAYLOAD + 1} bytes; the limit is"):
        encode({"a": text + "y"})


@settings(deadline=None)
@given(JSON)
def test_what_fits_is_decided_by_the_bytes_alone(value: object) -> None:
    size = len(encode(value).encode())

    assert encode(value, limit=size)
    with pytest.raises(PayloadTooLarge):
        encode(value, limit=size - 1)


@pytest.mark.covers("B28")
@pytest.mark.parametrize("shape", ["text", "item", "key", "parts"])
def test_a_hundred_megabytes_are_refused_without_a_second_copy(shape: str) -> None:
    text = "x" * 100_000_000 if shape != "parts" else "x" * 100_000
    value = {"text": text, "item": {"a": [text]}, "key": {text: 1}, "parts": [text] * 1000}[shape]

    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLarge, match="data has at least"):
            encode(value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1_000_000


@pytest.mark.covers("B30")
def test_a_coroutine_is_refused_and_closed() -> None:
    async def forgotten() -> None: ...

    coroutine = forgotten()

    assert refusal({"result": coroutine}) == "data.result is a coroutine; await it first"
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


@pytest.mark.covers("B30")
def test_functions_generators_and_files_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        for value in (lambda: 0, (n for n in [1]), file, object(), int, json):
            assert "which JSON cannot represent" in refusal([value])


@pytest.mark.covers("B31")
@pytest.mark.parametrize(
    "value", [Counter("a"), Pair(1, 2), Word.RED, Number.ONE], ids=lambda value: type(value).__name__
)
def test_a_subclass_is_refused_since_its_plain_kind_would_come_back(value: object) -> None:
    plain = next(base for base in (dict, tuple, str, int) if isinstance(value, base)).__name__

    assert refusal({"a": value}) == (
        f"data.a is a {type(value).__name__}, which would come back as a plain {plain}; send a plain {plain}"
    )


@pytest.mark.covers("B31")
def test_no_hook_of_a_payload_is_ever_called() -> None:
    called = []

    class Odd(dict[str, Any]):
        def __getattribute__(self, name: str) -> Any:
            called.append(name)
            return super().__getattribute__(name)

        def __iter__(self) -> Iterator[str]:
            called.append("__iter__")
            return iter(["other"])

        def __len__(self) -> int:
            called.append("__len__")
            return 7

    refusal([Odd(a=1)])

    assert called == []


@pytest.mark.covers("B31")
@pytest.mark.parametrize("value", [(1, (2,)), OrderedDict(b=1, a=2), defaultdict(list, a=[1])], ids=repr)
def test_tuples_and_the_librarys_own_dictionaries_go_as_lists_and_objects(value: object) -> None:
    assert decode(encode(value)) == json.loads(json.dumps(value))


def test_a_message_shows_odd_keys_escaped_and_long_ways_shortened() -> None:
    assert refusal({"a b\n": {"c": {1}}}).startswith(r"data['a b\n'].c is of type set")
    assert len(refusal({"k" * 10_000: {"\x1b" * 10_000: b""}})) < 200
    assert refusal(b"", what="the result").startswith("the result is of type bytes")


@pytest.mark.covers("B33")
@pytest.mark.parametrize("stored", [
    "", '{"a": ', '{"a": 1} x', "'a'", "NaN", "[1, Infinity]", "[-Infinity]", "\ufeff{}", "[" * 100_000, "9" * 5_000,
    b"\x00\xff\xfe", gzip.compress(b"{}", mtime=0), b"\x80\x04]\x94.", b"cos\nsystem\n(S'true'\ntR.",
    "{}".encode("utf-16"),
], ids=lambda stored: ascii(stored[:12]))  # fmt: skip
def test_stored_rubbish_is_undecodable(stored: str | bytes) -> None:
    with pytest.raises(Undecodable, match="a result is not JSON: ") as caught:
        decode(stored, what="a result")

    assert isinstance(caught.value, TorilError)
    assert caught.value.__suppress_context__


@pytest.mark.covers("B33")
def test_stored_text_over_the_limit_is_not_even_read() -> None:
    with pytest.raises(Undecodable, match="data is too large: 11 characters; the limit is 10"):
        decode("[" * 11, limit=10)


@settings(deadline=None)
@given(st.binary(max_size=300))
@example(bytes(range(256)))
@example(b"")
def test_any_bytes_come_back_through_json(data: bytes) -> None:
    text = wrap(data, limit=len(data))

    assert text.isascii()
    assert unwrap(text, limit=len(data)) == unwrap(text.encode(), limit=len(data)) == data
    assert isinstance(decode(text), dict)


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, {"$bytes": 5}, {"$bytes": "aGk=", "more": 1}], ids=repr)
def test_plain_json_of_another_producer_is_taken_as_it_is(value: object) -> None:
    assert unwrap(encode(value)) == value


@pytest.mark.covers("B33")
@pytest.mark.parametrize("text", ['{"$bytes": "a"}', '{"$bytes": "a$=="}', '{"$bytes": "aGk=", '])
def test_broken_wrapping_is_undecodable(text: str) -> None:
    with pytest.raises(Undecodable, match="data is not "):
        unwrap(text)


def test_wrapped_bytes_have_the_limit_of_the_queue() -> None:
    with pytest.raises(PayloadTooLarge, match="data has 11 bytes; the limit is 10"):
        wrap(b"x" * 11, limit=10)


def test_a_serializer_that_makes_no_bytes_is_told_so() -> None:
    with pytest.raises(NotSerializable, match="must return bytes; for data it returned 'text'"):
        wrap("text")  # type: ignore[arg-type]
