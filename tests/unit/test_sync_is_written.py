"""The blocking twin is what the tool writes."""

from tools import blocking


def test_the_blocking_twin_is_up_to_date() -> None:
    assert blocking.TARGET.read_text("utf-8") == blocking.formatted(), "run  make sync"
