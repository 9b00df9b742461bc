"""A plan is a whole run: the same steps every time, in every process, of every kind and on every store."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.proof import prove
from tests.sim.kept import KINDS, STORES, Trial, write
from tests.sim.replay import main
from tests.sim.world import simulate

ROOT = Path(__file__).parents[2]
SAMPLE = (1, 5, 11, 47, 128, *range(200, 195 + int(os.environ.get("TORIL_SIM_REPLAYS", "5"))))
SEED = 3  # of the plans of every kind
SAMPLED = [kind for kind in KINDS if kind != "crowd"]  # which is a plain plan of a thousand jobs


@cache
def hashes() -> tuple[str, ...]:
    return tuple(simulate(seed).hash for seed in SAMPLE)


def test_a_seed_gives_the_same_trace_twice() -> None:
    assert tuple(simulate(seed).hash for seed in SAMPLE) == hashes()
    assert len(set(hashes())) == len(SAMPLE)
    prove("T8", replays=len(SAMPLE))


@pytest.mark.parametrize("hash_seed", ["0", "1", "2"])
def test_the_trace_does_not_hang_on_the_hash_seed(hash_seed: str) -> None:
    assert replayed(*map(str, SAMPLE), hash_seed=hash_seed) == list(hashes())


@pytest.mark.parametrize("store", STORES)
def test_a_plan_of_any_kind_gives_the_same_trace_when_it_is_read_from_its_file(store: str, tmp_path: Path) -> None:
    """In another process, whose sets have another order."""
    results = [Trial.draw(kind, SEED, store).run() for kind in SAMPLED]
    paths = [write(result, tmp_path) for result in results]

    assert replayed(*map(str, paths), hash_seed="7") == [result.hash for result in results]
    assert len({result.hash for result in results}) == len(SAMPLED)
    assert {result.world for result in results} == {"fleet", "agenda", "flows", "circuits", "steps"}


def replayed(*plans: str, hash_seed: str) -> list[str]:
    """The traces of these, by a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.sim.replay", *plans, "--hash"], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed}, check=True,
    )  # fmt: skip
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert [name for name, _ in lines] == list(plans)
    prove("T8", replays=len(plans))
    return [trace for _, trace in lines]


def test_a_trace_shows_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["3", "--trace"])

    assert status == 0
    assert " w0.1 exchange w0.1/w0.1." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "step"), [("agenda", "w0 schedules.advance"), ("flows", "p0 flows.add"), ("circuits", "w0 circuits.admit")]
)
def test_a_trace_of_another_world_shows_its_steps(kind: str, step: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["3", "--kind", kind, "--trace"])

    assert status == 0
    assert f" {step} " in capsys.readouterr().out


def test_a_replay_with_a_planted_bug_fails(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["0", "--mutant", "left_active"])

    assert status == 1
    assert "I1: " in capsys.readouterr().out
