"""Toril beside its peers, by turns in one run.

    python -m bench [--peers toril,bullmq-node] [--cases drain-100,latency] [--rounds 3] [--scale 1] [--quick]

Writes .bench/results.json, .bench/results.md and .bench/charts/*.svg. See docs/performance.md.
"""

import argparse
import signal
import sys
import time
from dataclasses import replace

from bench.cases import CASES, run
from bench.charts import draw
from bench.installing import KEPT, Unusable, command
from bench.results import Results
from bench.roster import PEERS
from bench.tables import whole

QUICK_CASES = ("one", "bulk", "drain-1", "drain-100", "io", "latency", "idle", "file-drain")
QUICK_PEERS = ("toril", "bullmq-node", "bullmq-py", "dramatiq", "toril-file", "huey-loop")


def chosen(given: str | None, known: list[str], usual: list[str]) -> list[str]:
    """The names on the command line, or the usual ones."""
    names = given.replace(",", " ").split() if given else usual
    for name in names:
        if name not in known:
            sys.exit(f"there is no {name!r}; there are {', '.join(known)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers")
    parser.add_argument("--cases")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--quick", action="store_true", help="one round with fewer jobs, of the main cases and peers")
    parser.add_argument("--scale", type=float, default=None, help="so many times the usual number of jobs")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    quick = options.quick
    peers = chosen(options.peers, list(PEERS), list(QUICK_PEERS if quick else PEERS))
    cases = chosen(options.cases, list(CASES), list(QUICK_CASES if quick else CASES))
    for name in peers:
        try:
            command(PEERS[name])
        except Unusable as error:  # told again where its figures would be
            tell(f"{name}: {error}")
    began = time.monotonic()
    rounds, scale = options.rounds or (1 if quick else 3), options.scale or (0.5 if quick else 1.0)
    results = Results.begun(rounds, scale)
    for sample in run([CASES[name] for name in cases], [PEERS[name] for name in peers], rounds=rounds, scale=scale,
                      tell=tell):  # fmt: skip
        results.samples.append(sample)
        results.write(KEPT / "results.json")  # what has been measured is there, whatever happens next
    results = replace(results, minutes=round((time.monotonic() - began) / 60))
    results.write(KEPT / "results.json")
    text = whole(results)
    (KEPT / "results.md").write_text(text, "utf-8")
    draw(results, KEPT / "charts")
    print(text)
    tell(f"{time.monotonic() - began:.0f} seconds; also in .bench/results.json, .bench/results.md and .bench/charts/")


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
