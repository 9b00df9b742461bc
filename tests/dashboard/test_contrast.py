"""The colours of the style sheet: text and shapes can be told from any ground that they may stand on."""

import re
from pathlib import Path

import pytest

import toril.web

CSS = (Path(toril.web.__file__).parent / "assets" / "app.css").read_text("utf-8")
TOKEN = re.compile(r"--([a-z0-9-]+):\s*light-dark\((#[0-9a-f]{6}),\s*(#[0-9a-f]{6})\)")
GROUNDS = ("bg", "surface", "side", "hover", "sel")
STATES = ("red", "amber", "green", "blue", "violet", "teal")


def tokens(theme: int) -> dict[str, str]:
    return {name: (light, dark)[theme] for name, light, dark in TOKEN.findall(CSS)}


def luminance(colour: str) -> float:
    def linear(part: str) -> float:
        value = int(part, 16) / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(colour[at : at + 2]) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_measure_itself_is_right() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_has_at_least_four_and_a_half_to_one(theme: int) -> None:
    found = tokens(theme)
    pairs = [(ink, ground) for ink in ("ink", "ink-2", "ink-3") for ground in GROUNDS]
    pairs += [(state, ground) for state in STATES for ground in (*GROUNDS, f"{state}-bg")]

    assert [pair for pair in pairs if contrast(found[pair[0]], found[pair[1]]) < 4.5] == []


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_shapes_and_borders_that_must_be_seen_have_at_least_three_to_one(theme: int) -> None:
    found = tokens(theme)
    pairs = [(f"{state}-g", ground) for state in STATES for ground in ("bg", "surface", "hover", f"{state}-bg")]
    pairs += [(line, ground) for line in ("line-3", "focus") for ground in ("bg", "surface", "side")]

    assert [pair for pair in pairs if contrast(found[pair[0]], found[pair[1]]) < 3] == []
