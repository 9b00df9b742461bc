"""`queue.within(connection)`: jobs are as many as the transactions that committed, through each kind of connection."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.postgres import postgres
from toril import App, JobContext, UsageError
from toril.model.states import State


@pytest.fixture
async def url() -> str:
    """A database that has a store."""
    url = postgres().database()
    async with App(url):
        pass
    return url


@pytest.fixture
async def app(url: str) -> AsyncIterator[App]:
    app = App(url)
    app.queue("mail")
    async with app:
        yield app


def left(url: str) -> list[str]:
    """The ids in the inbox."""
    with psycopg.connect(url) as connection:
        return [job for (job,) in connection.execute("SELECT job_id FROM toril.inbox ORDER BY id")]


async def served(app: App) -> dict[str, Any]:
    """What a worker that drains the queue gets: payloads by id."""
    found: dict[str, Any] = {}

    @app.queue("mail").handler(name="n")
    async def take(ctx: JobContext[Any]) -> None:
        found[ctx.job_id] = ctx.data

    await app.run(burst=True)
    return found


def test_with_psycopg(url: str) -> None:
    mail = App(url).queue("mail")
    with psycopg.connect(url) as connection:
        kept = mail.within(connection).add("n", {"percent": "100 %s"})
        assert left(url) == []
        connection.commit()
        mail.within(connection).add("n")
        connection.rollback()

    assert left(url) == [kept]


async def test_with_psycopg_async(url: str) -> None:
    mail = App(url).queue("mail")
    async with await psycopg.AsyncConnection.connect(url) as connection:
        kept = await mail.within(connection).add("n", 1)
        await connection.commit()
        await mail.within(connection).add("n")
        await connection.rollback()

    assert left(url) == [kept]


def test_with_sqlalchemy(url: str) -> None:
    mail = App(url).queue("mail")
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with Session(engine) as session:
        kept = mail.within(session).add("n", {"colon": ":p0"})
        session.commit()
        mail.within(session).add("n")
        session.rollback()
    with engine.begin() as connection:
        more = mail.within(connection).add("n")
    engine.dispose()

    assert left(url) == [kept, more]


async def test_with_sqlalchemy_async(url: str) -> None:
    mail = App(url).queue("mail")
    engine = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    async with AsyncSession(engine) as session:
        kept = await mail.within(session).add("n")
        await session.commit()
        await mail.within(session).add("n")
        await session.rollback()
    async with engine.begin() as connection:
        more = await mail.within(connection).add("n")
    await engine.dispose()

    assert left(url) == [kept, more]


DJANGO = """
import sys
import django
from django.conf import settings

settings.configure(DATABASES={
    "default": {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": sys.argv[1], "USER": "toril",
                "NAME": sys.argv[2]},
})
django.setup()
from django.db import connection, transaction
from toril import App

mail = App(sys.argv[3]).queue("mail")
with transaction.atomic():
    mail.within(connection).add("n", {"percent": "100 %s"}, job_id="kept")
try:
    with transaction.atomic():
        mail.within(connection).add("n", job_id="dropped")
        raise KeyError
except KeyError:
    pass
connection.close()
"""


def test_with_django(url: str, tmp_path: Path) -> None:
    (tmp_path / "site.py").write_text(DJANGO, "utf-8")

    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(tmp_path / "site.py"), str(postgres().port), url.rpartition("/")[2], url],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert left(url) == ["kept"]


KILLED = """
import os, signal, sys
import psycopg
from toril import App

url, where = sys.argv[1], sys.argv[2]
mail = App(url).queue("mail")

def reach(place):
    if place == where:
        os.kill(os.getpid(), signal.SIGKILL)

connection = psycopg.connect(url)
reach("at first")
number = connection.execute("INSERT INTO orders DEFAULT VALUES RETURNING id").fetchone()[0]
reach("before the job")
mail.within(connection).add("n", number)
reach("before the commit")
connection.commit()
reach("after the commit")
"""


async def test_whoever_dies_where_jobs_are_as_many_as_commits(url: str, app: App, tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED, "utf-8")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY)")
        for where in ("at first", "before the job", "before the commit", "after the commit", "nowhere"):
            done = await asyncio.create_subprocess_exec(sys.executable, str(tmp_path / "killed.py"), url, where)
            assert await done.wait() == (0 if where == "nowhere" else -signal.SIGKILL)
        committed = [number for (number,) in connection.execute("SELECT id FROM orders ORDER BY id")]

    assert len(committed) == 2
    assert sorted((await served(app)).values()) == committed
    assert left(url) == []


async def test_an_idle_worker_finds_them(url: str, app: App) -> None:
    started: asyncio.Queue[int] = asyncio.Queue()

    @app.queue("mail").handler(name="n")
    async def take(ctx: JobContext[int]) -> None:
        started.put_nowait(ctx.data)

    working = asyncio.create_task(app.run())
    async with await psycopg.AsyncConnection.connect(url) as connection:
        for number in range(5):
            await app.queues["mail"].within(connection).add("n", number)
            await connection.commit()
            assert await asyncio.wait_for(started.get(), 60) == number
    app.stop()
    await working


async def test_two_who_serve_a_queue_take_each_job_once(url: str, app: App) -> None:
    with psycopg.connect(url) as connection:
        ids = [app.queues["mail"].within(connection).add("n", n) for n in range(450)]
    other = App(url)
    async with other:
        names = ["mail"]
        await asyncio.gather(app.store._take_from_inbox(names), other.store._take_from_inbox(names))  # type: ignore[attr-defined]

    rows = await app.store.page("mail", State.WAITING, limit=1000)
    assert [row.id for row in rows.items] == ids
    assert left(url) == []


async def test_options_count_from_the_add_and_a_taken_id_is_left_alone(url: str, app: App) -> None:
    mail = app.queues["mail"]
    await mail.add("first", job_id="taken")
    with psycopg.connect(url) as connection:
        mail.within(connection).add("second", job_id="taken")
        mail.within(connection).add("later", job_id="later", delay=3600)
        mail.within(connection).add("urgent", job_id="urgent", priority=1)
        connection.execute("UPDATE toril.inbox SET added_at = added_at - 3599000")

    await app.store._take_from_inbox(["mail"])  # type: ignore[attr-defined]

    taken, later, urgent = await app.store.jobs("mail", ["taken", "later", "urgent"])
    assert taken is not None
    assert later is not None
    assert urgent is not None
    assert (taken.name, urgent.priority) == ("first", 1)
    assert later.delay <= 1000


async def test_a_job_that_can_never_be_added_holds_up_no_other(url: str, app: App) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO toril.inbox (queue, job_id, request) VALUES ('mail', 'bad', 'no json')")
        good = app.queues["mail"].within(connection).add("n", 1)

    assert await served(app) == {good: 1}
    with psycopg.connect(url) as connection:
        ((job, why),) = connection.execute("SELECT job_id, error FROM toril.inbox").fetchall()
    assert (job, "cannot read the stored job" in why) == ("bad", True)


async def test_a_full_queue_takes_what_it_has_room_for(url: str) -> None:
    app = App(url)
    mail = app.queue("mail", max_waiting=3)
    async with app:
        await mail.add("n", -1)
        with psycopg.connect(url) as connection:
            for number in range(5):
                mail.within(connection).add("n", number)
        await app.store._take_from_inbox(["mail"])  # type: ignore[attr-defined]
        assert (await mail.counts()).waiting == 3
        assert len(left(url)) == 3


async def test_who_adds_needs_only_the_right_to_insert_there(url: str, app: App) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS web; CREATE ROLE web LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA toril TO web; GRANT INSERT ON toril.inbox TO web")
    with psycopg.connect(url.replace("//toril@", "//web@")) as connection:
        added = app.queues["mail"].within(connection).add("n", 1)

    assert await served(app) == {added: 1}


def test_what_cannot_be_meant_is_refused(url: str) -> None:
    with sqlite3.connect(":memory:") as file:
        with pytest.raises(UsageError, match=r"needs a store in PostgreSQL; for other stores there is app\.outbox"):
            App("memory://").queue("mail").within(file)
        with pytest.raises(UsageError, match="needs a connection to the store's own database"):
            App(url).queue("mail").within(file)
    with pytest.raises(UsageError, match="sqlite3, psycopg, SQLAlchemy or Django, not 5"):
        App(url).queue("mail").within(5)
