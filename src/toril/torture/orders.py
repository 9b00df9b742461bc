"""The jobs of a run. Each number stands for one order, drawn from the seed alone."""

import random
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Kind", "Order", "order_of"]


class Kind(StrEnum):
    """What a job is like."""

    PLAIN = "plain"
    RETRIES = "retries"  # fails once or twice, then ends well
    DOOMED = "doomed"  # fails for good, and stays to be seen
    DELAYED = "delayed"
    LONG = "long"  # longer than its lease
    FLOW = "flow"  # waits for children in another queue
    DEDUP = "dedup"  # one at a time of its key
    GROUPED = "grouped"  # one at a time of its group, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One thing that a producer asks for. Times are milliseconds."""

    number: int
    kind: Kind
    ms: int
    named: bool  # the producer chooses its id, and asks again while it does not know
    fails: int = 0
    delay: int = 0
    children: int = 0
    key: str | None = None

    @property
    def nonce(self) -> str:
        return f"n{self.number}"

    @property
    def nonces(self) -> list[str]:
        """Its own, and those of the jobs that it waits for."""
        return [self.nonce, *(f"{self.nonce}.{child}" for child in range(self.children))]


_MIX = {
    Kind.PLAIN: 50, Kind.RETRIES: 10, Kind.DOOMED: 3, Kind.DELAYED: 10, Kind.LONG: 0.3, Kind.FLOW: 7, Kind.DEDUP: 8,
    Kind.GROUPED: 12,
}  # fmt: skip


def order_of(seed: int, number: int, *, lease: int) -> Order:
    """The same for the same seed, in every process."""
    chance = random.Random(f"{seed} order {number}")  # noqa: S311 - a plan, no secret
    kind = chance.choices(list(_MIX), list(_MIX.values()))[0]
    return Order(
        number=number,
        kind=kind,
        ms=int(lease * 1.5) if kind is Kind.LONG else chance.choice((0, 5, 20, 100, 400)),
        named=chance.random() < 0.5,
        fails=chance.choice((1, 1, 2)) if kind is Kind.RETRIES else 0,
        delay=chance.randrange(50, 3000) if kind is Kind.DELAYED else 0,
        children=chance.choice((1, 2, 3)) if kind is Kind.FLOW else 0,
        key=f"k{chance.randrange(12)}" if kind in {Kind.DEDUP, Kind.GROUPED} else None,
    )
