"""What a supervisor was asked for."""

from dataclasses import dataclass, field

__all__ = ["Listen", "Plan"]


@dataclass(frozen=True, slots=True)
class Listen:
    """Where HTTP is served. An address that somebody asked for must be had; the one by default need not be."""

    host: str
    port: int
    asked_for: bool = False
    origin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many children, how each is started, and when one has to go. Times are seconds, sizes are bytes."""

    command: tuple[str, ...]  # of a child, without the descriptors, which come last
    spare: tuple[str, ...] | None = None  # the same, of a child for jobs that have stalled
    spares: int = 4  # how many of these there may be at once
    title: str = "toril"
    processes: int = 1
    grace: float = 10.0
    burst: bool = False
    reload: bool = False
    hang_timeout: float = 300.0
    max_jobs: int | None = None
    max_rss: int | None = None
    unready_after: float = 10.0
    http: Listen | None = None
    env: dict[str, str] = field(default_factory=dict)
