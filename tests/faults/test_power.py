"""The power fails: what the disk had been told to keep is there, and the file is sound."""

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.ledger import stored_ids, subjects, unsound
from tests.faults.mounts import make_image, mounted
from tests.faults.nursery import Child, Children, until
from tests.proof import prove


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, where an image is copied within milliseconds."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder)


@pytest.mark.covers("F97", "G1")
@pytest.mark.parametrize("synchronous", ["full", "normal"])
def test_a_power_cut_takes_nothing_that_was_acknowledged_and_synced(
    children: Children, memory: Path, logs: Path, rounds: int, synchronous: str
) -> None:
    cuts, chance = int(os.environ.get("TORIL_POWER_CUTS", "0")) or max(3, rounds // 20), random.Random(97)
    make_image(memory / "disk.img", 48)
    total = lost = 0
    with mounted(memory / "disk", "-o", "loop", str(memory / "disk.img")) as disk:
        database, log = disk / "jobs.db", logs / "writer.log"
        writer = children.start("produce", path=f"{database}?synchronous={synchronous}", log=log, name="w", batch=20)
        for _ in range(cuts):
            before = len(subjects(log, "kept"))
            until(lambda before=before: len(subjects(log, "kept")) > before, "the writer writes")
            time.sleep(chance.random() * 0.2)
            kept, stored = _cut(writer, memory, log)
            total, lost = len(kept), lost + len(kept - stored)
        writer.kill()

    print(f"{cuts} cuts, synchronous={synchronous}: {total} acknowledged at the last, {lost} lost over all cuts")
    prove("T5", cuts=cuts, lost=lost if synchronous == "full" else 0)
    assert lost == 0 or synchronous == "normal"


def _cut(writer: Child, memory: Path, log: Path) -> tuple[set[str], set[str]]:
    """What was acknowledged up to this moment, and what a disk that lost its power now has. What the kernel had not
    yet written to the image is not in its copy; a copy made while the writer runs would be torn."""
    writer.freeze()
    kept = set(subjects(log, "kept"))
    shutil.copyfile(memory / "disk.img", memory / "cut.img")
    writer.send(signal.SIGCONT)
    with mounted(memory / "after", "-o", "loop", str(memory / "cut.img")) as after:
        assert unsound(after / "jobs.db") == []
        return kept, stored_ids(after / "jobs.db")
