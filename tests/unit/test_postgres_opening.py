"""What a PostgreSQL store does when it is opened."""

import asyncio
from typing import Any

import psycopg
import pytest

from tests.postgres import Postgres, postgres
from tests.servers import free_port
from toril.engines.postgres import PostgresEngine
from toril.errors import EngineRefused, EngineUnavailable, EngineUnusable
from toril.model import Claim, NewJob
from toril.model.states import State


async def test_the_first_to_open_it_makes_the_schema_and_later_ones_find_it() -> None:
    url = f"{postgres().database()}?schema=jobs"
    engines = [PostgresEngine.from_url(url) for _ in range(3)]

    await asyncio.gather(*(engine.open() for engine in engines))
    await engines[0].add("q", [NewJob(name="n")])

    assert [(await engine.counts("q")).waiting for engine in engines] == [1, 1, 1]
    for engine in engines:
        await engine.close()
    with psycopg.connect(url.partition("?")[0]) as connection:
        found = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert found == (0,)


async def test_two_schemas_are_two_stores() -> None:
    url = postgres().database()
    first, second = (PostgresEngine.from_url(f"{url}?schema={name}") for name in ("one", "two"))
    await first.open()
    await second.open()

    await first.add("q", [NewJob(name="n")])

    assert [job.id for job in (await first.page("q", State.WAITING)).items] == ["1"]
    assert await second.queues() == []
    await first.close()
    await second.close()


async def test_a_later_layout_is_left_alone() -> None:
    url = postgres().database()
    engine = PostgresEngine.from_url(url)
    await engine.open()
    await engine.close()
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE toril.facts SET value = '999' WHERE name = 'layout'")

    with pytest.raises(EngineUnusable, match=r"layout version 999; this Toril supports up to 2\. Upgrade Toril"):
        await PostgresEngine.from_url(url).open()


async def test_a_database_of_another_encoding_is_refused() -> None:
    with psycopg.connect(postgres().url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")

    with pytest.raises(EngineUnusable, match="encoding LATIN1; Toril needs UTF8"):
        await PostgresEngine.from_url(postgres().url("latin")).open()


async def test_what_is_not_there_is_named_with_what_to_do() -> None:
    with pytest.raises(EngineRefused, match="create the database, or name another in the URL"):
        await PostgresEngine.from_url(postgres().url("nowhere")).open()
    with pytest.raises(EngineUnavailable, match="PostgreSQL at"):
        await PostgresEngine.from_url(f"postgresql://x@127.0.0.1:{free_port()}/x").open()


@pytest.mark.parametrize("when", ["idle", "amid a call"])
async def test_a_connection_of_an_event_loop_that_is_cut_is_an_error_at_once(when: str) -> None:
    url = postgres().database()
    engine = PostgresEngine.from_url(url)
    await engine.open()
    await engine.add("q", [NewJob(name="n")])
    complaints = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as watcher:
        adding = None
        if when == "amid a call":
            holder.execute("SELECT 1 FROM toril.standing FOR UPDATE")
            adding = asyncio.create_task(engine.add("q", [NewJob(name="n")]))
        condition = "wait_event_type = 'Lock'" if adding is not None else "application_name = 'toril'"
        cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {condition}"
        async with asyncio.timeout(30):
            while not watcher.execute(cut.encode()).fetchall():  # noqa: ASYNC110 - it tells nobody that it waits
                await asyncio.sleep(0.01)
            if adding is not None:
                with pytest.raises(EngineUnavailable):
                    await adding
                holder.rollback()
            while True:
                try:
                    await engine.add("q", [NewJob(name="n")])
                except EngineUnavailable:
                    continue
                break

    assert complaints == []
    assert (await engine.counts("q")).waiting == 2
    await engine.close()


async def test_a_cut_connection_is_an_error_once_and_then_made_anew() -> None:
    url = postgres().database()
    engine = PostgresEngine.from_url(url)
    await engine.open()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toril'")

    with pytest.raises(EngineUnavailable):
        await engine.add("q", [NewJob(name="lost")])

    await engine.add("q", [NewJob(name="kept")])
    assert [job.name for job in (await engine.page("q", State.WAITING)).items] == ["kept"]
    await engine.close()


@pytest.mark.parametrize("general", [False, True])
async def test_what_is_answered_has_been_flushed_whatever_the_default_is(general: bool) -> None:
    server = Postgres().start()
    try:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")  # or it would flush what we do not
            connection.execute("SELECT pg_reload_conf()")
            engine = PostgresEngine.from_url(f"{server.url()}?options=-csynchronous_commit%3Doff", general=general)
            await engine.open()
            for _ in range(5):
                before = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
                await engine.add("q", [NewJob(name="n")])
                assert before is not None
                assert connection.execute("SELECT pg_current_wal_flush_lsn() > %s::pg_lsn", before).fetchone() == (
                    True,
                )
            await engine.close()
    finally:
        server.remove()


@pytest.mark.parametrize("level", ["serializable", "repeatable%20read"])
async def test_another_isolation_level_may_be_usual_in_the_database(level: str) -> None:
    engine = PostgresEngine.from_url(
        f"{postgres().database()}?options=-cdefault_transaction_isolation%3D{level.replace('%20', '%5C%20')}"
    )
    await engine.open()

    await asyncio.gather(*(engine.add("q", [NewJob(name="n")]) for _ in range(20)))
    claims = await asyncio.gather(
        *(engine.exchange("q", [], Claim(want=4, token=f"t{n}", lease=9000, worker="w")) for n in range(5))
    )

    assert sorted(int(job.lease.id) for claim in claims for job in claim.jobs) == list(range(1, 21))
    await engine.close()
