"""Who may read the file of a store, from the moment it is made."""
# ruff: noqa: ASYNC240 - the loop has nothing else to do

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from toril.errors import InvalidOption
from toril.model import NewJob
from toril.store.engine import connect


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


async def modes(url: str, folder: Path) -> dict[str, str]:
    """The permissions of all that a store in use puts into its folder."""
    store = connect(url)
    await store.open()
    try:
        await store.add("q", [NewJob(name="n")])
        return {path.name: f"{path.stat().st_mode & 0o777:04o}" for path in sorted(folder.iterdir())}
    finally:
        await store.close()


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(
    ("query", "mode"),
    [("", "0600"), ("?permissions=0660", "0660"), ("?permissions=640", "0640"), ("?permissions=0666", "0666")],
)
async def test_a_new_file_and_its_log_are_the_owners_unless_said_otherwise(
    tmp_path: Path, query: str, mode: str
) -> None:
    found = await modes(f"sqlite:///{tmp_path}/jobs.db{query}", tmp_path)

    assert found == {"jobs.db": mode, "jobs.db-ballast": "0600", "jobs.db-shm": mode, "jobs.db-wal": mode}


async def test_the_file_behind_a_link_is_made_with_the_same_permissions(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "jobs.db").symlink_to(tmp_path / "real" / "jobs.db")

    found = await modes(f"sqlite:///{tmp_path}/jobs.db", tmp_path / "real")

    assert set(found.values()) == {"0600"}


async def test_a_file_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").touch()
    (tmp_path / "jobs.db").chmod(0o644)

    found = await modes(f"sqlite:///{tmp_path}/jobs.db?permissions=0660", tmp_path)

    assert found["jobs.db"] == found["jobs.db-wal"] == "0644"


@pytest.mark.parametrize("permissions", ["", "600x", "0400", "0700", "0602", "1660", "0o660", "-600", "rw", "06600"])
def test_permissions_that_make_no_sense_are_refused(permissions: str) -> None:
    with pytest.raises(InvalidOption, match=r"permissions=0600 \(or 0640, 0660"):
        connect(f"sqlite:///jobs.db?permissions={permissions}")
