"""A run as Markdown: the tables by name, as the documentation has them, and all of them."""

from collections.abc import Callable, Sequence

from bench.cases import CASES, SHAPES, SIZES, Sample
from bench.results import Results, Spread
from bench.roster import PEERS
from bench.targets import NODE, TARGETS, TIMES, ratio

__all__ = ["TABLES", "whole"]

NONE = "-"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown: the first column to the left, the others to the right."""
    assert all(len(row) == len(columns) for row in rows), columns
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float | None) -> str:
    """As many digits as such a measurement can bear."""
    if value is None:
        return NONE
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(found: Spread | None) -> str:
    """The median, and the range where there is one."""
    if found is None:
        return NONE
    if found.least == found.most:
        return number(found.median)
    return f"{number(found.median)} ({number(found.least)} to {number(found.most)})"


def times(value: float | None) -> str:
    return NONE if value is None else f"{number(value)} {TIMES}"


def about(results: Results) -> str:
    jobs = "" if results.scale == 1 else f" with {results.scale:g} times the usual number of jobs"
    several = f"medians of {results.rounds} alternating rounds, with ranges"
    rounds = "one round" if results.rounds == 1 else several
    took = f"; {results.minutes} minutes in all" if results.minutes else ""
    return f"{results.date}; {results.machine}; {rounds}{jobs}{took}."


def targets(results: Results) -> str:
    rows = []
    for target in TARGETS:
        found = target.figure(results)
        told = {True: "met", False: "**not met**", None: "not measured"}[target.met(results)]
        unit = f" {target.unit}" if target.unit else ""
        reached = NONE if found is None else f"{number(found)}{unit}"
        rows.append([target.what, target.against, f"{target.side} {target.bound:g}{unit}", reached, told])
    return table(["what", "compared with", "target", "reached", ""], rows)


def _rates(case: str) -> Callable[[Results], str]:
    def made(results: Results) -> str:
        return table(["", "jobs/s", "Toril is", "worker µs/job", "Redis µs/job", "commands/job", "worker MB"], [
            [
                PEERS[name].title, spread(results.spread(case, name)), _ahead(results, case, name),
                *(number(results.median(case, name, key)) for key in ("worker", "redis", "commands", "resident")),
            ]
            for name in results.peers(case)
        ])  # fmt: skip

    return made


def _ahead(results: Results, case: str, name: str) -> str:
    ours = next((peer for peer in results.peers(case) if PEERS[peer].ours), None)
    if ours is None or ours == name:
        return ""
    return times(ratio(results.median(case, ours), results.median(case, name)))


def slots(results: Results) -> str:
    cases = ["drain-1", "drain-10", "drain-100", "drain-100-log", "io", "processes"]
    names = [name for name in PEERS if any(name in results.peers(case) for case in cases)]
    rows = [[PEERS[name].title, *(spread(results.spread(case, name)) for case in cases)] for name in names]
    columns = [
        "1 at once",
        "10 at once",
        "100 at once",
        "100, default logging",
        "10 ms each, 100 at once",
        "2 processes",
    ]
    return table(["jobs/s", *columns], rows)


def adding(results: Results) -> str:
    columns = [
        "",
        "one at a time /s",
        "producer µs",
        "Redis µs",
        "in bulk /s",
        "producer µs",
        "Redis µs",
        "bytes per waiting job",
    ]
    rows = []
    for name in [name for name in PEERS if name in {*results.peers("one"), *results.peers("bulk")}]:
        weight = results.median("bulk", name, "bytes") or results.median("one", name, "bytes")
        row = [PEERS[name].title + {"gathered": " ¹", "own": "", "none": " ²"}[PEERS[name].bulk]]
        for case in ("one", "bulk"):
            row += [spread(results.spread(case, name))]
            row += [number(results.median(case, name, key)) for key in ("producer", "redis")]
        rows.append([*row, number(weight)])
    notes = "¹ No bulk call: calls are awaited in groups of 100. ² Neither bulk calls nor concurrent calls."
    return f"{table(columns, rows)}\n\n{notes}"


def latency(results: Results) -> str:
    rows = [
        [PEERS[name].title, *(spread(results.spread("latency", name, key)) for key in ("p50", "p95", "p99"))]
        for name in results.peers("latency")
    ]
    return table(["time to start, ms", "p50", "p95", "p99"], rows)


def idle(results: Results) -> str:
    columns = ["", "client commands/s", "including scripts/s", "CPU %", "worker MB", "other processes MB"]
    keys = ("asked", "commands", "cpu", "resident", "beside")
    rows = [
        [PEERS[name].title, *(number(results.median("idle", name, key)) for key in keys)]
        for name in results.peers("idle")
    ]
    return table(columns, rows)


def files(results: Results) -> str:
    rows = []
    for name in results.peers("file-drain") or results.peers("file-one"):
        ahead = _ahead(results, "file-drain", name)
        cases = ("file-one", "file-bulk", "file-drain", "file-drain-log")
        rates = [spread(results.spread(case, name)) for case in cases]
        waits = [spread(results.spread("file-latency", name, key)) for key in ("p50", "p99")]
        cpu = number(results.median("file-drain", name, "worker"))
        rest = number(results.median("file-idle", name, "cpu"))
        rows.append([PEERS[name].title, *rates, ahead, cpu, *waits, rest])
    columns = [
        "",
        "one at a time /s",
        "in bulk /s",
        "run /s",
        "run /s, default logging",
        "Toril is",
        "worker µs/job",
        "p50 ms",
        "p99 ms",
        "idle, CPU %",
    ]
    return table(columns, rows)


def growth(results: Results) -> str:
    rows = []
    for shape in SHAPES:
        for size in SIZES:
            case = f"grow-{shape}-{size}"
            row = [f"{SIZES[size]:,} {shape}"]
            for name in ("toril", NODE):
                least = None if size == "1k" else results.compared(case, f"grow-{shape}-1k", name)
                row += [spread(results.spread(case, name)), "" if size == "1k" else spread(least)]
                row += [number(results.median(case, name, key)) for key in ("redis", "commands")]
            rows.append(row)
    own = ("relative to 1,000", "Redis µs", "commands")
    return table(["backlog", "Toril /s", *own, "BullMQ /s", *own], rows)


def persistent(results: Results) -> str:
    rows = []
    for name, case in (("added one at a time", "one"), ("added in bulk", "bulk"), ("run, 100 at once", "drain")):
        ours, theirs = (results.spread(f"aof-{case}", peer) for peer in ("toril", NODE))
        ahead = ratio(ours.median if ours else None, theirs.median if theirs else None)
        rows.append([name, spread(ours), spread(theirs), times(ahead)])
    return table(["with an append-only file, jobs/s", "Toril", "BullMQ (Node)", "Toril is"], rows)


def failures(results: Results) -> str:
    """Whoever could not be measured is said to have been so, and why."""
    found = [f"- {PEERS[s.peer].title}, {CASES[s.case].title}: {_trouble(s)}" for s in results.failures()]
    return "\n".join(found) if found else "Every peer could be installed and run."


def _trouble(sample: Sample) -> str:
    return sample.failed or f"the first try failed ({sample.first_try}), the second did not"


def small(results: Results) -> str:
    """The few figures of the comparison."""
    rows = []
    for name in ("toril", NODE, "bullmq-py", "dramatiq", "huey", "taskiq", "celery", "rq"):
        if name not in results.peers("drain-1"):
            continue
        best = max((results.median(f"drain-{n}", name) or 0.0 for n in (1, 10, 100)), default=None)
        waits = [number(results.median("latency", name, key)) for key in ("p50", "p99")]
        rows.append([PEERS[name].title, number(best), number(results.median("one", name)), *waits])
    return table(["", "jobs run /s", "added one at a time /s", "time to start, p50 ms", "p99 ms"], rows)


TABLES: dict[str, Callable[[Results], str]] = {
    "about": about,
    "targets": targets,
    "drain": _rates("drain-100"),
    "slots": slots,
    "adding": adding,
    "latency": latency,
    "idle": idle,
    "processes": _rates("processes"),
    "growth": growth,
    "aof": persistent,
    "files": files,
    "failures": failures,
    "small": small,
    "versions": lambda results: "; ".join(f"{title}: {told}" for title, told in results.versions.items()) + ".",
}


def whole(results: Results) -> str:
    """Every table that the run has figures for."""
    needs = {"drain": "drain-100", "adding": "one", "latency": "latency", "idle": "idle", "processes": "processes",
             "growth": "grow-waiting-1k", "aof": "aof-drain", "files": "file-drain"}  # fmt: skip
    shown = [made(results) for name, made in TABLES.items() if needs.get(name) in {None, *results.cases()}]
    return "\n\n".join(shown) + "\n"
