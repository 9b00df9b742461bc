"""The same faults, from the same seeds, for Toril and for others.

    python -m bench.scorecard [--seeds N] [--minutes M] [--jobs N] [--peer NAME]... [--write]

Three worker processes of eight slots and two producers, each on a wire of its own to a Redis of the peer's own, which
keeps an append-only file. Jobs of 0 to 400 ms. Killed processes are started again. `--write` keeps the figures in
`bench/scorecard/results.json` and puts the table into `docs/reliability.md`.
"""

import argparse
import asyncio
import json
import os
import platform
from collections import defaultdict

from bench.scorecard.page import PAGE, RESULTS, rendered, with_table
from bench.scorecard.stand import PEERS, Figures, Run, tortured, version


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--peer", action="append", choices=PEERS)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    found: dict[str, list[Figures]] = defaultdict(list)
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        for peer in chosen.peer or PEERS:
            figures = asyncio.run(tortured(peer, Run(seed=seed, jobs=chosen.jobs, seconds=chosen.minutes * 60)))
            print(f"seed {seed}, {peer}: {figures}", flush=True)
            found[peer].append(figures)
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    document = {
        "machine": machine, "seeds": chosen.seeds, "minutes": chosen.minutes, "jobs": chosen.jobs,
        "peers": {peer: {"version": version(peer), "runs": runs} for peer, runs in found.items()},
    }  # fmt: skip
    print(rendered(document))
    if chosen.write:
        RESULTS.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
        PAGE.write_text(with_table(PAGE.read_text("utf-8"), document), "utf-8")


if __name__ == "__main__":
    main()
