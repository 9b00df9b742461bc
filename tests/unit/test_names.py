"""What may be called what: rows B01 to B18 of the bad-input catalogue."""

import re
import unicodedata
from collections.abc import Callable
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toril.errors import InvalidName, InvalidOption
from toril.model.names import RESERVED_IDS, check_job_id, check_job_name, check_label, check_prefix, check_queue_name

Check = Callable[[object], str]


def check_worker(name: object) -> str:
    return check_label("a worker's name", name)


CHECKS: list[Check] = [check_queue_name, check_worker, check_job_name, check_job_id]
KEY_PARTS: list[Check] = [check_queue_name, check_worker]

BAD_KEY_PARTS = {
    "B02": ["a:b", ":", "a:"],
    "B03": ["a{b", "a}b", "{a}"],
    "B04": ["a*", "a?", "a[b", "a]b", "a\\b"],
    "B05": [
        "a\x00b", "a\nb", "\x1b[31mred", "a\x7fb", "a\x9bb", "a\u202ab", "a\u202eb", "a\u2066b", "a\u200bb", "a\u200db",
        "\ufeffa", "a\u2028b", "a\u00a0b", "a\ue000b", "a\u3164b", "a\ufe0fb", "a\ud800b",
    ],
    "B06": ["a/b", "..", "a..b", "%2e%2e", ".hidden", "/"],
}  # fmt: skip
BAD = [pytest.param(name, id=f"{row}-{name!a}") for row, names in BAD_KEY_PARTS.items() for name in names]
BAD_PREFIXES = [bad for bad in BAD if bad.values != ("{a}",)]


def complaint(check: Check, value: object) -> str:
    """What the check says about this value; control characters never reach a message."""
    with pytest.raises(InvalidName) as caught:
        check(value)
    message = str(caught.value)
    assert message.isprintable()
    return message


@pytest.mark.covers("B01")
@pytest.mark.parametrize("name", ["", " ", "   ", None, b"bytes", 5, 1.5, ["q"]], ids=ascii)
@pytest.mark.parametrize("check", CHECKS)
def test_a_name_is_a_string_with_something_in_it(check: Check, name: object) -> None:
    assert re.search("must not be empty|must be a string, not ", complaint(check, name))


@pytest.mark.covers("B02", "B03", "B04", "B05", "B06", "B17")
@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("check", KEY_PARTS)
def test_what_keys_patterns_and_paths_are_made_of_is_refused(check: Check, name: str) -> None:
    message = complaint(check, name)

    assert "must not " in message
    assert (repr(name) if name.isprintable() else ascii(name)) in message


@pytest.mark.parametrize(("name", "why"), [
    ("a:b", "':' (it separates the parts of a key)"),
    ("a{b", "'{' (it would move the queue to another cluster slot)"),
    ("a*", "'*' (it is a pattern character)"),
    ("a/b", "'/' (names appear in URLs and file names)"),
    ("a\n", "control or invisible characters"),
    (".a", "begin with '.' or contain '..'"),
    (" a", "begin or end with a space"),
])  # fmt: skip
def test_a_message_names_the_rule(name: str, why: str) -> None:
    assert complaint(check_queue_name, name).startswith(f"a queue name must not {'contain ' * ('begin' not in why)}")
    assert why in complaint(check_queue_name, name)


def test_a_message_names_what_is_labelled() -> None:
    assert complaint(check_worker, "a:b").startswith("a worker's name must not contain ':'")


@pytest.mark.parametrize("check", CHECKS)
def test_a_message_stays_short_whatever_was_given(check: Check) -> None:
    message = complaint(check, "x\n" * 1_000_000)

    assert len(message) < 200
    assert "…" in message


@pytest.mark.covers("B07", "B17")
@pytest.mark.parametrize("check", KEY_PARTS)
@pytest.mark.parametrize("name", ["a", "7", "a b", "a-b_c.d", "x" * 128, "ü" * 64, "a=b"], ids=lambda name: name[:9])
def test_names_up_to_128_bytes_are_accepted(check: Check, name: str) -> None:
    assert check(name) == name


@pytest.mark.covers("B07", "B17")
@pytest.mark.parametrize("check", KEY_PARTS)
@pytest.mark.parametrize("name", ["x" * 129, "ü" * 64 + "x", "😀" * 33], ids=["ascii", "umlauts", "emoji"])
def test_longer_names_are_refused_by_their_bytes(check: Check, name: str) -> None:
    assert "must have at most 128 bytes" in complaint(check, name)


@pytest.mark.covers("B08")
def test_two_spellings_of_one_name_are_one_queue() -> None:
    composed, apart = "bücher", "bu\u0308cher"

    assert check_queue_name(apart) == check_queue_name(composed) == composed


@pytest.mark.covers("B08")
def test_the_bytes_of_the_normal_form_are_counted() -> None:
    longest = "\u1f82" * 42  # each of three bytes, and of four letters and marks when taken apart

    assert check_queue_name(unicodedata.normalize("NFD", longest)) == longest


@pytest.mark.covers("B09")
@pytest.mark.parametrize("word", sorted(RESERVED_IDS))
def test_words_of_the_layout_are_queues_but_not_jobs(word: str) -> None:
    assert check_queue_name(word) == word
    assert "is reserved and cannot be a job id" in complaint(check_job_id, word)


@pytest.mark.covers("B10")
@pytest.mark.parametrize("prefix", [*BAD_PREFIXES, "{}", "{a", "a}", "{{a}}", "{a}{b}", "{a:b}", "", None, 5])
def test_a_bad_prefix_is_refused_as_an_option(prefix: object) -> None:
    with pytest.raises(InvalidOption, match=r"^a prefix must "):
        check_prefix(prefix)


@pytest.mark.covers("B10")
@pytest.mark.parametrize("prefix", ["bull", "{bull}", "bücher", "{bücher}"])
def test_a_prefix_may_be_a_cluster_tag(prefix: str) -> None:
    assert check_prefix(prefix) == prefix
    assert check_prefix(unicodedata.normalize("NFD", prefix)) == prefix


@pytest.mark.covers("B11")
@pytest.mark.parametrize("name", ["x" * 256, "ü" * 128, "a\x00", "a\nb", "a\x1b[0m", "a\u2028b", "\ud800"], ids=ascii)
def test_job_names_of_several_lines_or_over_255_bytes_are_refused(name: str) -> None:
    assert re.search("at most 255 bytes|a single line without control characters", complaint(check_job_name, name))


@pytest.mark.covers("B11")
@pytest.mark.parametrize("name", ["a", "x" * 255, "send:welcome/now {*}", "größe " * 20])
def test_job_names_are_free_text_otherwise(name: str) -> None:
    assert check_job_name(name) == name


@pytest.mark.covers("B12", "B13")
@pytest.mark.parametrize("job_id", ["123", "0", "-5", "1", "9" * 40])
def test_numbers_are_for_the_jobs_that_toril_numbers(job_id: str) -> None:
    assert "must not be an integer" in complaint(check_job_id, job_id)


@pytest.mark.covers("B12")
@pytest.mark.parametrize("job_id", ["0012", "12a", "1.5", "+5", "-", "1e3", "order-12", "١٢"])
def test_what_only_looks_like_a_number_is_an_id(job_id: str) -> None:
    assert check_job_id(job_id) == job_id


@pytest.mark.covers("B13", "B14")
@pytest.mark.parametrize("job_id", ["0:1", "0:a:b", "a:b", ":", "a:b:c:d", "a:"])
def test_colons_are_for_the_ids_of_schedules(job_id: str) -> None:
    assert "may contain ':' only as in 'a:b:c', with three parts" in complaint(check_job_id, job_id)


@pytest.mark.covers("B14")
@pytest.mark.parametrize("job_id", ["repeat:nightly:1800000000000", "tenant:order:7", "repeat:failed:5"])
def test_ids_of_three_parts_are_accepted(job_id: str) -> None:
    assert check_job_id(job_id) == job_id


@pytest.mark.covers("B09", "B14")
@pytest.mark.parametrize("job_id", ["metrics:completed:data", "de:a:b", "toril:a:b", "a:b:meta", "a:b:id"])
def test_an_id_of_three_parts_is_no_other_key(job_id: str) -> None:
    assert "must not begin or end with a reserved word" in complaint(check_job_id, job_id)


@pytest.mark.covers("B15")
@pytest.mark.parametrize("job_id", ["x" * 257, "ü" * 129, "a\ud800", "a\x00b", "a\r\nb"], ids=ascii)
def test_ids_of_several_lines_or_over_256_bytes_are_refused(job_id: str) -> None:
    assert re.search("at most 256 bytes|a single line without control characters", complaint(check_job_id, job_id))


@pytest.mark.covers("B15")
def test_an_id_of_256_bytes_is_accepted() -> None:
    assert check_job_id("ü" * 128) == "ü" * 128


@pytest.mark.covers("B18")
@pytest.mark.parametrize("name", ["a\nb", "a\r\nid=7 addr=x", "a\tb", "a\x00"], ids=ascii)
def test_a_workers_name_cannot_forge_a_line_of_the_client_list(name: str) -> None:
    assert "must not contain control or invisible characters" in complaint(check_worker, name)


class Colour(str, Enum):  # noqa: UP042 - the older kind, which prints as `Colour.RED`
    RED = "red"


@pytest.mark.parametrize("check", [*CHECKS, check_prefix])
def test_a_member_of_an_enum_gives_its_value(check: Check) -> None:
    name = check(Colour.RED)

    assert (name, type(name)) == ("red", str)


@settings(deadline=None)
@given(st.text())
def test_what_is_accepted_as_a_queue_name_is_safe_in_keys_and_on_screens(text: str) -> None:
    try:
        name = check_queue_name(text)
    except InvalidName:
        return

    assert check_queue_name(name) == name == unicodedata.normalize("NFC", name)
    assert 1 <= len(name.encode()) <= 128
    assert name.isprintable()
    assert not set(name) & set(":{}*?[]\\/%")
    assert name == name.strip()


@settings(deadline=None)
@given(st.text() | st.integers().map(str) | st.lists(st.sampled_from(sorted(RESERVED_IDS)), min_size=1).map(":".join))
def test_what_is_accepted_as_a_job_id_is_no_other_key(text: str) -> None:
    try:
        job_id = check_job_id(text)
    except InvalidName:
        return

    assert job_id == text
    assert not re.fullmatch("-?[1-9][0-9]*|0", job_id)
    assert job_id not in RESERVED_IDS
    assert job_id.count(":") in {0, 2}
    assert job_id.partition(":")[0] not in (RESERVED_IDS | {"0"}) - {"repeat"}
    assert 1 <= len(job_id.encode()) <= 256


@settings(deadline=None)
@given(st.text())
def test_what_is_accepted_as_a_job_name_is_one_line(text: str) -> None:
    try:
        name = check_job_name(text)
    except InvalidName:
        return

    assert name == text
    assert len(name.splitlines()) == 1
    assert 1 <= len(name.encode()) <= 255
