"""Processes and files for the fault tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.nursery import Children, Nursery, looking_after


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    helper = Nursery()
    yield helper
    helper.close()


@pytest.fixture
def children(nursery: Nursery) -> Iterator[Children]:
    """Starts child processes; they are gone when the test is."""
    with looking_after(nursery) as children:
        yield children


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Where processes note what they did, apart from the store."""
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


@pytest.fixture
def database(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder / "jobs.db"


@pytest.fixture(scope="session")
def rounds() -> int:
    """How many times a fault is made; `make soak` asks for more."""
    return int(os.environ.get("TORIL_FAULT_ROUNDS", "100"))
