"""The page of capabilities is made from the tests, and stays true to them."""

from tools import capabilities


def test_every_row_that_a_test_names_has_its_sentence() -> None:
    known = {row for rows in capabilities.sentences().values() for row in rows}

    assert set(capabilities.marks()) <= known


def test_the_page_is_up_to_date() -> None:
    assert capabilities.PAGE.read_text("utf-8") == capabilities.page(), "run  make capabilities"
