"""A seed is a whole run: the same steps every time, in every process."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.proof import prove
from tests.sim.replay import main
from tests.sim.world import simulate

ROOT = Path(__file__).parents[2]
SAMPLE = (1, 5, 11, 47, 128, *range(200, 195 + int(os.environ.get("TORIL_SIM_REPLAYS", "5"))))


@cache
def hashes() -> tuple[str, ...]:
    return tuple(simulate(seed).hash for seed in SAMPLE)


def test_a_seed_gives_the_same_trace_twice() -> None:
    assert tuple(simulate(seed).hash for seed in SAMPLE) == hashes()
    assert len(set(hashes())) == len(SAMPLE)
    prove("T8", replays=len(SAMPLE))


@pytest.mark.parametrize("hash_seed", ["0", "1", "2"])
def test_the_trace_does_not_hang_on_the_hash_seed(hash_seed: str) -> None:
    replayed = subprocess.run(
        [sys.executable, "-m", "tests.sim.replay", *map(str, SAMPLE), "--hash"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )

    prove("T8", replays=len(SAMPLE))
    assert replayed.stdout.splitlines() == [f"{seed} {found}" for seed, found in zip(SAMPLE, hashes(), strict=True)]


def test_a_trace_shows_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["3", "--trace"])

    assert status == 0
    assert "exchange w0.1/w0.1.1#1" in capsys.readouterr().out


def test_a_replay_with_a_planted_bug_fails(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["0", "--mutant", "left_active"])

    assert status == 1
    assert "I1: " in capsys.readouterr().out
