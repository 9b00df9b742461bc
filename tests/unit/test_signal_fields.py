"""The form for a signal: which fields a type has, and what becomes of what is typed into them."""

from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, Union
from uuid import UUID

import pytest
from annotated_types import Ge, Len, Lt
from pydantic import BaseModel, ConfigDict, Field

from toril.codec.schemas import schema_of
from toril.web.pages.signal_fields import FIELD, Filled, filled, shown_values, signal_fields


class Tier(Enum):
    GOLD = "gold"
    PLAIN = 0


@dataclass
class Limit:
    amount: int
    currency: Literal["EUR", "USD"] = "EUR"


@dataclass
class Deep:
    limit: Limit


@dataclass
class Review:
    ok: bool
    score: float
    tier: Tier
    limit: Limit
    by: str = "ada"
    again: int | None = None
    tags: list[str] = field(default_factory=list)
    grades: list[Literal[1, 2]] | None = None
    more: dict[str, Any] = field(default_factory=dict)
    deep: Deep | None = None


class Described(BaseModel):
    """A model, with words of its own."""

    model_config = ConfigDict(extra="forbid")

    day: date = Field(description="When it is paid.")
    number: Annotated[int, Ge(1), Lt(10)]
    word: Annotated[str, Len(2, 4)] | None = "two"
    key: UUID | None = None
    ratio: int | float = 0


REVIEW = signal_fields(schema_of(Review))


def typed(**given: str) -> dict[str, str]:
    return {FIELD + name.replace("__", "."): text for name, text in given.items()}


ENOUGH = typed(ok="true", score="0.5", tier='"gold"', limit__amount="7")


def test_each_property_has_a_field_in_the_order_of_the_type() -> None:
    assert [(each.name.removeprefix(FIELD), each.kind, each.left_out) for each in REVIEW] == [
        ("ok", "bool", False), ("score", "float", False), ("tier", "choice", False), ("limit.amount", "int", False),
        ("limit.currency", "choice", False), ("by", "text", False), ("again", "int", True), ("tags", "list", True),
        ("grades", "list", True), ("more", "json", True), ("deep", "json", True),
    ]  # fmt: skip
    assert [each.group for each in REVIEW][2:6] == ["", "Limit", "Limit", ""]
    assert [each.choices for each in REVIEW if each.kind == "choice"] == [('"gold"', "0"), ('"EUR"', '"USD"')]
    assert shown_values(REVIEW, None)[FIELD + "by"] == "ada"


def test_what_is_typed_becomes_a_payload_and_what_is_empty_is_left_out() -> None:
    least = filled(REVIEW, ENOUGH | typed(by="ada", limit__currency='"EUR"'))
    most = filled(REVIEW, ENOUGH | typed(
        ok="false", tier="0", limit__currency='"USD"', by="two\r\nlines", again="-3",
        tags=" a \r\n\r\nb", grades="2\n1", more='{"x": [1]}', deep='{"limit": {"amount": 1}}',
    ))  # fmt: skip

    assert least == Filled(
        {"ok": True, "score": 0.5, "tier": "gold", "by": "ada", "limit": {"amount": 7, "currency": "EUR"}}, {}
    )
    assert most == Filled({
        "ok": False, "score": 0.5, "tier": 0, "limit": {"amount": 7, "currency": "USD"}, "by": "two\nlines",
        "again": -3, "tags": ["a", "b"], "grades": [2, 1], "more": {"x": [1]}, "deep": {"limit": {"amount": 1}},
    }, {})  # fmt: skip


def test_what_was_emptied_by_hand_does_not_get_its_default_back() -> None:
    fields = signal_fields(schema_of(Described))

    assert filled(REVIEW, ENOUGH | typed(by="")).data["by"] == ""
    assert filled(fields, typed(day="2026-05-01", number="1", word="")).data == {
        "day": "2026-05-01", "number": 1, "word": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("ok", "", "Choose one."), ("ok", "perhaps", "Choose one."), ("tier", "", "Choose one."),
        ("tier", '"silver"', "Choose one of gold, 0."), ("score", "", "Enter a value."),
        ("score", "high", "Enter a number."), ("score", "nan", "Enter a number."),
        ("score", "1e999", "Enter a number."),
        ("limit__amount", "1.5", "Enter a whole number."), ("limit__amount", "٣", "Enter a whole number."),
        ("again", "9" * 401, "Enter a whole number."), ("grades", "1\n\n3", "Line 3: Choose one of 1, 2."),
        ("more", "[1", "This is not valid JSON: Expecting ',' delimiter: line 1 column 3 (char 2)."),
        ("more", '{"a": NaN}', "This is not valid JSON: NaN is not a JSON number."),
        ("more", "[" * 101, "the JSON is nested deeper than 100 levels."),
    ],
)  # fmt: skip
def test_what_is_wrong_stands_beside_its_field(name: str, text: str, why: str) -> None:
    found = filled(REVIEW, ENOUGH | typed(**{name: text}))

    assert found.wrong == {FIELD + name.replace("__", "."): why}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("day", "tomorrow", "Enter a date like 2026-05-01."), ("number", "0", "Enter a number of at least 1."),
        ("number", "10", "Enter a number of less than 10."), ("word", "x", "Enter at least 2 characters."),
        ("word", "xxxxx", "Enter at most 4 characters."), ("key", "7", "Enter a UUID."),
    ],
)  # fmt: skip
def test_limits_of_the_type_are_said_before_it_is_sent(name: str, text: str, why: str) -> None:
    fields = signal_fields(schema_of(Described))

    assert filled(fields, typed(day="2026-05-01", number="1", word="two") | typed(**{name: text})).wrong == {
        FIELD + name: why
    }
    assert fields[0].hint == "When it is paid."
    assert fields[-1].kind == "float"


@pytest.mark.parametrize(
    ("kind", "text", "data"),
    [
        (bool, "true", True), (int, " 7 ", 7), (str, " as it is ", " as it is "), (list[int], "1\n2", [1, 2]),
        (Tier, "0", 0), (Literal["a"], '"a"', "a"), (Any, "[null]", [None]), (dict[str, int], "{}", {}),
        (Union[int, str], '"x"', "x"), (list[list[int]], "[[1]]", [[1]]), (tuple[int, int], "[1, 2]", [1, 2]),  # noqa: UP007
        (list[bool], "[true]", [True]), (int | None, "", None), (None, "null", None),
    ],
)  # fmt: skip
def test_a_payload_that_has_no_properties_is_one_field(kind: Any, text: str, data: Any) -> None:
    fields = signal_fields(schema_of(kind))

    assert [each.name for each in fields] == [FIELD]
    assert filled(fields, {FIELD: text}) == Filled(data, {})


def test_without_a_schema_there_is_a_field_for_json() -> None:
    (one,) = signal_fields(None)

    assert (one.kind, one.default) == ("json", "true")
    assert filled((one,), {}).wrong == {FIELD: "Enter a value."}


@pytest.mark.parametrize(
    "schema",
    [
        {}, {"$ref": "#/$defs/Nowhere"}, {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"type": "object", "properties": {"a": True}}, {"anyOf": []}, {"type": "array", "items": True}, {"allOf": [{}]},
        {"type": ["string", "null"]}, {"type": "object", "properties": {}},
    ],
)  # fmt: skip
def test_a_schema_of_another_kind_is_a_field_for_json(schema: dict[str, Any]) -> None:
    (one,) = signal_fields(schema)

    assert one.kind == "json"
