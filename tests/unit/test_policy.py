"""Decisions without I/O: what is kept of a result, when a start counts, and how a value is shown."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toril.codec.encoding import MAX_DEPTH, encode
from toril.engines.sql.rate_limits import slot
from toril.model import RateLimit, per_ms
from toril.policy.error_groups import likeness
from toril.policy.redaction import UNSHOWN, masked, showable
from toril.policy.retention import RUN_TEXT_BYTES, shortened
from toril.runtime.redaction import Redaction

NOW = st.integers(0, 2**42)
SECONDS = st.integers(1, 31 * 86_400_000).map(lambda ms: ms / 1000)
SMALL = st.builds(RateLimit, max=st.integers(1, 1000), per=SECONDS)
LARGE = st.builds(RateLimit, max=st.integers(1001, 2**31), per=SECONDS)


@pytest.mark.parametrize("text", ["", "short", "x" * 1024, "ü" * 512, "😀" * 256, "ends with …"], ids=lambda t: t[:2])
def test_what_fits_is_kept_whole(text: str) -> None:
    assert shortened(text) == (text, True)


@pytest.mark.parametrize(("text", "kept"), [
    ("x" * 1025, "x" * 1021 + "…"),
    ("ü" * 513, "ü" * 510 + "…"),
    ("😀" * 257, "😀" * 255 + "…"),
    ("x" * 10_000_000, "x" * 1021 + "…"),
], ids=["ascii", "umlauts", "emoji", "huge"])  # fmt: skip
def test_what_does_not_fit_is_cut_between_characters_and_marked(text: str, kept: str) -> None:
    assert shortened(text) == (kept, False)


def test_what_no_store_can_keep_is_replaced_however_short() -> None:
    assert shortened("a\ud800b") == ("a?b", False)


@settings(deadline=None)
@given(st.text(alphabet=st.characters(), max_size=400), st.integers(3, 300))
@example("ü\ud800" * 300, 100)
def test_a_shortened_text_is_a_beginning_within_the_limit(text: str, limit: int) -> None:
    kept, whole = shortened(text, limit)

    storable = text.encode("utf-8", "replace").decode()
    assert len(kept.encode()) <= limit
    assert whole == (kept == text)
    assert kept == storable or (kept.endswith("…") and storable.startswith(kept[:-1]))


@settings(deadline=None)
@given(st.text(alphabet=st.characters(), max_size=400), st.integers(3, 300))
def test_no_more_is_cut_than_must_be(text: str, limit: int) -> None:
    kept, _ = shortened(text, limit)

    if kept.endswith("…") and kept != text:
        assert len(kept.encode()) > limit - 4


def test_a_run_keeps_a_kibibyte_of_text() -> None:
    assert RUN_TEXT_BYTES == 1024


@settings(deadline=None)
@given(SMALL | LARGE, NOW)
def test_a_start_never_counts_for_less_than_the_window(limit: RateLimit, now: int) -> None:
    assert slot(limit, now) >= now


@settings(deadline=None)
@given(SMALL | LARGE, NOW)
def test_a_start_counts_for_at_most_a_hundredth_longer(limit: RateLimit, now: int) -> None:
    assert (slot(limit, now) - now) * 100 <= per_ms(limit)


@settings(deadline=None)
@given(SMALL, NOW)
def test_small_limits_are_counted_to_the_millisecond(limit: RateLimit, now: int) -> None:
    assert slot(limit, now) == now


@settings(deadline=None)
@given(SMALL | LARGE, NOW, st.integers(0, 10**9))
def test_later_starts_never_count_as_earlier(limit: RateLimit, now: int, passed: int) -> None:
    assert slot(limit, now) <= slot(limit, now + passed)


def test_a_window_of_a_large_limit_has_about_a_hundred_slots() -> None:
    limit = RateLimit(1_000_000, per=60)

    assert len({slot(limit, now) for now in range(1_800_000_000_000, 1_800_000_060_000)}) in {100, 101}


def nested(depth: int) -> list[object]:
    found: list[object] = []
    for _ in range(depth - 1):
        found = [found]
    return found


def test_what_toril_stores_is_shown_whole_and_what_is_deeper_is_not() -> None:
    deepest = nested(MAX_DEPTH)
    assert encode(deepest)
    assert showable(deepest) == masked(deepest) == deepest
    for depth in (MAX_DEPTH + 1, 100_000):
        assert f'["{UNSHOWN}"]' in json.dumps(showable(nested(depth)))
        assert f'["{UNSHOWN}"]' in json.dumps(masked(nested(depth)))


def test_numbers_that_json_does_not_have_are_shown_as_text() -> None:
    odd = {"a": [float("nan"), float("inf"), 1.5], "token": float("-inf")}
    assert showable(odd) == {"a": ["NaN", "Infinity", 1.5], "token": "-Infinity"}
    assert masked(odd) == {"a": ["NaN", "Infinity", 1.5], "token": "***"}


@pytest.mark.parametrize("found", [float("nan"), [float("inf")], nested(300)], ids=["nan", "infinite", "deep"])
def test_what_the_apps_own_redact_gives_can_be_sent(found: object) -> None:
    shown = Redaction(lambda *_: found).seen("x", "data", "q", "n")
    assert json.dumps(shown, allow_nan=False)
    assert json.dumps(shown) != json.dumps(found)


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("451 greylisted", "451 greylisted"),
        ("the worker was killed by signal 9", "the worker was killed by signal 9"),
        ("embedding service: 503", "embedding service: 503"),
        ("no order 1000482", "no order #"),
        ("no user 7d9f3c1a", "no user #"),
        ("row 123e4567-e89b-12d3-a456-426614174000 at 0x7f", "row # at #"),
        ("550 no user ada.b+x@mail.example.org", "550 no user #@mail.example.org"),
        ("451 for <user7@example.org>, at 10@ 3", "451 for <#@example.org>, at 10@ 3"),
    ],
)
def test_errors_are_grouped_by_all_but_ids_and_long_numbers(reason: str, error: str) -> None:
    assert likeness(reason) == error
