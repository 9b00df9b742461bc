"""Groups: jobs of one queue that share a name, such as a tenant's, and take turns with other groups."""

from dataclasses import dataclass, fields
from typing import Final

from toril.errors import InvalidOption, preview
from toril.model.jobs import RateLimit, check_int, per_ms
from toril.model.names import check_group

MAX_WEIGHT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Limits of each group of a queue, or of one group. None uses the queue's; without those there is no limit, and a
    weight of 1.

    Args:
        concurrency: How many jobs of the group run at once, in all processes together. 1 also keeps their order.
        rate_limit: How many jobs of the group may start within a time.
        max_waiting: Refuse adds with `QueueFull` while this many jobs of the group wait.
        weight: How many turns the group gets for each turn of a group of weight 1.
    """

    concurrency: int | None = None
    rate_limit: RateLimit | None = None
    max_waiting: int | None = None
    weight: int | None = None

    def __post_init__(self) -> None:
        if self.concurrency is not None:
            check_int("a group's concurrency", self.concurrency, 1, 1_000_000)
        if self.max_waiting is not None:
            check_int("a group's max_waiting", self.max_waiting, 1, 2**53)
        if self.weight is not None:
            check_int("a group's weight", self.weight, 1, MAX_WEIGHT)
        if self.rate_limit is not None and not isinstance(self.rate_limit, RateLimit):
            raise InvalidOption(
                f"a group's rate_limit must be a RateLimit(max, per) or None, not {preview(self.rate_limit)}"
            )
        if self.rate_limit is not None and self.rate_limit.window != "sliding":
            raise InvalidOption("a group's rate_limit must have a sliding window; fixed windows are for queues only")

    def over(self, other: "GroupLimits") -> "GroupLimits":
        """These limits; those that are None come from the other."""
        return GroupLimits(
            **{name: getattr(other, name) if getattr(self, name) is None else getattr(self, name) for name in _LIMITS}
        )

    def dump(self) -> str:
        """As the stores keep them: numbers separated by commas."""
        rate = self.rate_limit
        numbers = (self.concurrency, rate and rate.max, rate and per_ms(rate), self.max_waiting, self.weight)
        return ",".join("" if number is None else str(number) for number in numbers)

    @classmethod
    def load(cls, text: str | None) -> "GroupLimits":
        concurrency, most, per, waiting, weight = (
            int(part) if part else None for part in (text or ",,,,").split(",")[:5]
        )
        rate = None if most is None or per is None else RateLimit(most, per / 1000)
        return cls(concurrency=concurrency, rate_limit=rate, max_waiting=waiting, weight=weight)


_LIMITS: Final = tuple(field.name for field in fields(GroupLimits))
NO_LIMITS: Final = GroupLimits()


@dataclass(frozen=True, slots=True)
class DeclareGroups:
    """The limits of a queue's groups that the code declares."""

    limits: GroupLimits


@dataclass(frozen=True, slots=True)
class SetGroups:
    """The limits of a queue's groups that an operator sets, instead of the code's; None removes them."""

    limits: GroupLimits | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGroup:
    """Set one group's own limits, replacing all it had, and whether it is paused. None leaves that unchanged."""

    name: str
    limits: GroupLimits | None = None
    paused: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check_group(self.name))
        if self.limits is not None and not isinstance(self.limits, GroupLimits):
            raise InvalidOption(f"a group's limits must be a GroupLimits(…), not {preview(self.limits)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group as it stands: how many of its jobs wait (ready or not yet due) and run; what holds for it, and which of
    that is its own; until when its rate is used up."""

    name: str
    waiting: int = 0
    running: int = 0
    limits: GroupLimits = NO_LIMITS
    own: GroupLimits = NO_LIMITS
    paused: bool = False
    till: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBlockers:
    """What in its group keeps a job from starting: `ahead` are earlier jobs of the group; `holders` are the jobs that
    have the group's seats (the first ten)."""

    name: str
    let_in: bool = False
    ahead: int = 0
    holders: tuple[str, ...] = ()
    limits: GroupLimits = NO_LIMITS
    paused: bool = False
    till: int | None = None
