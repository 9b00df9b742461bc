"""What `app.outbox(connection)` writes, through each kind of connection, and what it refuses."""

import os
import subprocess
import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.outbox.places import Place
from tests.postgres import postgres
from toril import App, Dedup, Exponential, JobContext, Keep, Retry, TorilError, UnknownQueue, UsageError
from toril.codec.new_jobs import dump_new_job, load_new_job
from toril.errors import Undecodable


@pytest.fixture
def app() -> App:
    app = App("memory://")
    for name in ("mail", "reports"):
        app.queue(name)
    return app


@pytest.mark.covers("F122")
def test_a_job_is_written_if_the_transaction_commits_and_only_then(app: App, place: Place) -> None:
    connection = place.connect()
    outbox = app.outbox(connection)

    kept = outbox.add("confirm", {"order": 1}, queue="mail")
    connection.commit()
    outbox.add("confirm", {"order": 2}, queue="mail")
    connection.rollback()
    outbox.add("confirm", {"order": 3}, queue="mail", job_id="third")

    assert place.left() == [kept], "of the third nobody else knows yet"
    connection.commit()
    assert place.left() == [kept, "third"]


def test_the_tables_are_made_once(app: App, place: Place) -> None:
    connection = place.connect()

    app.outbox(connection).create()
    app.outbox(connection).add("n", queue="mail")
    connection.commit()

    assert len(place.left()) == 1


@pytest.mark.parametrize(("job", "data", "options"), [
    ("n", {1, 2}, {}), ("n", None, {"priority": -1}), ("n", None, {"delay": -1}), ("n", None, {"prioritty": 1}),
    ("", None, {}), ("n", None, {"job_id": "7"}), ("n", "x" * 2_000_000, {}), ("n", None, {"backoff": "no such"}),
    ("n", None, {"at": datetime(2027, 1, 1)}), (print, None, {}), ("n", None, {"delay": 1, "at": 2}),  # noqa: DTZ001
])  # fmt: skip
def test_it_refuses_what_an_add_refuses_in_the_same_words(
    app: App, tmp_path: Path, job: Any, data: Any, options: dict[str, Any]
) -> None:
    place = Place(f"sqlite:///{tmp_path / 'app.db'}")
    place.create()
    connection = place.connect()

    with pytest.raises((TorilError, TypeError)) as added:
        app.queue("mail").new(job, data, **options)
    with pytest.raises(added.type) as written:
        app.outbox(connection).add(job, data, queue="mail", **options)

    assert str(written.value) == str(added.value)
    connection.commit()
    assert place.left() == []
    place.close()


def test_the_queue_is_told_or_the_only_one_that_can_be_meant(app: App, tmp_path: Path) -> None:
    async def send(ctx: JobContext[None]) -> None: ...

    app.queue("mail").handler(send)
    place = Place(f"sqlite:///{tmp_path / 'app.db'}")
    place.create()
    connection = place.connect()
    outbox = app.outbox(connection)

    outbox.add(send)
    outbox.add("n", queue=app.queue("reports"))
    with pytest.raises(UsageError, match="several queues could run 'n'; name one"):
        outbox.add("n")
    with pytest.raises(UnknownQueue, match="no queue 'nope' in this app"):
        outbox.add("n", queue="nope")

    assert [queue for (queue,) in connection.execute("SELECT queue FROM toril_outbox ORDER BY id")] == [
        "mail", "reports"
    ]  # fmt: skip
    place.close()


@pytest.mark.parametrize("kind", ["connection", "session", "scoped"])
def test_sqlalchemy_writes_in_its_own_transaction(app: App, place: Place, kind: str) -> None:
    engine = create_engine(place.url.replace("postgresql:", "postgresql+psycopg:"))
    makers: dict[str, Any] = {"connection": engine.connect, "session": partial(Session, engine)}
    makers["scoped"] = scoped_session(sessionmaker(engine))
    with makers[kind]() as connection:
        if kind == "scoped":
            connection = makers[kind]  # noqa: PLW2901 - which stands for the session of the thread
        kept = app.outbox(connection).add("n", {"colon": ":name ? %s"}, queue="mail")
        connection.commit()
        app.outbox(connection).add("n", queue="mail")
        connection.rollback()
    engine.dispose()

    assert place.left() == [kept]
    ((request,),) = place.all("SELECT request FROM toril_outbox")
    assert load_new_job(request).data == '{"colon":":name ? %s"}'


async def test_an_asynchronous_session_writes_by_run_sync(app: App) -> None:
    place = Place(postgres().database())
    place.create()
    engine = create_async_engine(place.url.replace("postgresql:", "postgresql+psycopg:"))
    async with AsyncSession(engine) as session:
        kept = await session.run_sync(lambda blocking: app.outbox(blocking).add("n", queue="mail"))
        await session.commit()
    await engine.dispose()

    assert place.left() == [kept]
    place.close()


DJANGO = """
import sys
import django
from django.conf import settings

settings.configure(DATABASES={
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]},
    "other": {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": sys.argv[2], "USER": "toril",
              "NAME": sys.argv[3]},
})
django.setup()
from django.db import connection, connections, transaction
from toril import App

app = App("memory://")
app.queue("mail")
for using, each in (("default", connection), ("other", connections["other"])):
    with transaction.atomic(using=using):
        app.outbox(each).create()
        app.outbox(each).add("n", {"percent": "100 %s"}, job_id="kept")
    try:
        with transaction.atomic(using=using):
            app.outbox(each).add("n", job_id="dropped")
            raise KeyError
    except KeyError:
        pass
    each.close()
"""


def test_django_writes_in_its_own_transaction(tmp_path: Path) -> None:
    url = postgres().database()
    places = [Place(f"sqlite:///{tmp_path / 'app.db'}"), Place(url)]
    (tmp_path / "site.py").write_text(DJANGO, "utf-8")

    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(tmp_path / "site.py"), str(tmp_path / "app.db"), str(postgres().port),
         url.rpartition("/")[2]],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert [place.left() for place in places] == [["kept"], ["kept"]]
    for place in places:
        place.close()


async def test_a_connection_of_another_kind_is_refused(app: App, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sqlite3, psycopg, SQLAlchemy or Django, not 'a text'"):
        app.outbox("a text")
    mysql = create_engine(f"sqlite:///{tmp_path / 'x.db'}")
    mysql.dialect.name = "mysql"
    with mysql.connect() as connection, pytest.raises(UsageError, match=r"PostgreSQL; .* is a connection to mysql"):
        app.outbox(connection)
    mysql.dispose()
    async with await psycopg.AsyncConnection.connect(postgres().url()) as unusual:
        with pytest.raises(UsageError, match="is asynchronous; with SQLAlchemy use"):
            app.outbox(unusual)


def test_what_is_written_is_read_again_as_it_was(app: App) -> None:
    full = app.queue("mail").new(
        "n", {"a": "\0 ü 🦊"}, job_id="x", delay=5, priority=3, lifo=True, expires=60, timeout=2,
        retry=Retry(7, Exponential(1), on=(KeyError,)), keep_completed=Keep(5, 60), keep_failed=True, result_ttl=9,
        metadata={"who": "me"}, dedup=Dedup("k", 3, "extend"), group="g", subject="s", breaker="b",
    ).job  # fmt: skip

    assert dump_new_job(full).isascii()
    assert load_new_job(dump_new_job(full)) == full


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"name": ""}', '{"name": "n", "colour": 1}', "[" * 90_000])
def test_what_is_no_job_is_said_to_be_none(text: str) -> None:
    with pytest.raises(Undecodable, match="cannot read the stored job"):
        load_new_job(text)
