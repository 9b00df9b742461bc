"""Toril beside SqliteHuey, both on a SQLite file at FULL sync, by turns in one run.

    python -m bench.huey_peer [--jobs N] [--rounds N]

No-op jobs of about 100 bytes, added beforehand; the rate is jobs over the time from the first handler to the last.
Toril is one process with `app.run()` at concurrency 100. Huey is taken as its consumer, and as a bare loop around its
dequeue and execute, which spares it threads and scheduler. It is installed into `.bench/`.
"""

import argparse
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.beside import Figures, by_turns, figures, interpreter, machine, print_rates

HUEY = "huey==3.5.4"


def on_a_file(command: Callable[[Path], Sequence[str]]) -> Callable[[], Figures]:
    """The measurement on a new file each time."""

    def measure() -> Figures:
        with tempfile.TemporaryDirectory() as folder:
            return figures(command(Path(folder, "jobs.db")))

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    jobs, python = str(options.jobs), interpreter("huey", HUEY)
    huey = [python, "bench/peers/huey_drain.py"]
    found = by_turns(
        options.rounds,
        {
            "Toril": on_a_file(lambda file: [sys.executable, "-m", "bench.drain", f"sqlite:///{file}", "--jobs", jobs]),
            f"{HUEY}, consumer": on_a_file(lambda file: [*huey, str(file), jobs, "consumer"]),
            f"{HUEY}, bare loop": on_a_file(lambda file: [*huey, str(file), jobs, "loop"]),
        },
    )
    print(f"{machine()}, SQLite {sqlite3.sqlite_version}; {jobs} jobs, medians of {options.rounds} rounds by turns")
    for title, key in (("working off, jobs a second (times the others)", "drain"), ("adding, jobs a second", "add")):
        print_rates(title, {name: [one["jobs"] / one[key] for one in all_] for name, all_ in found.items()})
    print_rates(
        "processor time of the worker, microseconds a job",
        {name: [one["cpu"] / one["jobs"] * 1e6 for one in all_] for name, all_ in found.items()},
        unit=" us",
    )


if __name__ == "__main__":
    main()
