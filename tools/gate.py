"""The figures of the gate, T1 to T15: `python -m tools.gate [--new]` adds up what the tests have noted in `.proof/`.

Prints a table and writes `.proof/gate.json`. Ends with 1 if something was lost, finished twice, stuck or not caught. A
figure that is merely smaller than what a release wants is no failure. `--new` forgets what was noted before.
"""

import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

__all__ = ["Row", "main", "rows", "totals"]

FOLDER: Final = Path(os.environ.get("TORIL_PROOF", Path(__file__).parents[1] / ".proof"))
FIGURES: Final = FOLDER / "figures.jsonl"
BEGAN: Final = FOLDER / "began"
GATE: Final = FOLDER / "gate.json"

Totals = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: what was found, what a release wants, and whether a promise was broken by it."""

    id: str
    what: str
    found: str
    release: str
    broken: bool = False


def totals(lines: Iterable[str]) -> dict[str, dict[str, float]]:
    """All that was noted, by figure: counts are added up, of what is named `longest` the largest stays."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for line in lines:
        noted: dict[str, Any] = json.loads(line)
        figure = found[noted.pop("figure")]
        for name, value in noted.items():
            before = figure.get(name, 0)
            figure[name] = max(before, value) if name == "longest" else before + value
    return found


def rows(found: Totals) -> list[Row]:
    def of(figure: str, name: str) -> float:
        return found.get(figure, {}).get(name, 0)

    def count(figure: str, name: str) -> str:
        return f"{of(figure, name):,.0f}"

    promises = found.get("T7", {})
    bad = {name: value for name, value in promises.items() if value}
    told = ", ".join(f"{name.replace('_', ' ')}: {value:,.0f}" for name, value in bad.items())
    bugs = found.get("planted bugs", {})  # by name: one that is looked for twice is one bug
    caught = sum(1 for times in bugs.values() if times)
    blind = f"{count('T9', 'found_blind')} of {count('T9', 'blind')}" if of("T9", "blind") else "not run"
    executions = of("T11", "executions") / (of("T11", "jobs") or 1)
    kinds = len(found.get("kinds of fault", {}))
    table = [
        Row("T1", "simulated jobs", count("T1", "jobs"), "10,000,000"),
        Row("T2", "simulated faults; kinds of fault", f"{count('T2', 'faults')}; {kinds}", "1,000,000"),
        Row("T3", "simulator seeds", count("T3", "seeds"), "50,000"),
        Row("T4", "jobs; faults in real processes", f"{count('T4', 'jobs')}; {count('T4', 'faults')}",
            "1,000,000; 5,000"),
        Row("T5", "power cuts; acknowledged jobs lost", f"{count('T5', 'cuts')}; {count('T5', 'lost')}", "400; 0",
            of("T5", "lost") > 0),
        Row("T6", "crash points tested", count("T6", "points"), "all"),
        Row("T7", "jobs lost, unexpected, finished twice, stuck, unexplained", told or "0", "0", bool(bad)),
        Row("T8", "replays with an identical trace", count("T8", "replays"), "1,000"),
        Row("T9", "planted bugs found by known seeds, longest; found blind",
            f"{caught} of {len(bugs)}, {of('T9', 'longest'):.0f} s; {blind}", "all, 60 s; all",
            caught < len(bugs) or of("T9", "found_blind") < of("T9", "blind")),
        Row("T10", "longest time from `kill -9` to a restart, lease of 2 s", f"{of('T10', 'longest'):.2f} s",
            "lease + 1 s"),
        Row("T11", "runs of a job that blocks for three lease lengths", f"{executions:.2f}", "1.00", executions > 1),
        Row("T12", "state machine examples of up to 50 steps", count("T12", "examples"), "15,000"),
        Row("T13", "fuzzed requests; failures", f"{count('T13', 'requests')}; {count('T13', 'failures')}",
            "2,000,000; 0", of("T13", "failures") > 0),
        Row("T15", "jobs; kills alongside BullMQ on Node", f"{count('T15', 'jobs')}; {count('T15', 'kills')}",
            "100,000; 500"),
    ]  # fmt: skip
    return [row if row.id in found else replace(row, found="not run") for row in table]


def main(arguments: list[str] | None = None) -> int:
    if "--new" in (sys.argv[1:] if arguments is None else arguments):
        FOLDER.mkdir(parents=True, exist_ok=True)
        FIGURES.write_text("", "utf-8")
        GATE.unlink(missing_ok=True)  # of a run that breaks off nothing is shown, least of all what another found
        BEGAN.write_text(str(time.time()), "utf-8")
        return 0
    if not FIGURES.exists():
        print(f"there are no figures in {FIGURES}: run the tests first", file=sys.stderr)
        return 2
    found = totals(FIGURES.read_text("utf-8").splitlines())
    table = rows(found)
    for row in table:
        print(
            f"{row.id:4} {row.what:56} {row.found:>22}   {row.release:>12}  {'BROKEN' if row.broken else ''}".rstrip()
        )
    faults = Counter({name: int(value) for name, value in found.get("kinds of fault", {}).items()})
    minutes = (time.time() - float(BEGAN.read_text("utf-8"))) / 60 if BEGAN.exists() else 0.0
    document = {
        "minutes": round(minutes, 1),
        "rows": [asdict(row) for row in table],
        "figures": found,
        "faults": dict(faults.most_common()),
    }
    GATE.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return int(any(row.broken for row in table))


if __name__ == "__main__":
    sys.exit(main())
