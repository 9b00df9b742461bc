"""Run a kept plan or a seed again, and say what happens.

.venv/bin/python -m tests.sim.replay tests/seeds/NAME.json    what is in the file, in its world and on its store
.venv/bin/python -m tests.sim.replay 42                       the plan that the seed stands for, in memory
.venv/bin/python -m tests.sim.replay 42 --kind flows --store redis
.venv/bin/python -m tests.sim.replay 42 --trace               every step
.venv/bin/python -m tests.sim.replay 42 --keep                make it as small as it can be, and keep it in tests/seeds/
.venv/bin/python -m tests.sim.replay 42 --mutant NAME         with a planted bug; TORIL_MUTANT=NAME does the same
.venv/bin/python -m tests.sim.replay 0 1 FILE --hash          only what was run, and trace hashes
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from tests.sim.bugs import BUGS, chosen
from tests.sim.kept import KINDS, SEEDS, STORES, Kept, Trial, command, keep
from tests.sim.result import Result

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """The exit status says whether something was violated."""
    asked = _parser().parse_args(arguments)
    bad = 0
    with BUGS[asked.mutant].planted() if asked.mutant else chosen():
        for name in asked.plans:
            found = None if name.isdecimal() else Kept.read(Path(name))
            trial = Trial.draw(asked.kind, int(name)) if found is None else found.trial
            trial = replace(trial, store=asked.store or trial.store)
            result = trial.run(trace=asked.trace)
            bad += bool(result.violations)
            print(f"{name} {result.hash}" if asked.hash else _told(result, found))
            if asked.keep and result.violations:
                path = keep(trial)
                assert path is not None
                print(f"kept as {path}; replay with  {command(path, asked.mutant)}")
    return 1 if bad else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.replay", description="Run plans of the simulator again.")
    parser.add_argument("plans", nargs="+", metavar="FILE|SEED", help="a file with a plan, or a seed")
    parser.add_argument("--kind", choices=KINDS, default="plain", help="which kind of plan a seed stands for")
    parser.add_argument("--store", choices=STORES, help="another store than the file's; memory for seeds")
    parser.add_argument("--trace", action="store_true", help="print every step")
    parser.add_argument("--hash", action="store_true", help="print what was run and its trace hash only")
    parser.add_argument("--keep", action="store_true", help=f"make it small, and keep it in {SEEDS.name}/")
    parser.add_argument("--mutant", choices=sorted(BUGS), help="plant this bug first")
    return parser


def _told(result: Result, found: Kept | None) -> str:
    lines = [f"world {result.world}, store {result.store}, {result.plan}", *result.lines]
    lines += [f"{count:6} {what}" for what, count in sorted(result.tally.items())]
    lines.append(f"{result.jobs} jobs, {result.effects} effects, {result.seconds:.1f} s of virtual time")
    lines.append(f"trace {result.hash}")
    if found is not None:
        lines.append(f"kept at {found.commit}: {found}")
        if found.trace:
            same = "the same" if found.trace == result.hash else "another"
            lines.append(f"the trace is {same} as when it was kept")
    lines.append(str(result) if result.violations else "nothing violated")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
