"""Files that are damaged, cut short, empty, or another program's: used if they are sound, refused untouched if not."""
# ruff: noqa: ASYNC240 - the loop has nothing else to do

import hashlib
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.children import opened
from tests.faults.ledger import subjects
from tests.faults.nursery import Children, until
from toril import App
from toril.errors import EngineUnusable

PAGE = 4096


@pytest.fixture
def filled(children: Children, database: Path, logs: Path) -> Path:
    """A file of many pages, with more of them in the log beside it, as a killed process leaves them."""
    assert children.start("fill", path=database, jobs=3000).ended() == 0
    filler = children.start("fill", path=database, jobs=500, log=logs / "fill.log")
    until(lambda: bool(subjects(logs / "fill.log", "filled")), "the file is filled")
    filler.kill()
    return database


def overwrite_pages(path: Path, chance: random.Random) -> None:
    pages = path.stat().st_size // PAGE
    with path.open("r+b") as file:
        for _ in range(chance.choice((1, 1, 2, 5))):
            file.seek(chance.randrange(pages) * PAGE)
            file.write(chance.choice((chance.randbytes(PAGE), bytes(PAGE), b"\xff" * PAGE)))


def flip_bytes(path: Path, chance: random.Random) -> None:
    with path.open("r+b") as file:
        for _ in range(20):
            file.seek(chance.randrange(path.stat().st_size))
            file.write(chance.randbytes(1))


def harm_the_beginning(path: Path, chance: random.Random) -> None:
    with path.open("r+b") as file:
        file.seek(chance.randrange(200))
        file.write(chance.randbytes(chance.randrange(1, 200)))


def cut_short(path: Path, chance: random.Random) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(chance.choice((chance.randrange(size), chance.randrange(1, PAGE), PAGE, 100, 1)))


HARMS: dict[str, Callable[[Path, random.Random], None]] = {
    "pages overwritten": overwrite_pages,
    "bytes flipped": flip_bytes,
    "beginning harmed": harm_the_beginning,
    "cut short": cut_short,
}


@pytest.mark.covers("F100", "G6")
@pytest.mark.parametrize("log", ["with its log", "without its log"])
@pytest.mark.parametrize("harm", list(HARMS))
def test_a_damaged_file_is_used_or_refused_untouched(
    children: Children, filled: Path, tmp_path: Path, logs: Path, rounds: int, harm: str, log: str
) -> None:
    folder, chance, before = tmp_path / "damaged", random.Random(f"{harm}{log}"), {}
    folder.mkdir()
    for number in range(max(15, rounds // 6)):
        path = folder / f"{number}.db"
        shutil.copy(filled, path)
        if log == "with its log":
            shutil.copy(f"{filled}-wal", f"{path}-wal")
        HARMS[harm](path, chance)
        before[path.name] = fingerprint(path)

    code = children.start("visit", folder=folder, log=logs / "visit.log").ended()

    outcomes = {word: subjects(logs / "visit.log", word) for word in ("refused", "stopped", "used")}
    print(f"{harm}, {log}: { {word: len(found) for word, found in outcomes.items()} }")
    assert code == 0
    assert sum(map(len, outcomes.values())) == len(before)
    for refusal in outcomes["refused"]:
        name, error, message = refusal.split(" ", 2)
        assert error == "EngineUnusable", refusal
        assert str(folder / name) in message
        assert fingerprint(folder / name) == before[name], refusal
    assert all(stop.split(" ")[1] in {"EngineUnusable", "EngineUnavailable"} for stop in outcomes["stopped"])


def fingerprint(path: Path) -> list[str]:
    files = [path, Path(f"{path}-wal")]
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.exists()]


@pytest.mark.covers("F100")
async def test_detected_damage_never_starts_silently(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'jobs'").fetchone()
    with filled.open("r+b") as file:
        file.seek((root - 1) * PAGE)
        file.write(b"\xff" * PAGE)

    with pytest.raises(EngineUnusable, match=r"jobs\.db' is damaged .*\. Nothing was changed; keep a copy"):
        await opened(filled)


@pytest.mark.covers("F100")
async def test_a_text_file_is_no_store(database: Path) -> None:
    database.write_text("Dear diary, " * 100)

    with pytest.raises(EngineUnusable, match=r"jobs\.db' is not a SQLite database"):
        await opened(database)

    assert database.read_text() == "Dear diary, " * 100


@pytest.mark.covers("F100")
@pytest.mark.parametrize("tables", [0, 1])
async def test_the_database_of_another_program_is_refused(database: Path, tables: int) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA application_id = 4711")
        for number in range(tables):
            connection.execute(f"CREATE TABLE theirs{number} (x)")
    before = fingerprint(database)

    with pytest.raises(EngineUnusable, match=r"jobs\.db' belongs to another program"):
        await opened(database)

    assert fingerprint(database) == before
    assert [path.name for path in database.parent.iterdir()] == ["jobs.db"]


@pytest.mark.covers("F100")
async def test_an_empty_file_becomes_a_store(database: Path) -> None:
    database.touch()

    engine = await opened(database)

    assert (await engine.health()).ok
    await engine.close()


@pytest.mark.covers("F100")
@pytest.mark.parametrize("loss", ["emptied", "removed"])
async def test_a_log_whose_file_is_gone_is_not_thrown_away(filled: Path, loss: str) -> None:
    log = Path(f"{filled}-wal")
    before = log.read_bytes()
    filled.unlink()
    if loss == "emptied":
        filled.touch()

    with pytest.raises(EngineUnusable, match=r"is empty or missing, but its write-ahead log .* exists"):
        await opened(filled)

    assert log.read_bytes() == before


async def test_records_that_contradict_each_other_are_an_error_at_once(tmp_path: Path) -> None:
    """The same step again would meet the same records: there is nothing to wait for."""
    path = tmp_path / "jobs.db"
    async with App(f"sqlite:///{path}") as app:
        await app.queue("q").add("n")
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE queues SET last_number = 0")
        file.commit()

    async with App(f"sqlite:///{path}") as app:
        with pytest.raises(EngineUnusable, match="is inconsistent"):
            await app.queue("q").add("n")
        assert (await app.queue("q").counts()).waiting == 1
