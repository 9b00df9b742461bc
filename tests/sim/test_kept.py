"""Plans that once broke a promise are run for ever after; and one that fails now is made small, kept and replayed."""

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tools import soak

from tests import servers
from tests.sim import kept as files
from tests.sim import replay
from tests.sim.bugs import BUGS
from tests.sim.faults import Fault
from tests.sim.figures import prove_seed
from tests.sim.journal import Violation
from tests.sim.kept import STORES, Kept, Trial, assert_clean, keep, kept
from tests.sim.plan import Plan
from tests.sim.result import Result
from tests.sim.world import simulate

ALL = kept()
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.covers("T3")
def test_no_seed_that_found_a_bug_finds_it_again(name: str) -> None:
    result = ALL[name].trial.run()
    prove_seed(result.tally, result.jobs)

    assert not result.violations, f"{ALL[name]}, as at {ALL[name].commit}: {result}"


def test_a_failing_seed_is_made_small_and_kept(tmp_path: Path) -> None:
    with BUGS["left_active"].planted():
        path = keep(Trial.draw("plain", 0), tmp_path)
        assert path is not None
        small = Kept.read(path)
        again = small.trial.run()

    assert small.rule == "I1"
    assert "stands in 2 places" in small.wrong
    assert again.hash == small.trace
    assert small.commit.removesuffix("-dirty") == head()
    drawn, plan = Plan.draw(0), small.trial.plan
    assert isinstance(plan, Plan)
    assert plan.jobs < drawn.jobs
    assert plan.workers == 1
    assert not any(plan.mix.values()), "no fault is needed for it"
    assert not small.trial.run().violations, "it is clean without the bug"


def test_a_kept_file_gives_the_same_trace_on_any_server_of_redis(tmp_path: Path) -> None:
    """Each server has the members of its sets in an order of its own."""
    bug = BUGS["redis: the first child lets its parent go"]
    with bug.planted():
        path = keep(bug.known, tmp_path)
        assert path is not None
        small = Kept.read(path)
        traces = set()
        for _ in range(3):
            servers.running.cache_clear()
            traces.add(small.trial.run().hash)

    assert traces == {small.trace}


def test_what_is_kept_with_a_bug_in_it_is_replayed_with_that_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TORIL_MUTANT", raising=False)
    monkeypatch.setattr(files, "SEEDS", tmp_path)

    assert replay.main(["0", "--mutant", "left_active", "--keep"]) == 1
    *_, told = capsys.readouterr().out.splitlines()
    _, _, printed = told.partition("replay with  ")
    assert replay.main(shlex.split(printed)[3:]) == 1


def head() -> str:
    return subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()


def test_what_is_made_small_still_breaks_the_same_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without kills this world breaks another rule, which is another bug."""
    bare = simulate(1)

    def play(seed: int, *, plan: Plan, **_: object) -> Result:
        assert seed == plan.seed
        return replace(bare, plan=plan, violations=(Violation("lost lease" if plan.mix[Fault.KILL] else "stall", ""),))

    monkeypatch.setitem(files.WORLDS, "fleet", play)
    drawn = Plan.draw(1)
    path = keep(Trial("fleet", "memory", replace(drawn, mix=dict.fromkeys(Fault, 0.6))), tmp_path)

    assert path is not None
    small = Kept.read(path)
    assert small.rule == "lost lease"
    assert {fault for fault, rate in small.trial.plan.mix.items() if rate} == {Fault.KILL}
    assert small.trial.plan.workers == 1


def test_a_seed_that_breaks_nothing_is_not_kept(tmp_path: Path) -> None:
    assert keep(Trial.draw("plain", 1), tmp_path) is None
    assert list(tmp_path.iterdir()) == []


# For each kind of world a bug that a known seed finds there, on SQLite and on Redis.
FOUND = {
    "plain": ("settle_too_late", "redis: anyone settles"),
    "posts": ("restarts_without_rest", "restarts_without_rest"),
    "agenda": ("next_from_anywhere", "redis: an end keeps the key"),
    "flows": ("freed_early", "redis: the first child lets its parent go"),
    "circuits": ("open_to_all", "redis: a circuit is not written"),
    "steps": ("signal_stays", "redis: a signal is read and stays"),
}


@pytest.mark.parametrize(
    ("kind", "store", "bug"),
    [(kind, store, found[store == "redis"]) for kind, found in FOUND.items() for store in STORES],
)
def test_a_test_that_fails_prints_the_one_command_that_replays_it(
    kind: str, store: str, bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORIL_MUTANT", bug)
    monkeypatch.setattr(files, "FAILED", tmp_path)
    with BUGS[bug].planted():
        result = Trial.draw(kind, BUGS[bug].seed, store).run()

    with pytest.raises(AssertionError) as failure:
        assert_clean(result)
    *_, told = str(failure.value).splitlines()
    python, m, module, *arguments = shlex.split(told.removeprefix("replay with  "))

    assert [python, m, module] == [".venv/bin/python", "-m", "tests.sim.replay"]
    servers.running.cache_clear()  # another server of Redis has its sets in another order
    assert replay.main(arguments) == 1
    replayed = capsys.readouterr().out
    assert f"trace {result.hash}\n" in replayed
    assert "the trace is the same as when it was kept" in replayed
    assert str(result.violations[0]) in replayed


def test_a_seed_that_breaks_in_the_soak_is_kept_whatever_its_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noted: list[str] = []
    monkeypatch.setattr(files, "SEEDS", tmp_path)
    monkeypatch.setattr(soak, "prove", lambda figure, **_: noted.append(figure))
    monkeypatch.setattr(soak, "prove_seed", lambda *_: None)
    seed = 13
    assert soak._kind(seed) == "agenda"
    with BUGS["key_kept_at_the_end"].planted():
        assert soak._is_broken(seed)

    (path,) = tmp_path.iterdir()
    assert f"replay with  .venv/bin/python -m tests.sim.replay {path}\n" in capsys.readouterr().out
    assert Kept.read(path).trial.world == "agenda"
    assert "kept seeds" in noted


def test_the_soak_runs_every_kind_of_plan_on_every_store() -> None:
    drawn = {(soak._kind(seed), soak._store(seed)) for seed in range(5000)}

    assert drawn == {(kind, store) for kind in {*soak.FLEETS, *soak.WORLDS} - {"fleet"} for store in STORES}


@pytest.mark.parametrize("kind", ["plain", "posts", "agenda", "flows", "circuits", "steps"])
def test_a_file_gives_the_same_trace_as_memory(kind: str) -> None:
    in_memory, on_file = (Trial.draw(kind, 5, store).run() for store in ("memory", "sqlite"))

    assert on_file.store == "sqlite"
    assert on_file.hash == in_memory.hash
