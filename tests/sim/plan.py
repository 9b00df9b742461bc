"""What a seed stands for: the fleet, the jobs, the terms and the faults of one simulation."""

from dataclasses import dataclass

from tests.sim.client import Terms
from tests.sim.clock import stream
from tests.sim.faults import Fault, draw_mix

__all__ = ["QUEUE", "Plan"]

QUEUE = "q"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is drawn beforehand. Times are milliseconds, where they are not said to be seconds."""

    seed: int
    workers: int
    producers: int
    jobs: int
    terms: Terms
    interval: int
    concurrency: int | None
    storm: float
    patience: float
    mix: dict[Fault, float]
    operator: bool
    supervised: bool
    skew: int

    @classmethod
    def draw(cls, seed: int) -> "Plan":
        chance = stream(seed, "plan")
        lease = chance.choice((400, 1000, 3000))
        terms = Terms(
            queue=QUEUE,
            slots=chance.choice((1, 2, 4)),
            lease=lease,
            max_stalls=chance.choice((0, 1, 1, 1, 2)),
            tries=chance.choice((2, 4, 8)),
            patience=chance.choice((2_000, 10_000, 60_000)),
        )
        return cls(
            seed=seed,
            workers=chance.choice((1, 1, 2, 2, 2, 3, 4, 8)),
            producers=chance.choice((1, 1, 2)),
            jobs=chance.randint(6, 18),
            terms=terms,
            interval=chance.choice((lease // 2, lease)),
            concurrency=chance.choice((None, None, None, 1, 3)),
            storm=chance.uniform(1, 4),
            patience=chance.choice((0.1, 0.5)),
            mix=draw_mix(chance),
            operator=chance.random() < 0.6,
            supervised=chance.random() < 0.5,
            skew=chance.choice((0, 0, -7_200_000, 7_200_000)),
        )
