"""What is measured, as data: one line a case."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Literal

from bench.installing import ROOT, Unusable
from bench.measuring import Figures, adding, behind, draining, idling, latency
from bench.roster import PEERS, Peer
from bench.stand import Stand

__all__ = ["CASES", "Case", "Sample", "run"]

MOST = 20_000  # jobs
IO_JOBS = 2_000
LIGHT_JOBS = 400  # the slowest hundredth is four of them
GROWTH_JOBS = 20_000
GROWTH_ROUNDS = 5  # what is to be seen is smaller than what rounds differ by
BOTH = ("toril", "bullmq-node")
APPEND_ONLY = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")

Measure = Callable[[Stand, Peer, float], Figures]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to measure, for the peers that have it."""

    name: str
    title: str
    measure: Measure
    store: Literal["redis", "file"] = "redis"
    slots: int | None = None  # only peers that can run so many at once
    peers: tuple[str, ...] = ()  # only these
    bulk: Literal["needed", ""] = ""
    server: tuple[str, ...] = ()
    rounds: int | None = None
    beside: str = ""  # cases of one such name are measured by turns, each on a server of its own

    def fits(self, peer: Peer) -> bool:
        return (
            peer.store == self.store
            and (not self.peers or peer.name in self.peers)
            and (not peer.cases or self.name in peer.cases)
            and (self.slots is None or self.slots in peer.slots)
            and (not self.bulk or peer.bulk != "none")
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: figures, or why there are none."""

    case: str
    peer: str
    turn: int
    figures: Figures
    failed: str = ""
    first_try: str = ""  # why it failed, where the second did not


def _added(verb: str) -> Measure:
    return lambda stand, peer, scale: adding(stand, peer, verb, _size(peer, verb, scale))


def _drained(slots: int | None = None, *, processes: int = 1, default_log: bool = False) -> Measure:
    def measure(stand: Stand, peer: Peer, scale: float) -> Figures:
        chosen = peer.slots[-1] if slots is None else slots
        jobs = _size(peer, str(chosen), scale * processes)
        return draining(stand, peer, chosen, jobs, processes=processes, default_log=default_log)

    return measure


def _waited(stand: Stand, peer: Peer, _: float) -> Figures:
    return draining(stand, peer, 100, IO_JOBS, "io")


def _light(stand: Stand, peer: Peer, scale: float) -> Figures:
    return latency(stand, peer, min(10, peer.slots[-1]), round(LIGHT_JOBS * scale))


def _grown(shape: str, backlog: int) -> Measure:
    def measure(stand: Stand, peer: Peer, scale: float) -> Figures:
        return behind(stand, peer, 100, round(GROWTH_JOBS * scale), shape, backlog)

    return measure


def _idle(peer: Peer) -> Figures:
    return idling(peer, min(10, peer.slots[-1]))


def _size(peer: Peer, what: str, scale: float) -> int:
    """As many jobs as take this peer the better part of a second."""
    return max(50, min(MOST, round(peer.rate(what) * scale * 0.8)))


SIZES = {"1k": 1_000, "100k": 100_000, "1m": 1_000_000}
SHAPES = ("waiting", "delayed", "prioritized")

CASES = {
    case.name: case
    for case in (
        Case(name="one", title="added one by one", measure=_added("one")),
        Case(name="bulk", title="added in bulk", measure=_added("many"), bulk="needed"),
        *(
            Case(name=f"drain-{slots}", title=f"worked off, {slots} at once", measure=_drained(slots), slots=slots)
            for slots in (1, 10, 100)
        ),
        Case(
            name="drain-100-log", title="worked off, 100 at once, with its default log",
            measure=_drained(100, default_log=True), slots=100,
        ),
        Case(name="io", title="2,000 jobs of 10 ms, 100 at once", measure=_waited, slots=100),
        Case(name="latency", title="picked up at light load", measure=_light),
        Case(name="processes", title="worked off by two processes", measure=_drained(processes=2), rounds=2),
        Case(name="idle", title="with nothing to do", measure=lambda _, peer, __: _idle(peer), rounds=1),
        *(
            Case(
                name=f"aof-{name}", title=f"with AOF: {title}", measure=measure, peers=BOTH, server=APPEND_ONLY
            )
            for name, title, measure in (
                ("one", "added one by one", _added("one")),
                ("bulk", "added in bulk", _added("many")),
                ("drain", "worked off, 100 at once", _drained(100)),
            )
        ),
        Case(name="file-one", title="on a file: added one by one", measure=_added("one"), store="file"),
        Case(name="file-bulk", title="on a file: added in bulk", measure=_added("many"), store="file", bulk="needed"),
        Case(name="file-drain", title="on a file: worked off", measure=_drained(), store="file"),
        Case(
            name="file-drain-log", title="on a file: worked off, with its default log",
            measure=_drained(default_log=True), store="file", peers=("toril-file", "huey-file"),
        ),
        Case(
            name="file-latency", title="on a file: picked up at light load", measure=_light, store="file",
            peers=("toril-file", "huey-file"),
        ),
        Case(
            name="file-idle", title="on a file: with nothing to do", measure=lambda _, peer, __: _idle(peer),
            store="file", peers=("toril-file", "huey-file"), rounds=1,
        ),
        *(
            Case(
                name=f"grow-{shape}-{size}", title=f"worked off with {size} {shape}",
                measure=_grown(shape, SIZES[size]), peers=BOTH, beside=f"grow-{shape}",
                rounds=1 if size == "100k" else GROWTH_ROUNDS,
            )
            for shape in SHAPES
            for size in SIZES
        ),
    )
}  # fmt: skip


def run(
    cases: list[Case], peers: list[Peer], *, rounds: int, scale: float, tell: Callable[[str], None]
) -> Iterator[Sample]:
    """Case after case; in each, round after round; in each of these every peer once, by turns. Who fails is out."""
    for _, some in groupby(cases, key=lambda case: case.beside or case.name):
        group = list(some)
        chosen = [peer for peer in peers if group[0].fits(peer)]
        for sample in _all_rounds(group, chosen, rounds, scale):
            tell(_line(sample))
            if sample.failed:
                chosen[:] = [peer for peer in chosen if peer.name != sample.peer]
            yield sample


def _all_rounds(cases: list[Case], peers: list[Peer], rounds: int, scale: float) -> Iterator[Sample]:
    case = cases[0]
    if case.beside:
        yield from _side_by_side(cases, peers, rounds, scale)
    elif case.name in {"idle", "file-idle"}:
        yield from _together(case, peers)
    else:
        for turn in range(1, (case.rounds or rounds) + 1):
            yield from _by_turns(case, peers, turn, scale)


def _by_turns(case: Case, peers: list[Peer], turn: int, scale: float) -> Iterator[Sample]:
    """Every peer once, on a new server: what hashes weigh depends on its random seed."""
    if not peers:
        return
    stand = Stand(persistence=case.server) if case.server else Stand()
    try:
        for peer in peers[:]:  # those that fail are taken out
            yield _sample(case, peer, turn, partial(case.measure, stand, peer, scale))
    finally:
        stand.close()


def _side_by_side(cases: list[Case], peers: list[Peer], rounds: int, scale: float) -> Iterator[Sample]:
    """Cases that are to be compared: each on a server of its own for all rounds, one right after the other.

    Before the first round, one peer goes through all of them uncounted: that makes the backlogs.
    """
    with ExitStack() as stack:
        stands = {case.name: stack.enter_context(closing(Stand())) for case in cases if peers}
        for turn in range(max(case.rounds or rounds for case in cases) + 1):
            for peer in peers[:] if turn > 0 else peers[:1]:
                for case in cases if turn % 2 == 0 else cases[::-1]:  # none is always the first
                    if turn > (case.rounds or rounds):
                        continue
                    sample = _sample(case, peer, turn, partial(case.measure, stands[case.name], peer, scale))
                    if turn > 0 or sample.failed:
                        yield sample


def _together(case: Case, peers: list[Peer]) -> Iterator[Sample]:
    """Those that idle do so side by side, each on a server of its own: it does not show in the others' figures."""
    with ThreadPoolExecutor(max(1, len(peers))) as pool:
        yield from pool.map(lambda peer: _sample(case, peer, 1, partial(_idle, peer)), peers)


def _sample(case: Case, peer: Peer, turn: int, measure: Callable[[], Figures]) -> Sample:
    """One measurement, and another try if that fails: a long run is not to lose a peer to a moment's trouble.
    Whatever goes wrong is of this peer only."""
    troubles: list[str] = []
    while len(troubles) < 2:
        try:
            return Sample(case.name, peer.name, turn, measure(), first_try="".join(troubles))
        except Unusable as error:
            troubles.append(str(error).replace(str(ROOT), "."))
        except Exception as error:
            troubles.append(f"{type(error).__name__}: {error}")
    return Sample(case.name, peer.name, turn, {}, troubles[-1])


def _line(sample: Sample) -> str:
    figures = [
        f"{name} {value:,.0f}" if value >= 100 else f"{name} {value:.3g}" for name, value in sample.figures.items()
    ]
    told = sample.failed or ", ".join(figures)
    if sample.first_try:
        told += f" (at the second try; the first failed: {sample.first_try})"
    return f"{CASES[sample.case].title}; {PEERS[sample.peer].title}; round {sample.turn}: {told}"
