"""Settings from the environment."""

import os
from pathlib import Path

__all__ = ["api", "database", "is_hosted", "seconds"]

_PACE = float(os.environ.get("HELPDESK_PACE", "1"))


def database() -> Path:
    """The product's own database. Jobs are stored elsewhere, in TORIL_URL."""
    return Path(os.environ.get("HELPDESK_DATABASE", "helpdesk.db"))


def api() -> str:
    """Return where to reach mail providers, webhooks and models."""
    return os.environ.get("HELPDESK_API", "http://127.0.0.1:8085")


def is_hosted() -> bool:
    """Return whether this is the hosted version, or customers run it themselves."""
    return os.environ.get("HELPDESK_MODE", "hosted") == "hosted"


def seconds(normal: float) -> float:
    """Return a duration at the current pace. In tests and `python -m helpdesk`, minutes take a moment."""
    return normal * _PACE
