"""What runs of the simulator add to the figures of the gate."""

from collections import Counter

from tests.proof import prove
from tests.sim.faults import KIND, Fault

__all__ = ["prove_seed"]


def prove_seed(tally: Counter[str], jobs: int = 0) -> None:
    """One seed on which nothing was planted."""
    faults = {fault.value: tally[fault] for fault in Fault if tally[fault]}
    prove("T1", jobs=jobs)
    prove("T2", faults=sum(faults.values()))
    prove("kinds of fault", **{key.removeprefix(KIND): count for key, count in tally.items() if key.startswith(KIND)})
    prove("T3", seeds=1)
