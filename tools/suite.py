"""Runs the tests in stages: `python -m tools.suite [STAGE ...]`, the thorough ones unless some are named.

Each stage is one run of pytest, with its output in `.proof/suite/STAGE.log` and the tests that failed in
`.proof/suite/STAGE.failed`. `quick` is `make test`: everything that is not marked `thorough`, and nothing is run twice.

The other stages are `make test-all`. They run one after the other, and each says how many tests may run at the same
time: tests that compete for the processor run alone. What fails there is run once more, together with the rest of its
file and with as many at the same time. Tests that pass then are unsteady: they are printed, and written with the date
to `tests/unsteady.toml`. The suite fails when a test fails twice, when more than three tests are unsteady, or when one
has been unsteady for more than a week.
"""

import argparse
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

__all__ = ["STAGES", "Outcome", "Stage", "main", "run_stage", "unsteady_problems"]

ROOT: Final = Path(__file__).parents[1]
LOGS: Final = ROOT / ".proof" / "suite"
UNSTEADY: Final = ROOT / "tests" / "unsteady.toml"
MOST_UNSTEADY: Final = 3
LONGEST_UNSTEADY: Final = timedelta(days=7)
TESTS_FAILED: Final = 1  # pytest's exit code for it; any other but 0 means that the run itself went wrong
NO_TESTS: Final = 5
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)
_COUNTS: Final = re.compile(r"(\d+) (passed|failed|error|skipped)")


@dataclass(frozen=True, slots=True)
class Stage:
    """Tests that run together, `workers` at the same time. `leaving_out` are other stages' tests."""

    name: str
    paths: tuple[str, ...]
    workers: int
    leaving_out: tuple[str, ...] = ()
    marks: str = "thorough"
    is_quick: bool = False  # shown as it runs, and what fails is not run again


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a stage. `failed` failed twice, or in a run that went wrong itself; `unsteady` passed at last."""

    stage: str
    seconds: float
    passed: int
    failed: tuple[str, ...]
    unsteady: tuple[str, ...]
    log: Path


_SERVERS: Final = (
    "tests/faults/test_failover.py", "tests/faults/test_replicated.py", "tests/faults/test_cluster.py",
)  # fmt: skip
_ALONE: Final = ("tests/torture", "tests/faults/test_power.py", "tests/example")
_OWN: Final = ("tests/conformance", "tests/sim", "tests/interop", "tests/dashboard", "tests/faults")

QUICK: Final = Stage(
    "quick", ("tests",), int(os.environ.get("PYTEST_WORKERS", "3")), marks="not thorough", is_quick=True
)
STAGES: Final = (
    Stage("stores", ("tests/conformance",), 3),
    Stage("simulator", ("tests/sim",), 2),
    Stage("interop", ("tests/interop",), 3),
    Stage("browser", ("tests/dashboard",), 2),
    Stage("rest", ("tests",), 3, leaving_out=(*_OWN, *_ALONE)),
    Stage("processes", ("tests/faults",), 2, leaving_out=(*_SERVERS, *_ALONE)),
    Stage("groups", _SERVERS, 1),
    Stage("alone", _ALONE, 1),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stages, and end with what failed and where to read about it."""
    known = {stage.name: stage for stage in (QUICK, *STAGES)}
    parser = argparse.ArgumentParser(prog="python -m tools.suite", description="Run the tests in stages.")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(known))
    chosen: list[str] = parser.parse_args(arguments).stages
    if unknown := set(chosen) - known.keys():
        parser.error(f"unknown stage {min(unknown)!r}; there are {', '.join(known)}")
    outcomes = []
    for stage in [known[name] for name in chosen] or STAGES:
        outcomes.append(run_stage(stage))
        print(_line(outcomes[-1]), flush=True)
    today = datetime.now(UTC).date()
    unsteady = _noted(UNSTEADY, [name for outcome in outcomes for name in outcome.unsteady], today)
    return _report(outcomes, unsteady_problems(unsteady, today))


def run_stage(stage: Stage, *, root: Path = ROOT, logs: Path = LOGS) -> Outcome:
    """One run of pytest; and one more of the files in which tests failed."""
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{stage.name}.log"
    log.unlink(missing_ok=True)
    began = time.monotonic()
    code, said = _pytest(stage, root, log, *(f"--ignore={path}" for path in stage.leaving_out), *stage.paths)
    failed, unsteady = _failed_in(said), list[str]()
    if code == TESTS_FAILED and failed and not stage.is_quick:
        files = sorted({name.partition("::")[0] for name in failed})
        code, again = _pytest(stage, root, log, *files)
        if code in (0, TESTS_FAILED):
            failed, first = _failed_in(again), failed
            unsteady = [name for name in first if name not in failed]
    if code not in (0, NO_TESTS) and not failed:
        failed = [f"pytest itself, which ended with {code}"]
    seconds = time.monotonic() - began
    found = Outcome(stage.name, seconds, _count(said, "passed"), tuple(failed), tuple(unsteady), log)
    log.with_suffix(".failed").write_text("".join(f"{line}\n" for line in _complaints(found)), "utf-8")
    return found


def unsteady_problems(unsteady: Mapping[str, date], today: date) -> list[str]:
    """Why these unsteady tests fail the suite; none if there are few, and all of them recent."""
    problems = [
        f"{name} has been unsteady since {since}: mend it"
        for name, since in unsteady.items()
        if today - since > LONGEST_UNSTEADY
    ]
    if len(unsteady) > MOST_UNSTEADY:
        problems.append(f"{len(unsteady)} tests are unsteady, and {MOST_UNSTEADY} may be: {', '.join(unsteady)}")
    return problems


def _noted(path: Path, names: Iterable[str], today: date) -> dict[str, date]:
    """All that are known to be unsteady, these included; a name keeps its first date."""
    before: dict[str, date] = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    known = dict.fromkeys(names, today) | before
    if known != before:
        head = path.read_text("utf-8").partition('"')[0] if path.exists() else ""
        path.write_text(head + "".join(f'"{_quoted(name)}" = {since}\n' for name, since in sorted(known.items())))
    return known


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


def _line(outcome: Outcome) -> str:
    told = [f"{outcome.passed} passed"]
    told += [f"{len(outcome.failed)} failed"] * bool(outcome.failed)
    told += [f"{len(outcome.unsteady)} unsteady"] * bool(outcome.unsteady)
    return f"{outcome.stage:10} {', '.join(told):40} {outcome.seconds / 60:5.1f} min"


def _report(outcomes: Sequence[Outcome], problems: Sequence[str]) -> int:
    failures = sum(len(outcome.failed) for outcome in outcomes)
    print(f"\n{sum(outcome.passed for outcome in outcomes)} passed, {failures} failed")
    for outcome in outcomes:
        for line in _complaints(outcome):
            print(line)
    for problem in problems:
        print(f"FAILED {problem}")
    return int(bool(failures or problems))


def _complaints(outcome: Outcome) -> list[str]:
    log = _shown(outcome.log)
    unsteady = [f"UNSTEADY {name}: failed, then passed; see {log}" for name in outcome.unsteady]
    return unsteady + [f"FAILED {name}: see {log}" for name in outcome.failed]


def _shown(log: Path) -> Path:
    return log.relative_to(ROOT) if log.is_relative_to(ROOT) else log


def _pytest(stage: Stage, root: Path, log: Path, *arguments: str) -> tuple[int, str]:
    """Its exit code and what it printed, which is appended to the log."""
    together = ["--numprocesses", str(stage.workers), "--dist", "worksteal"] if stage.workers > 1 else []
    command = [sys.executable, "-m", "pytest", "--quiet", "-m", stage.marks, "--durations=15", *together, *arguments]
    said = []
    running = subprocess.Popen(  # noqa: S603 - this very interpreter
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "TORIL_QUICK": "1" if stage.is_quick else ""},
    )  # fmt: skip
    with running, log.open("a", encoding="utf-8") as file:
        for line in running.stdout or ():
            said.append(line)
            file.write(line)
            if stage.is_quick:
                print(line, end="", flush=True)
    return running.returncode, "".join(said)


def _failed_in(said: str) -> list[str]:
    return sorted(set(_FAILED.findall(said)))


def _count(said: str, what: str) -> int:
    last = said.rstrip().rpartition("\n")[2]
    return next((int(number) for number, kind in _COUNTS.findall(last) if kind == what), 0)


if __name__ == "__main__":
    sys.exit(main())
