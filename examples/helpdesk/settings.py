"""What the environment says."""

import os
from pathlib import Path

__all__ = ["api", "database", "is_hosted", "seconds"]

_PACE = float(os.environ.get("HELPDESK_PACE", "1"))


def database() -> Path:
    """The product's own database. Jobs are kept elsewhere: where TORIL_URL says."""
    return Path(os.environ.get("HELPDESK_DATABASE", "helpdesk.db"))


def api() -> str:
    """Where mail providers, webhooks and models are reached."""
    return os.environ.get("HELPDESK_API", "http://127.0.0.1:8085")


def is_hosted() -> bool:
    """Whether we run it for customers, or they run it themselves."""
    return os.environ.get("HELPDESK_MODE", "hosted") == "hosted"


def seconds(normal: float) -> float:
    """So long in production. Tests, and `python -m helpdesk`, have a faster pace: what takes minutes takes a moment."""
    return normal * _PACE
