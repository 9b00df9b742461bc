"""The errors, and how their messages show values."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toril import errors
from toril.errors import AddUncertain, PartialAdd, Resting, StepFailed, TorilError, preview

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if getattr(value, "__module__", "") == errors.__name__ and isinstance(value, type)
}


def test_every_error_descends_from_one_root() -> None:
    assert all(issubclass(each, TorilError) for each in CLASSES.values() if each is not Resting)


def test_resting_is_no_error_that_a_handler_would_catch() -> None:
    assert Resting.__bases__ == (BaseException,)


def test_every_error_is_public_and_says_when_it_is_raised() -> None:
    assert set(CLASSES) <= set(errors.__all__)
    assert all(each.__doc__ for each in CLASSES.values())


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    drawn: dict[str, str] = {}
    parents = ["TorilError"]
    for bars, name in re.findall(r"^    ([│├└─ ]+)([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE):
        depth = len(bars) // 4
        parents[depth:] = [name]
        drawn[name] = parents[depth - 1]

    in_tree = {name: each for name, each in CLASSES.items() if each not in {TorilError, Resting}}
    assert drawn == {name: each.__bases__[0].__name__ for name, each in in_tree.items()}


@pytest.mark.parametrize(("name", "builtin"), [
    ("InvalidName", ValueError), ("InvalidOption", ValueError), ("PayloadTooLarge", ValueError),
    ("NotSerializable", TypeError), ("UnknownQueue", LookupError), ("NotFound", LookupError),
])  # fmt: skip
def test_a_wrong_call_can_be_caught_by_the_usual_name(name: str, builtin: type[Exception]) -> None:
    assert issubclass(CLASSES[name], builtin)


def test_a_failed_step_knows_its_cause_by_class_and_by_name() -> None:
    error = StepFailed("charge", "TimeoutError", "too late", ("builtins.TimeoutError", "builtins.OSError"))

    assert error.caused_by(OSError)
    assert error.caused_by("builtins.TimeoutError")
    assert not error.caused_by(ValueError)
    assert str(error) == "step 'charge' failed: TimeoutError: too late"


def test_an_uncertain_add_names_the_jobs() -> None:
    assert AddUncertain("stored, not confirmed", job_ids=["1", "2"]).job_ids == ("1", "2")
    assert PartialAdd("stopped half-way", stored=["1"]).stored == ("1",)


@pytest.mark.parametrize(("value", "text"), [
    ("plain", "'plain'"),
    ("bücher", "'bücher'"),
    ("a\nb\x1b[31m", r"'a\nb\x1b[31m'"),
    ("a\u202eb", r"'a\u202eb'"),
    ("\ud800", r"'\ud800'"),
    (b"x\xff", r"b'x\xff'"),
    (None, "None"),
    (["ü"], r"['\xfc']"),
    (10**5000, "a value of type int"),
], ids=lambda value: ascii(value)[:20] if type(value) is not int else "5001 digits")  # fmt: skip
def test_a_value_is_shown_as_one_would_write_it(value: object, text: str) -> None:
    assert preview(value) == text


def test_a_value_that_cannot_show_itself_does_no_harm() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert preview(Broken()) == "a value of type Broken"
    assert preview([Broken()]) == "a value of type list"


@settings(deadline=None)
@given(st.text(alphabet=st.characters()) | st.binary() | st.lists(st.text()) | st.floats() | st.integers())
def test_whatever_is_shown_is_short_and_printable(value: object) -> None:
    text = preview(value)

    assert len(text) <= 80
    assert text.isprintable()


@pytest.mark.parametrize("value", ["x" * 100_000_000, b"x" * 100_000_000], ids=["text", "bytes"])
def test_a_long_value_ends_with_a_mark(value: object) -> None:
    assert re.fullmatch("b?'x{77,78}…", preview(value))
    assert len(preview(value)) == 80
