"""What one Redis gives with several worker processes: the server's and the workers' CPU a job, and jobs a call.

    python -m bench.processes [--jobs N] [--rounds N] [--workers 1,2,4,8] [--slots N] [--pinned]

No-op jobs that wait already, 100 at once in each process, worked off by `toril run --processes N`; by turns, medians.
`--pinned`: the server has the last core for itself, and all workers share the others. The last column is what the
server could do at most if it had a core for itself and the workers had as many as they want: a second by its CPU time
a job.
"""

import argparse
import os
import statistics
from collections.abc import Iterable
from contextlib import closing

from bench.measuring import Figures, draining
from bench.roster import PEERS
from bench.stand import Stand

__all__ = ["main"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--pinned", action="store_true")
    options = parser.parse_args()
    numbers = [int(number) for number in options.workers.split(",")]
    found: dict[int, list[Figures]] = {number: [] for number in numbers}
    before = os.sched_getaffinity(0)
    if options.pinned and len(before) < 2:
        parser.error("--pinned needs two cores")
    cores = sorted(before)
    try:
        for turn in range(options.rounds):
            for number in numbers if turn % 2 == 0 else numbers[::-1]:
                if options.pinned:
                    os.sched_setaffinity(0, cores[-1:])  # what is started has the cores of whoever starts it
                with closing(Stand()) as stand:
                    if options.pinned:
                        os.sched_setaffinity(0, cores[:-1])
                    found[number].append(draining(stand, PEERS["toril"], options.slots, options.jobs, processes=number))
    finally:
        os.sched_setaffinity(0, before)
    print("workers     jobs/s   worker µs/job   server µs/job   commands/job   jobs/call   server's limit /s")
    for number, samples in found.items():
        server = _median(samples, "redis")
        print(
            f"{number:7} {_median(samples, 'rate'):10,.0f} {_median(samples, 'worker'):15.1f} {server:15.1f}"
            f" {_median(samples, 'commands'):14.2f} {1 / _median(samples, 'scripts'):11.1f} {1e6 / server:19,.0f}"
        )


def _median(samples: Iterable[Figures], figure: str) -> float:
    return statistics.median(sample[figure] for sample in samples)


if __name__ == "__main__":
    main()
