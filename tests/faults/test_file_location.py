"""Where the file may lie, what else may be found there, and what happens if it goes away."""
# ruff: noqa: ASYNC240 - the loop has nothing else to do

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.faults.children import NOBODY, opened
from tests.faults.ledger import subjects, unsound
from tests.faults.nursery import Children
from toril.engines.sqlite import SqliteEngine
from toril.engines.sqlite import url as place
from toril.engines.sqlite.url import check_file, filesystem_of, parse
from toril.errors import EngineUnavailable, EngineUnusable, InvalidOption
from toril.model import NewJob
from toril.store.engine import connect
from toril.testing import ManualClock

MOUNTS = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:30 / /srv rw shared:1 - nfs4 server:/export rw
24 22 0:31 / /srv/local rw - xfs /dev/vdb rw
25 22 0:32 / /mnt/a\040share rw - cifs //server/share rw
26 22 0:33 / /mnt/Daten-ü rw - fuse.sshfs me@server:/ rw
27 22 0:34 / /twice rw - ext4 /dev/vdc rw
28 27 0:35 / /twice rw - ceph server:/ rw
29 22 0:36 / /back\134slash rw - 9p host rw
not a line of this kind
"""


@pytest.fixture
async def engine(database: Path, clock: ManualClock) -> AsyncIterator[SqliteEngine]:
    store = SqliteEngine(parse(f"sqlite:///{database}"), clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.mark.covers("F104")
@pytest.mark.parametrize(("folder", "kind"), [
    ("/var/lib", "ext4"), ("/srv", "nfs4"), ("/srv/jobs", "nfs4"), ("/srvx", "ext4"), ("/srv/local/deep/er", "xfs"),
    ("/mnt/a share/jobs", "cifs"), ("/mnt/Daten-ü", "fuse.sshfs"), ("/twice", "ceph"), ("/back\\slash/x", "9p"),
])  # fmt: skip
def test_the_kind_of_a_filesystem_is_that_of_the_nearest_mount(folder: str, kind: str) -> None:
    assert filesystem_of(Path(folder), MOUNTS) == kind


@pytest.mark.covers("F104")
def test_this_machine_says_what_its_filesystems_are(tmp_path: Path) -> None:
    assert filesystem_of(Path("/proc")) == "proc"
    assert filesystem_of(tmp_path)


@pytest.mark.covers("F104")
@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p"])
def test_a_network_filesystem_is_refused_unless_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(place, "filesystem_of", lambda _: kind)

    with pytest.raises(EngineUnusable, match=f"is on {kind}, where SQLite's locks are not safe"):
        check_file(parse(f"sqlite:///{tmp_path}/jobs.db"))
    check_file(parse(f"sqlite:///{tmp_path}/jobs.db?network=allow"))


@pytest.mark.covers("F104", "B62")
def test_a_link_is_judged_by_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "jobs.db").symlink_to(tmp_path / "far" / "jobs.db")
    monkeypatch.setattr(place, "filesystem_of", lambda folder: "nfs" if folder.name == "far" else "ext4")

    with pytest.raises(EngineUnusable, match="is on nfs"):
        check_file(parse(f"sqlite:///{tmp_path}/jobs.db"))


def folder_itself(path: Path) -> None:
    path.mkdir()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def null(path: Path) -> None:
    path.symlink_to("/dev/null")


def loop_of_links(path: Path) -> None:
    path.symlink_to(path)


def link_into_nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "missing" / "jobs.db")


def link_of_another(path: Path) -> None:
    (path.parent / "mine.db").write_bytes(b"")
    path.symlink_to(path.parent / "mine.db")
    try:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    except PermissionError:
        pytest.skip("NOT TESTED: making a link of another owner needs root")


@pytest.mark.covers("B62")
@pytest.mark.parametrize("make", [folder_itself, fifo, null, loop_of_links, link_into_nowhere, link_of_another])
async def test_what_is_no_ordinary_file_is_refused(database: Path, make: Callable[[Path], None]) -> None:
    make(database)
    before = sorted(database.parent.rglob("*"))

    with pytest.raises(EngineUnusable, match=r"jobs\.db|missing"):
        await opened(database)

    assert sorted(database.parent.rglob("*")) == before


@pytest.mark.covers("B62")
@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero", "{}/missing/jobs.db", "{}/" + "x" * 300, "{}/file/jobs.db"])
async def test_where_no_file_can_be_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(EngineUnusable):
        await opened(path.format(tmp_path))

    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.covers("B62")
@pytest.mark.parametrize("url", [
    "sqlite:///:memory:", "sqlite:///file:jobs.db?mode=ro", "sqlite:///file::memory:?cache=shared", "sqlite:///",
    "sqlite:///jobs.db/", "sqlite:///a%00b", "sqlite:///jobs#1.db", "sqlite:///jobs.db?mode=ro", "sqlite:///a\tb",
])  # fmt: skip
def test_what_is_no_path_is_an_invalid_option(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidOption):
        connect(url)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.covers("B62")
async def test_a_link_to_a_file_of_ones_own_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "jobs.db").symlink_to(tmp_path / "real" / "jobs.db")

    engine = await opened(tmp_path / "jobs.db")
    await engine.add("q", [NewJob(name="n", id="x")])

    assert {path.name for path in tmp_path.iterdir()} == {"real", "jobs.db"}
    assert {"jobs.db", "jobs.db-wal", "jobs.db-ballast"} <= {path.name for path in (tmp_path / "real").iterdir()}
    await engine.close()


@pytest.mark.parametrize("name", ["a b?.db", "100%.db", "jobs#1.db", "ü☃.db", "&x=y.db"])
async def test_any_name_can_be_written_into_a_url(tmp_path: Path, name: str) -> None:
    engine = await opened(f"{tmp_path}/{quote(name)}")
    await engine.add("q", [NewJob(name="n")])
    await engine.counts("q")
    await engine.close()

    assert [path.name for path in tmp_path.iterdir()] == [name]


async def test_a_relative_path_stays_the_same_file_when_the_folder_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    engine = await opened("jobs.db")
    monkeypatch.chdir(tmp_path / "elsewhere")

    await engine.add("q", [NewJob(name="n")])
    counts = await engine.counts("q")  # opens the reader's connection only now
    await engine.close()

    assert counts.waiting == 1
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == []


@pytest.mark.covers("F103")
@pytest.mark.parametrize("event", ["removed", "replaced", "log removed"])
async def test_a_file_that_goes_away_is_noticed_within_a_second(
    engine: SqliteEngine, database: Path, clock: ManualClock, event: str
) -> None:
    await engine.add("q", [NewJob(name="n")])
    match event:
        case "removed":
            database.unlink()
        case "replaced":
            shutil.copy(database, f"{database}.new")
            Path(f"{database}.new").replace(database)
        case _:
            Path(f"{database}-wal").unlink()
    clock.advance(1000)

    for refused in (
        lambda: engine.add("q", [NewJob(name="n")]), lambda: engine.counts("q"), lambda: engine.wait(["q"], timeout=0),
    ):  # fmt: skip
        with pytest.raises(EngineUnavailable, match=r"was removed while in use|was replaced|was removed or replaced"):
            await refused()
    assert not (await engine.health()).ok


@pytest.mark.covers("F103")
async def test_a_removed_file_is_not_made_anew_and_serves_again_when_put_back(
    engine: SqliteEngine, database: Path, clock: ManualClock
) -> None:
    await engine.add("q", [NewJob(name="n")])
    database.rename(f"{database}.away")
    clock.advance(1000)
    with pytest.raises(EngineUnavailable):
        await engine.counts("q")
    assert not database.exists()

    Path(f"{database}.away").rename(database)

    assert (await engine.counts("q")).waiting == 1


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        for place in Path(folder).glob("place"):
            place.chmod(0o755)


@pytest.mark.covers("F103")
@pytest.mark.parametrize(("mode", "file_mode", "complaint"), [
    (0o555, None, "is not writable by this user"),
    (0o555, 0o666, "is not writable by this user"),
    (0o777, 0o400, "is not readable and writable by this user"),
    (0o600, None, "cannot be"),
])  # fmt: skip
def test_missing_rights_are_named(
    children: Children, public: Path, mode: int, file_mode: int | None, complaint: str
) -> None:
    folder, log = public / "place", public / "nobody.log"
    folder.mkdir()
    if file_mode is not None:
        (folder / "jobs.db").touch()
        (folder / "jobs.db").chmod(file_mode)
    folder.chmod(mode)

    assert children.start("open_as_nobody", path=folder / "jobs.db", log=log).ended() == 0

    (message,) = subjects(log, "EngineUnusable")
    assert complaint in message
    assert str(folder) in message


@pytest.mark.covers("F103")
@pytest.mark.parametrize(("permissions", "users"), [("0660", (65_001, 65_002)), ("0600", (65_001, 65_001))])
def test_processes_of_a_group_or_of_one_user_share_a_file(
    children: Children, public: Path, permissions: str, users: tuple[int, int]
) -> None:
    folder = public / "place"
    folder.mkdir()
    group = 65_000 if os.getuid() == 0 else os.getgid()
    os.chown(folder, users[0] if os.getuid() == 0 else -1, group)
    folder.chmod(0o2770)
    url = f"sqlite:///{folder}/jobs.db?permissions={permissions}"
    logs = [public / f"{number}.log" for number in range(2)]

    started = [
        children.start("share", url=url, user=user, name=f"{number}", group=group, log=log)
        for number, (user, log) in enumerate(zip(users, logs, strict=True))
    ]

    assert [child.ended() for child in started] == [0, 0]
    assert {line for log in logs for line in subjects(log, "mode")} == {
        f"jobs.db {permissions}", f"jobs.db-wal {permissions}", f"jobs.db-shm {permissions}", "jobs.db-ballast 0600",
        f"jobs.db-wake {permissions.replace('6', '7')}",
    }  # fmt: skip
    assert unsound(folder / "jobs.db") == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs a second user")
async def test_other_users_cannot_open_a_file_unless_they_may(children: Children, public: Path) -> None:
    folder, log = public / "place", public / "nobody.log"
    folder.mkdir()
    folder.chmod(0o777)
    store = await opened(folder / "jobs.db")

    assert children.start("open_as_nobody", path=folder / "jobs.db", log=log).ended() == 0
    await store.close()

    (message,) = subjects(log, "EngineUnusable")
    assert "is not readable and writable by this user" in message
