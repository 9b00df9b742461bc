"""What a run has found: samples, and what is told of them."""

import json
import os
import platform
import re
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.cases import Sample
from bench.installing import versions
from bench.roster import PEERS

__all__ = ["Results", "Spread"]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some rounds, and how far they lie apart."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(values: Iterable[float]) -> "Spread":
        found = list(values)
        return Spread(statistics.median(found), min(found), max(found))


@dataclass(frozen=True, slots=True)
class Results:
    """One run: where, when, with what, and every single measurement."""

    machine: str
    date: str
    rounds: int
    scale: float
    versions: dict[str, str]
    minutes: int = field(default=0, kw_only=True)  # that the run took
    samples: list[Sample]

    @staticmethod
    def begun(rounds: int, scale: float) -> "Results":
        told = {peer.title: versions(peer) for peer in PEERS.values()}
        return Results(_machine(), time.strftime("%Y-%m-%d", time.gmtime()), rounds, scale, told, [])

    @staticmethod
    def read(path: Path) -> "Results":
        found = json.loads(path.read_text("utf-8"))
        return Results(**found | {"samples": [Sample(**sample) for sample in found["samples"]]})

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        samples = ",\n".join("  " + json.dumps(_rounded(sample)) for sample in self.samples)
        rest = json.dumps(asdict(self) | {"samples": None}, indent=1).removesuffix("null\n}")
        path.write_text(f"{rest}[\n{samples}\n ]\n}}\n", "utf-8")

    def spread(self, case: str, peer: str, figure: str = "rate") -> Spread | None:
        """What this peer did; None if it has no figure there."""
        found = [
            sample.figures[figure]
            for sample in self.samples
            if (sample.case, sample.peer) == (case, peer) and figure in sample.figures
        ]
        return Spread.of(found) if found else None

    def median(self, case: str, peer: str, figure: str = "rate") -> float | None:
        found = self.spread(case, peer, figure)
        return None if found is None else found.median

    def compared(self, case: str, other: str, peer: str, figure: str = "rate") -> Spread | None:
        """One case by another, round for round: what slows the machine for a while slows both of a round."""
        found = {
            name: {
                s.turn: s.figures[figure]
                for s in self.samples
                if (s.case, s.peer) == (name, peer) and figure in s.figures
            }
            for name in (case, other)
        }
        ratios = [found[case][turn] / found[other][turn] for turn in found[case].keys() & found[other].keys()]
        return Spread.of(ratios) if ratios else None

    def peers(self, case: str) -> list[str]:
        """Those that took part, in the order of the roster."""
        took_part = {sample.peer for sample in self.samples if sample.case == case}
        return [name for name in PEERS if name in took_part]

    def failures(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.failed or sample.first_try]

    def cases(self) -> set[str]:
        return {sample.case for sample in self.samples}


def _rounded(sample: Sample) -> dict[str, object]:
    return asdict(sample) | {"figures": {name: round(value, 3) for name, value in sample.figures.items()}}


def _machine() -> str:
    """The machine, as far as the figures depend on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        memory = Path("/proc/meminfo").read_text("utf-8").split()[1]
        model = f"{model}, {round(int(memory) / 2**20)} GB"
    except (OSError, StopIteration):
        model = platform.machine()
    parts = [f"{os.cpu_count()} cores of {model}", f"{platform.system()} {platform.release().split('-')[0]}"]
    parts += [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    return ", ".join([*parts, *_told("redis-server", "Redis"), *_told("node", "Node")])


def _told(program: str, name: str) -> list[str]:
    """The version that a program tells of itself, as `v=7.0.15` or `v20.1.0`."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    found = re.search(r"v=?(\d[\d.]*)", said)
    return [f"{name} {found[1]}"] if found else []
