"""A process that forks while it holds a store open."""

from pathlib import Path

import pytest

from tests.faults.ledger import stored_ids, subjects, unsound
from tests.faults.nursery import Children


@pytest.mark.covers("F105", "B73")
def test_a_forked_child_works_on_after_its_parent_has_closed(children: Children, database: Path, logs: Path) -> None:
    assert children.start("family", path=database, log=logs / "family.log").ended() == 0

    kept = subjects(logs / "family.log", "kept")
    assert len(kept) == 4
    assert stored_ids(database) == set(kept)
    assert unsound(database) == []


@pytest.mark.covers("F105")
def test_forks_amid_commits_lose_nothing(children: Children, database: Path, logs: Path) -> None:
    assert children.start("crowd", path=database, log=logs / "crowd.log", forks=10).ended() == 0

    kept = subjects(logs / "crowd.log", "kept")
    assert len(kept) == 10 * 3 + 3 * 30 + 10
    assert stored_ids(database) == set(kept)
    assert unsound(database) == []


@pytest.mark.covers("F105", "F109")
def test_a_store_in_memory_refuses_to_serve_a_fork(children: Children, logs: Path) -> None:
    assert children.start("orphan", log=logs / "orphan.log").ended() == 0

    (refusal,) = subjects(logs / "orphan.log", "refused")
    assert refusal == "an in-memory store cannot be used in a forked process, only in the one that opened it"
    assert subjects(logs / "orphan.log", "waiting") == ["2"]
