"""Toril beside BullMQ for Node and BullMQ's port to Python, on the same Redis, by turns in one run.

    python -m bench.redis_peers [--jobs N] [--rounds N] [--latency-jobs N]

No-op jobs of about 100 bytes, added in bulk beforehand, one worker process at concurrency 100; the rate is jobs over
the time from the first handler to the last. The Python port gets a tenth of the jobs. Redis is one of its own, on
loopback, without persistence, emptied before each turn. `make node` installs BullMQ for Node; its port to Python goes
into `.bench/`.
"""

import argparse
import socket
import sys
from collections.abc import Callable, Mapping, Sequence

from tests.servers import RedisServer

from bench.beside import ROOT, Figures, by_turns, figures, interpreter, machine, print_rates

PORT_OF_BULLMQ = "bullmq==3.4.4"
MODULES = ROOT / "tests" / "interop" / "node" / "node_modules"

Measure = Callable[[], Figures]


def asked(server: RedisServer, command: str) -> str:
    """What Redis answers to a command, as text."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(f"{command}\r\n".encode())
        answer = connection.recv(65_536)
        while answer.startswith(b"$") and len(answer) < int(answer[1 : answer.index(b"\r")]):
            answer += connection.recv(65_536)
        return answer.decode()


def processor_time(server: RedisServer) -> float:
    """Seconds that Redis has used so far."""
    lines = dict(line.split(":") for line in asked(server, "INFO CPU").splitlines() if ":" in line)
    return float(lines["used_cpu_user"]) + float(lines["used_cpu_sys"])


def on_empty(server: RedisServer, command: Sequence[str]) -> Measure:
    """The measurement on an empty Redis, with what Redis itself used."""

    def measure() -> Figures:
        asked(server, "FLUSHALL")
        before = processor_time(server)
        found = figures(command)
        return {**found, "redis": processor_time(server) - before}

    return measure


def peers(server: RedisServer, python: str, what: str, jobs: int, slots: int) -> Mapping[str, Measure]:
    """The three of them, at `drain` or `latency`."""
    port, size = str(server.port), ["--jobs", str(jobs)]
    ours = [sys.executable, "-m", f"bench.{what}", server.url, *size]
    node = ["node", "bench/peers/bullmq_node.mjs", str(MODULES), port, what, str(jobs), str(slots)]
    fewer = max(100, jobs // 10) if what == "drain" else jobs
    theirs = [python, "bench/peers/bullmq_python.py", port, what, str(fewer), str(slots)]
    return {
        "Toril": on_empty(server, ours),
        "bullmq for Node": on_empty(server, node),
        PORT_OF_BULLMQ: on_empty(server, theirs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--latency-jobs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not MODULES.exists():
        sys.exit("BullMQ for Node is missing: run  make node")
    python = interpreter("bullmq", PORT_OF_BULLMQ, "hiredis==3.5.0")
    server = RedisServer().start()
    try:
        drained = by_turns(options.rounds, peers(server, python, "drain", options.jobs, 100))
        waited = by_turns(options.rounds, peers(server, python, "latency", options.latency_jobs, 10))
        version = next(line for line in asked(server, "INFO SERVER").splitlines() if "redis_version" in line)
    finally:
        server.stop()
    print(f"{machine()}, {version}; {options.jobs} jobs, medians of {options.rounds} rounds by turns")
    report(drained, waited)


def report(drained: Mapping[str, Sequence[Figures]], waited: Mapping[str, Sequence[Figures]]) -> None:
    def each(found: Mapping[str, Sequence[Figures]], of: Callable[[Figures], float]) -> dict[str, list[float]]:
        return {name: [of(one) for one in rounds] for name, rounds in found.items()}

    print_rates("working off, jobs a second (times the others)", each(drained, lambda one: one["jobs"] / one["drain"]))
    print_rates("adding in bulk, jobs a second", each(drained, lambda one: one["jobs"] / one["add"]))
    micro = " us"
    print_rates("the worker's processor time a job", each(drained, lambda one: one["cpu"] / one["jobs"] * 1e6), micro)
    print_rates("Redis's, whole life", each(drained, lambda one: one["redis"] / one["jobs"] * 1e6), micro)
    print_rates("picked up after, p50", each(waited, lambda one: one["p50"] * 1000), micro)
    print_rates("picked up after, p99", each(waited, lambda one: one["p99"] * 1000), micro)


if __name__ == "__main__":
    main()
