"""What a handler may return when its result is for people as much as for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """A result that can be read at a glance: `Result("42 emails synced", counts={"synced": 42})`.

    It is kept whole, like any other result; the run record shows its summary.
    """

    summary: str
    counts: Mapping[str, int | float] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def line(self) -> str:
        """The summary, and how many warnings there are."""
        if not self.warnings:
            return self.summary
        return f"{self.summary} ({len(self.warnings)} warning{'s' if len(self.warnings) > 1 else ''})"
