"""The wheel as it would be published: whole, without strays, and good for a first user."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tools import release

from toril import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_has_all_it_needs_and_nothing_else(wheel: Path) -> None:
    assert release.faults(wheel) == []
    assert wheel.name == f"toril-{__version__}-py3-none-any.whl"


def test_the_demo_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    env = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}

    done = subprocess.run(
        [sys.executable, "-m", "toril", "demo", "--pace", "0.1"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "A small demo shop" in done.stdout
