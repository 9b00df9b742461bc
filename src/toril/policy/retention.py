"""What to keep of a finished job, and how much of its result."""

from typing import Final

from toril.model import storable

__all__ = ["EVENTS", "MINUTES", "RUNS", "RUN_TEXT_BYTES", "shortened"]

RUNS: Final = 1_000  # run records a queue and ending
RUN_TEXT_BYTES: Final = 1_024
EVENTS: Final = 10_000  # events kept per queue
MINUTES: Final = 7 * 24 * 60  # minutes of counts per minute


def shortened(text: str, limit: int = RUN_TEXT_BYTES) -> tuple[str, bool]:
    """`text` in at most `limit` bytes of UTF-8, with a mark where it was cut; and whether it is whole."""
    kept = storable(text[: limit + 1], limit)  # more than `limit` characters would be cut anyway
    return kept, kept == text
