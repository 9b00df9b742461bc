"""What benches against other systems share: interpreters for them, turns, and the table at the end."""

import json
import os
import platform
import statistics
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".bench"

Figures = Mapping[str, float]


def interpreter(name: str, *packages: str) -> str:
    """A Python of its own with these packages, pinned; made at the first use, so that ours stays as it is."""
    folder = KEPT / f"{name}-{'-'.join(package.replace('==', '-') for package in packages)}"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / ".ready").touch()
    return str(python)


def figures(command: Sequence[str], **environment: str) -> Figures:
    """Run one measurement in a process of its own, and read the JSON object that it prints last."""
    answer = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if answer.returncode:
        sys.exit(f"{' '.join(command)} failed with {answer.returncode}")
    found: Figures = json.loads(answer.stdout.splitlines()[-1])
    return found


def by_turns(rounds: int, peers: Mapping[str, Callable[[], Figures]]) -> dict[str, list[Figures]]:
    """Each peer once a round, so that what the machine does meanwhile meets all of them."""
    found: dict[str, list[Figures]] = {name: [] for name in peers}
    for turn in range(rounds):
        for name, measure in peers.items():
            print(f"round {turn + 1} of {rounds}: {name}", file=sys.stderr)
            found[name].append(measure())
    return found


def machine() -> str:
    """The machine, as far as the figures depend on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.machine()
    return f"{os.cpu_count()} x {model}, {platform.system()}, Python {platform.python_version()}"


def print_rates(title: str, rates: Mapping[str, Sequence[float]], unit: str = "/s") -> None:
    """Medians with their range, and how many times the others the first one is."""
    print(f"\n{title}")
    first = statistics.median(next(iter(rates.values())))
    for name, values in rates.items():
        median = statistics.median(values)
        print(
            f"  {name:28} {median:>10,.0f}{unit}   {first / median:6.2f}   ({min(values):,.0f} to {max(values):,.0f})"
        )
