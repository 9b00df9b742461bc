"""Run one seed again, and say what happens.

.venv/bin/python -m tests.sim.replay 42                     what the seed stands for, and what came of it
.venv/bin/python -m tests.sim.replay 42 --trace             every step
.venv/bin/python -m tests.sim.replay 42 --mutant NAME       with a planted bug; TORIL_MUTANT=NAME does the same
.venv/bin/python -m tests.sim.replay 0 1 2 --hash           only seeds and trace hashes
"""

import argparse
import sys

from tests.sim.bugs import BUGS, chosen
from tests.sim.plan import Plan
from tests.sim.world import Result, simulate

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """The exit status says whether something was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.replay", description="Run seeds of the simulator again.")
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--trace", action="store_true", help="print every step")
    parser.add_argument("--hash", action="store_true", help="print seed and trace hash only")
    parser.add_argument("--mutant", choices=sorted(BUGS), help="plant this bug first")
    asked = parser.parse_args(arguments)
    bad = 0
    with BUGS[asked.mutant].planted() if asked.mutant else chosen():
        for seed in asked.seeds:
            result = simulate(seed, trace=asked.trace)
            bad += bool(result.violations)
            print(f"{seed} {result.hash}" if asked.hash else _told(result))
    return 1 if bad else 0


def _told(result: Result) -> str:
    lines = [str(Plan.draw(result.seed)), *result.lines]
    lines += [f"{count:6} {what}" for what, count in sorted(result.tally.items())]
    lines.append(f"{result.jobs} jobs, {result.effects} effects, {result.seconds:.1f} s of virtual time")
    lines.append(f"trace {result.hash}")
    lines.append(str(result) if result.violations else "nothing violated")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
