"""The file's layout: a newer one is left alone, an interrupted change of it is undone or completed."""
# ruff: noqa: ASYNC240 - the loop has nothing else to do

import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from tests.faults.children import opened
from tests.faults.ledger import unsound
from tests.faults.nursery import Children
from toril.engines.sqlite import database as file
from toril.engines.sqlite.database import migrations
from toril.errors import EngineUnusable, TorilError
from toril.model import NewJob


@pytest.mark.covers("F106")
@pytest.mark.parametrize("log", ["", "-wal"])
async def test_a_newer_layout_is_refused_and_left_alone(database: Path, log: str) -> None:
    await (await opened(database)).close()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version = 999")
        before = Path(f"{database}{log}").read_bytes()

        with pytest.raises(EngineUnusable, match=r"has layout version 999; .*supports up to"):
            await opened(database)

        assert Path(f"{database}{log}").read_bytes() == before


@pytest.mark.covers("F106")
async def test_a_file_that_was_upgraded_under_us_is_not_downgraded(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await opened(database)).close()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version = 999")
    monkeypatch.setattr(file.SqliteDatabase, "_check", lambda *_: None)  # it was not so yet when we looked

    with pytest.raises(EngineUnusable, match="Upgrade Toril"):
        await opened(database)

    assert _version(database) == 999


@pytest.mark.covers("F106")
async def test_opening_may_be_killed_at_any_statement(children: Children, tmp_path: Path) -> None:
    await (await opened(tmp_path / "whole.db")).close()
    allowed, kills = {(0, 0), (len(migrations()), _tables(tmp_path / "whole.db"))}, 0
    for at in count(1):
        database = tmp_path / f"{at}.db"
        code = children.start("migrate_and_die", path=database, at=at).ended()
        if code == 0:
            break
        kills += 1
        assert code == -9
        assert not database.exists() or (_version(database), _tables(database)) in allowed

        engine = await opened(database)
        await engine.add("q", [NewJob(name="n")])
        await engine.close()
        assert unsound(database) == []

    print(f"killed at each of {kills} statements")
    assert kills > 20


@pytest.mark.covers("F106", "F101")
def test_processes_that_open_a_new_file_at_once_all_succeed(children: Children, tmp_path: Path, logs: Path) -> None:
    for number in range(5):
        database = tmp_path / f"{number}.db"
        writers = [
            children.start("produce", path=database, log=logs / f"{number}-{n}.log", name=f"w{n}", batches=1)
            for n in range(6)
        ]

        assert [writer.ended() for writer in writers] == [0] * 6
        assert not [path for path in logs.glob("*.log") if "kept" not in path.read_text()]
        assert unsound(database) == []


@pytest.mark.covers("F106")
async def test_a_file_of_the_layout_before_is_upgraded(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = await opened(database)
    await old.add("q", [NewJob(name="n", data='"kept"')])
    await old.close()
    _next_layout(
        monkeypatch, "ALTER TABLE jobs ADD COLUMN colour TEXT NOT NULL DEFAULT 'red';\nCREATE TABLE more (n);\n"
    )

    new = await opened(database)

    (job,) = await new.jobs("q", ["1"])
    await new.close()
    assert job is not None
    assert job.data == '"kept"'
    assert _version(database) == len(migrations()) + 1
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT colour FROM jobs").fetchall() == [("red",)]
        assert connection.execute("SELECT count(*) FROM more").fetchone() == (0,)


@pytest.mark.covers("F106")
async def test_an_upgrade_that_fails_leaves_the_layout_before(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await opened(database)).close()
    tables = _tables(database)
    with monkeypatch.context() as patch:
        _next_layout(patch, "CREATE TABLE more (n);\nALTER TABLE nowhere ADD COLUMN colour TEXT;\n")

        with pytest.raises(TorilError, match="no such table: nowhere"):
            await opened(database)

    assert (_version(database), _tables(database)) == (len(migrations()), tables)
    await (await opened(database)).close()


def _next_layout(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """From here on Toril knows one migration more."""
    known = [*migrations(), script]
    monkeypatch.setattr(file, "migrations", lambda: known)


def _version(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _tables(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        return int(connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'table'").fetchone()[0])
