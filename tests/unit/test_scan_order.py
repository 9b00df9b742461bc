"""The order of a walk, and how it goes on."""

import pytest

from toril.errors import InvalidOption
from toril.policy.doctor import ScanOrder, ScanPosition, cursor_of


def walked(course: ScanOrder, cursor: str | None = None) -> list[ScanPosition]:
    """Every spot of a walk in which each step has one look."""
    found, spot = [], course.first(cursor)
    while True:
        found.append(spot)
        following = course.after(spot, None)
        if following is None:
            return found
        spot = following


def test_a_walk_goes_through_the_queues_by_name_and_then_through_the_store() -> None:
    course = ScanOrder(["b", "a", "b"], ["lists", "line"], ["keys", "workers"])

    assert [(spot.queue, spot.step) for spot in walked(course)] == [
        ("a", "lists"), ("a", "line"), ("b", "lists"), ("b", "line"), ("", "keys"), ("", "workers"),
    ]  # fmt: skip
    assert [spot.step for spot in walked(ScanOrder([], ["lists"], ["keys"]))] == ["keys"]


def test_a_walk_goes_on_from_every_spot() -> None:
    course = ScanOrder(["a", "é"], ["lists", "line"], ["keys", "workers"])
    whole = walked(course)

    for number, spot in enumerate(whole):
        assert walked(course, cursor_of(spot)) == whole[number:]


def test_a_step_goes_on_where_its_look_has_ended() -> None:
    course = ScanOrder(["a"], ["lists"], ["keys"])
    further = course.after(course.first(None), "300")

    assert further == ScanPosition("a", "lists", "300")
    assert course.first(cursor_of(further)) == further
    assert cursor_of(None) is None


@pytest.mark.parametrize(("gone", "goes_on"), [("a", "b"), ("c", "d"), ("e", "")])
def test_a_queue_that_is_gone_is_passed_over(gone: str, goes_on: str) -> None:
    course = ScanOrder(["b", "d"], ["lists", "line"], ["keys"])

    spot = course.first(cursor_of(ScanPosition(gone, "line", "7")))

    assert spot == ScanPosition(goes_on, "lists" if goes_on else "keys")


@pytest.mark.parametrize(
    "cursor", ["", "?", "é", "WyJh", cursor_of(ScanPosition("a", "keys")), cursor_of(ScanPosition("", "lists"))]
)
def test_what_was_not_given_out_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidOption, match="unknown cursor "):
        ScanOrder(["a"], ["lists"], ["keys"]).first(cursor)
