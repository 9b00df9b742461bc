"""What a worker declares of a queue, as far as a test does not say otherwise."""

from typing import Any

from toril.model import Backoff, Declaration, Keep

__all__ = ["declared"]


def declared(*handlers: str, **given: Any) -> Declaration:
    """A queue of which nothing is said, with handlers of these names."""
    plain: dict[str, Any] = {
        "concurrency": 1, "lease": 30_000, "max_stalls": 1, "max_attempts": 5,
        "backoff": Backoff(kind="exponential", delay=1000), "keep_completed": Keep(0), "keep_failed": Keep(0),
        "target_wait": 120_000, "handlers": dict.fromkeys(handlers),
    }  # fmt: skip
    return Declaration(**plain | given)
