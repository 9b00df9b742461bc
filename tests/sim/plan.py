"""What a seed stands for: the fleet, the jobs, the terms and the faults of one simulation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tests.sim.clock import stream
from tests.sim.faults import Fault, draw_mix
from tests.sim.script import QUEUE, Kind, draw_weights

__all__ = ["GROUPED", "QUEUE", "Plan", "Terms"]

GROUPED = 5_000  # from this seed on jobs are of groups, of which one runs at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a worker works. The lease is in milliseconds, the grace in seconds."""

    slots: int = 1
    lease: int = 3000
    max_stalls: int = 1
    grace: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is drawn beforehand. Times are seconds, where they are not said to be milliseconds."""

    seed: int
    workers: int
    producers: int
    jobs: int
    terms: Terms
    concurrency: int | None
    storm: float
    patience: float
    mix: dict[Fault, float]
    weights: Mapping[Kind, float]
    operator: bool
    supervised: bool
    skew: int
    farewell: Literal["none", "stop", "force", "order"]
    clerk: bool = False
    grouped: bool = False

    @classmethod
    def draw(cls, seed: int) -> "Plan":
        chance = stream(seed, "plan")
        terms = Terms(
            slots=chance.choice((1, 2, 4)),
            lease=chance.choice((1000, 3000, 3000, 10_000)),
            max_stalls=chance.choice((0, 1, 1, 1, 2)),
            grace=chance.choice((0.2, 2.0, 10.0)),
        )
        return cls(
            seed=seed,
            workers=chance.choice((1, 1, 2, 2, 3, 5)),
            producers=chance.choice((1, 1, 2)),
            jobs=chance.randint(6, 18),
            terms=terms,
            concurrency=chance.choice((None, None, None, None, 1, 3)),
            storm=chance.uniform(2, 4 + terms.lease / 1000),
            patience=chance.choice((0.1, 0.5)),
            mix=draw_mix(chance),
            weights=draw_weights(chance),
            operator=chance.random() < 0.6,
            supervised=chance.random() < 0.5,
            skew=chance.choice((0, 0, -7_200_000, 7_200_000)),
            farewell=chance.choice(("none", "stop", "stop", "force", "order")),
            grouped=seed >= GROUPED,
            clerk=seed % 10 in {5, 6},  # not drawn: the others stay as they are known
        )
