"""What Toril has set itself, as ratios against the peers of the same run, and whether it is met."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from bench.results import Results
from bench.roster import PEERS

__all__ = ["NODE", "TARGETS", "TIMES", "Target", "best_rate", "ratio"]

TIMES = "\N{MULTIPLICATION SIGN}"
DRAINS = ("drain-1", "drain-10", "drain-100")
NODE = "bullmq-node"
FIRST_PORT = "bullmq-py"
OTHERS = [
    peer.name
    for peer in PEERS.values()
    if peer.store == "redis" and peer.language == "python" and not peer.ours and peer.name != FIRST_PORT
]
ACKNOWLEDGING = [
    peer.name for peer in PEERS.values() if peer.store == "redis" and peer.keeps == "until done" and not peer.ours
]
ACKNOWLEDGING_PYTHON = [name for name in ACKNOWLEDGING if PEERS[name].language == "python"]


@dataclass(frozen=True, slots=True)
class Target:
    """A figure of a run, and the bound that it should keep."""

    what: str
    against: str
    figure: Callable[[Results], float | None]
    bound: float
    side: Literal["at least", "at most"] = "at least"
    unit: str = TIMES

    def met(self, results: Results) -> bool | None:
        """None if the run does not say."""
        found = self.figure(results)
        if found is None:
            return None
        return found >= self.bound if self.side == "at least" else found <= self.bound


def ratio(one: float | None, other: float | None) -> float | None:
    """One by the other, where both are known."""
    return one / other if one is not None and other else None


def best_rate(results: Results, peers: Iterable[str], cases: Iterable[str] = DRAINS) -> float | None:
    """The best that any of them did in any of these cases: a peer is taken at the number of slots that suits it."""
    chosen, among = list(cases), list(peers)
    found = [results.median(case, peer) for case in chosen for peer in among]
    return max((rate for rate in found if rate is not None), default=None)


def _drained(peers: Iterable[str]) -> Callable[[Results], float | None]:
    among = list(peers)
    return lambda results: ratio(results.median("drain-100", "toril"), best_rate(results, among))


def _one_slot(peers: Iterable[str]) -> Callable[[Results], float | None]:
    among = list(peers)
    return lambda results: ratio(results.median("drain-1", "toril"), best_rate(results, among, ["drain-1"]))


def _against_node(case: str) -> Callable[[Results], float | None]:
    return lambda results: ratio(results.median(case, "toril"), results.median(case, NODE))


def _picked_up(figure: str) -> Callable[[Results], float | None]:
    def found(results: Results) -> float | None:
        peers = [results.median("latency", peer, figure) for peer in ACKNOWLEDGING]
        best = min((value for value in peers if value is not None), default=None)
        return ratio(results.median("latency", "toril", figure), best)

    return found


def _grown(shape: str) -> Callable[[Results], float | None]:
    def found(results: Results) -> float | None:
        compared = results.compared(f"grow-{shape}-1m", f"grow-{shape}-1k", "toril")
        return None if compared is None else compared.median

    return found


def _of(case: str, figure: str, peer: str = "toril", scale: float = 1.0) -> Callable[[Results], float | None]:
    def found(results: Results) -> float | None:
        value = results.median(case, peer, figure)
        return None if value is None else value * scale

    return found


TARGETS = [
    Target("no-op jobs, 100 at once", "BullMQ (Node)", _drained([NODE]), 1.7),
    Target("the same, default logging", "BullMQ (Node)", _against_node("drain-100-log"), 1.8),
    Target(
        "the same, default logging", "Toril without logging",
        lambda results: ratio(results.median("drain-100-log", "toril"), results.median("drain-100", "toril")), 0.85,
    ),
    Target("no-op jobs, 100 at once", "bullmq (Python)", _drained([FIRST_PORT]), 12),
    Target("no-op jobs, 100 at once", "the best other Python peer", _drained(OTHERS), 6),
    Target("no-op jobs, one at a time", "BullMQ (Node)", _one_slot([NODE]), 1.1),
    Target("no-op jobs, one at a time", "the best Python peer that acknowledges", _one_slot(ACKNOWLEDGING_PYTHON), 1.2),
    Target("no-op jobs, one at a time", "Huey, which does not acknowledge", _one_slot(["huey"]), 1.0),
    Target("jobs of 10 ms, 100 at once", "the theoretical 10,000/s", _of("io", "rate", scale=0.01), 75, unit="%"),
    Target("added in bulk", "BullMQ (Node)", _against_node("bulk"), 3),
    Target("added one at a time", "BullMQ (Node)", _against_node("one"), 1.0),
    Target("latency, p50", "the best peer that acknowledges", _picked_up("p50"), 0.95, "at most"),
    Target("latency, p99", "the best peer that acknowledges", _picked_up("p99"), 1.0, "at most"),
    Target("idle: client commands per second, per queue", "", _of("idle", "asked"), 0.5, "at most", ""),
    Target("idle: memory of a worker process", "", _of("idle", "resident"), 45, "at most", "MB"),
    Target(
        "memory of a waiting job", "BullMQ (Node), same options",
        lambda results: ratio(*(results.median("bulk", peer, "bytes") for peer in ("toril", "bullmq-alike"))),
        1.0, "at most",
    ),
    Target(
        "no-op jobs on a file", "the faster SqliteHuey",
        lambda results: ratio(
            results.median("file-drain", "toril-file"),
            best_rate(results, ["huey-file", "huey-loop"], ["file-drain"]),
        ),
        7,
    ),
    Target("no-op jobs on a file, per second", "", _of("file-drain", "rate", "toril-file"), 25_000, unit=""),
    Target(
        "the same, default logging", "Toril without logging",
        lambda results: ratio(
            results.median("file-drain-log", "toril-file"), results.median("file-drain", "toril-file")
        ),
        0.85,
    ),
    Target(
        "added one at a time to a file", "SqliteHuey",
        lambda results: ratio(results.median("file-one", "toril-file"), results.median("file-one", "huey-file")), 1.0,
    ),
    Target("latency on a file, p50", "", _of("file-latency", "p50", "toril-file"), 3, "at most", "ms"),
    Target("latency on a file, p99", "", _of("file-latency", "p99", "toril-file"), 10, "at most", "ms"),
    Target("idle on a file: CPU", "", _of("file-idle", "cpu", "toril-file"), 0.5, "at most", "%"),
    *(
        Target(f"no-op jobs with 1,000,000 {shape}", "the same with 1,000", _grown(shape), 0.9)
        for shape in ("waiting", "delayed", "prioritized")
    ),
]  # fmt: skip
