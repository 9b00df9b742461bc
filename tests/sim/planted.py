"""Planted bugs, looked for with seeds that nobody has chosen: `python -m tests.sim.planted [NAME ...]`.

For each bug up to 60 new seeds are run, until one finds it. The seeds come from TORIL_BLIND, or else from today's date:
the same word gives the same seeds. What was found and what was missed is printed, and noted for figure T9 of the gate.
Ends with 1 if a bug was missed.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from tests.proof import prove
from tests.sim.bugs import BUGS, blind_trials, violation

__all__ = ["SEEDS", "Hunt", "hunt", "main"]

SEEDS = 60


@dataclass(frozen=True, slots=True)
class Hunt:
    """One bug: the run that found it after `seeds` of them and the rule that was broken, or nothing."""

    name: str
    seeds: int
    seconds: float
    trial: str = ""
    rule: str = ""

    @property
    def found(self) -> bool:
        return bool(self.trial)

    def __str__(self) -> str:
        after = f"{self.seeds:3} seeds, {self.seconds:5.1f} s"
        return f"{after}  {self.name:45} {f'{self.rule}: {self.trial}' if self.found else 'MISSED'}"


def hunt(name: str, base: str, most: int = SEEDS) -> Hunt:
    """Look for one bug with new seeds."""
    bug, began, number = BUGS[name], time.process_time(), 0
    for number, trial in enumerate(blind_trials(bug, base, most), 1):
        seen = violation(bug, trial)
        if seen is not None:
            return Hunt(name, number, time.process_time() - began, trial.name, seen.row)
    return Hunt(name, number, time.process_time() - began)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    print(
        f"{len(asked.names or BUGS)} planted bugs, up to {asked.seeds} seeds each, from TORIL_BLIND={asked.base}",
        flush=True,
    )
    hunts = []
    with ProcessPoolExecutor(asked.processes) as pool:
        for each in pool.map(partial(hunt, base=asked.base, most=asked.seeds), asked.names or BUGS):
            hunts.append(each)
            print(each, flush=True)
            prove("T9", blind=1, found_blind=int(each.found))
            if not each.found:
                prove("missed blind", **{each.name: 1})
    prove("blind bases", **{asked.base: 1})
    print(_summary(hunts))
    return int(not all(each.found for each in hunts))


def _summary(hunts: Iterable[Hunt]) -> str:
    hunts = list(hunts)
    missed = [each.name for each in hunts if not each.found]
    counts = sorted((each.seeds for each in hunts if each.found), reverse=True)
    told = f"{len(hunts) - len(missed)} of {len(hunts)} found; the most seeds that were needed: {counts[:10]}"
    return f"{told}\nmissed: {', '.join(missed)}" if missed else told


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.planted", description="Look for planted bugs blindly.")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *BUGS], help="all bugs, unless some are named")
    today = datetime.now(UTC).date().isoformat()
    parser.add_argument("--base", default=os.environ.get("TORIL_BLIND") or today, help="what the seeds are drawn from")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many for each bug, at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="how many to look in at the same time")
    return parser


if __name__ == "__main__":
    sys.exit(main())
