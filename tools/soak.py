"""The long run: `python -m tools.soak`, for TORIL_SOAK_MINUTES (60): torture on both kinds of store, then new seeds.

A seed that breaks a promise is made as small as it can be and kept in `tests/seeds/`; the command that replays it is
printed. The figures are printed as those of the gate are, and written to `.proof/gate.json`. All cores are used that
this process may use: `taskset -c 1 python -m tools.soak` leaves the others alone. SIGINT or SIGTERM ends it early, and
nothing of it is left.
"""

import json
import multiprocessing.util
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NoReturn

from tests.proof import prove
from tests.sim.figures import prove_seed
from tests.sim.kept import Trial, command, keep

from tools import gate
from toril.torture.checker import PROMISES

MINUTES = float(os.environ.get("TORIL_SOAK_MINUTES", "60"))
RATE = 20  # jobs a second, which a busy core can do
WORLDS = (  # half of the seeds are the fleet's
    "fleet", "fleet", "fleet", "agenda", "flows", "circuits", "fleet", "fleet", "slow-agenda", "slow-circuits",
    "steps", "rough-steps", "fleet", "fleet",
)  # fmt: skip
FLEETS = ("grouped", "rough", "lively", "posts", "plain", "long", "full", "paused", "wishes")  # kinds of plans
BATCH = 20  # seeds that a process does at a time


def main() -> int:
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        return _soaked()
    except KeyboardInterrupt:
        print("Stopped before its time was over", flush=True)
        return 130


def _interrupted(number: int, _: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough: what follows is not to be broken off
    raise KeyboardInterrupt


def _heed_parent() -> None:
    """A terminal's Ctrl-C reaches all processes; those of the pool end when their parent says so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, _: object) -> NoReturn:
    """End this process of the pool and its server, which may be about to start. An exception might be caught by what
    a seed runs."""
    signal.signal(number, signal.SIG_IGN)
    multiprocessing.util._run_finalizers()  # type: ignore[attr-defined]  # noqa: SLF001 - as at a process's usual end
    for path in Path("/proc/self/task").glob("*/children"):
        for child in map(int, path.read_text("utf-8").split()):
            os.kill(child, signal.SIGKILL)  # it is ours until it is waited for
            os.waitpid(child, 0)
    os._exit(1)


def _soaked() -> int:
    gate.main(["--new"])
    began = time.monotonic()
    seed = int(os.environ.get("TORIL_SOAK_SEED", str(time.time_ns() // 1_000_000_000)))
    print(f"{MINUTES:g} minutes from seed {seed}", flush=True)
    broken = sum(_tortured(seed, store, MINUTES * share) for store, share in (("redis", 0.35), ("sqlite", 0.25)))
    broken += _simulated(seed, began + MINUTES * 60)
    print(f"{(time.monotonic() - began) / 60:.1f} minutes, {broken} broken", flush=True)
    return max(gate.main([]), int(broken > 0))


def _tortured(seed: int, store: str, minutes: float) -> int:
    """Whether a torture of so many minutes broke a promise."""
    path = gate.FOLDER / f"torture-{store}.json"  # stays, for whoever wants to know what happened
    path.unlink(missing_ok=True)
    disk = ["--own-disk"] if store == "sqlite" and os.geteuid() == 0 else []
    jobs = str(max(100, int(minutes * 60 * RATE * _cores())))
    command = [sys.executable, "-m", "toril", "torture", "--seed", str(seed), "--url", store, "--jobs", jobs]
    _run_to_its_end([*command, "--minutes", f"{max(0.1, minutes):.2f}", "--report", str(path), *disk])
    if not path.exists():
        prove("T7", runs_without_a_report=1)
        return 1
    report: dict[str, Any] = json.loads(path.read_text("utf-8"))
    figures = report["figures"]
    prove("T4", jobs=figures["acknowledged"], faults=figures["faults"])
    prove("T5", cuts=figures["power cuts"], lost=figures["lost to power cuts"])
    prove("T7", **{promise: figures[promise] for promise in PROMISES})
    return int(bool(report["broken"]))


def _run_to_its_end(command: list[str]) -> None:
    """If this process is to stop, so is that one; it gets the time to remove what it has made."""
    with subprocess.Popen(command) as process:  # noqa: S603 - this very interpreter
        try:
            process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()  # `with` would wait for a moment only
            raise


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _simulated(first: int, until: float) -> int:
    """New seeds on all cores until the time is over; how many broke a promise."""
    broken, start = 0, first % 1_000_000_000 * 1000 + 100_000
    with ProcessPoolExecutor(_cores(), initializer=_heed_parent) as pool:
        waiting = {pool.submit(_batch, start + BATCH * number) for number in range(_cores())}
        start += BATCH * len(waiting)
        try:
            while waiting:
                done = next(as_completed(waiting))
                waiting.remove(done)
                broken += done.result()
                if time.monotonic() < until:
                    waiting.add(pool.submit(_batch, start))
                    start += BATCH
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    return broken


def _batch(first: int) -> int:
    return sum(_is_broken(seed) for seed in range(first, first + BATCH))


def _is_broken(seed: int) -> bool:
    """One seed, of each kind of plan in turn."""
    trial = Trial.draw(_kind(seed), seed, _store(seed))
    result = trial.run()
    prove_seed(result.tally, result.jobs)
    if result.violations:
        prove("T7", broken_seeds=1)
        print(result, flush=True)
        path = keep(trial)
        if path is None:
            print(f"{trial.name} does not replay: run again, it broke nothing", flush=True)
        else:
            prove("kept seeds", **{path.name: 1})
            print(f"kept as {path.name}; replay with  {command(path)}", flush=True)
    return bool(result.violations)


def _store(seed: int) -> str:
    """Every fourth is on Redis, every fourth on a file of SQLite's."""
    return ("redis", "sqlite", "memory", "memory")[seed % 4]


def _kind(seed: int) -> str:
    world = WORLDS[seed // 4 % len(WORLDS)]
    return FLEETS[seed // (4 * len(WORLDS)) % len(FLEETS)] if world == "fleet" else world


if __name__ == "__main__":
    sys.exit(main())
