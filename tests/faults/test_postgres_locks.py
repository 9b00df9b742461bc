"""Transactions on PostgreSQL that give way, the clock they go by, and what is locked while the disk is waited for."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.postgres import Postgres, postgres
from toril.engines.postgres import PostgresEngine
from toril.errors import EngineUnavailable
from toril.model import Claim, NewJob, RateLimit, SetRateLimit
from toril.model.states import State
from toril.runtime.clock import SYSTEM

LONG = 60_000


def claim() -> Claim:
    return Claim(want=1, token=SYSTEM.unique(), lease=LONG, worker="w")


@pytest.fixture(params=["functions", "general"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[tuple[PostgresEngine, str]]:
    url = postgres().database()
    engine = PostgresEngine.from_url(url, general=request.param == "general")
    await engine.open()
    await engine.add("q", [NewJob(name="n")])
    yield engine, url
    await engine.close()


@pytest.fixture
def wary() -> Iterator[Postgres]:
    """A server of its own, on which a commit can be made to wait for a standby that does not exist."""
    server = Postgres().start()
    yield server
    server.remove()


async def until(connection: psycopg.Connection[Any], sql: str, wanted: object) -> None:
    for _ in range(3000):
        if connection.execute(sql.encode()).fetchone() == (wanted,):
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"{sql} never was {wanted}")


def gives_way(url: str, times: int, state: str) -> Callable[[], int]:
    """Have the next adds give way so many times; returns how many were tried."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SEQUENCE tries")
        connection.execute(
            "CREATE FUNCTION give_way() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF nextval('tries') <= {times} THEN RAISE EXCEPTION 'later' USING ERRCODE = '{state}'; END IF; "
            "RETURN new; END $$".encode()
        )
        connection.execute(
            "CREATE TRIGGER give_way BEFORE INSERT ON toril.jobs FOR EACH ROW EXECUTE FUNCTION give_way()"
        )

    def tried() -> int:
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT last_value FROM tries").fetchone()
        assert found is not None
        return int(found[0])

    return tried


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03"])
async def test_a_step_that_gave_way_is_made_again(engine: tuple[PostgresEngine, str], state: str) -> None:
    store, url = engine
    tried = gives_way(url, 3, state)

    (added,) = await store.add("q", [NewJob(name="second")])

    assert tried() == 4
    assert [job.id for job in (await store.page("q", State.WAITING)).items] == ["1", added.id]


async def test_a_step_that_always_gives_way_is_an_error_and_nothing_happened(
    engine: tuple[PostgresEngine, str],
) -> None:
    store, url = engine
    tried = gives_way(url, 1000, "40P01")

    with pytest.raises(EngineUnavailable, match="later"):
        await store.add("q", [NewJob(name="second")])

    assert tried() == 4
    assert (await store.counts("q")).waiting == 1


async def test_steps_go_by_the_clock_of_the_server(
    engine: tuple[PostgresEngine, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = engine
    real, hour = type(SYSTEM).now, 3_600_000
    monkeypatch.setattr(type(SYSTEM), "now", lambda clock: real(clock) - hour)

    await store.add("q", [NewJob(name="second"), NewJob(name="later", delay=1000)])
    first, second = (await store.page("q", State.WAITING)).items

    assert 0 <= second.added_at - first.added_at < hour / 2
    assert (await store.exchange("q", [], claim())).now - first.added_at < hour / 2


async def test_a_queue_that_the_function_refuses_is_not_offered_to_it_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = PostgresEngine.from_url(postgres().database())
    await store.open()
    await store.configure("q", [SetRateLimit(RateLimit(100, 1.0))])
    asked = 0
    ask = store._ask

    async def counted(*asks: Any) -> object:
        nonlocal asked
        asked += any(b"exchange_usual" in sql for sql, _, _ in asks)
        return await ask(*asks)

    monkeypatch.setattr(store, "_ask", counted)
    for _ in range(3):
        await store.exchange("q", [], claim())

    assert asked == 1
    await store.close()


@pytest.mark.parametrize("general", [False, True])
async def test_nobody_waits_for_a_commit_that_waits_for_the_disk(wary: Postgres, general: bool) -> None:
    url = wary.database()
    store, other = PostgresEngine.from_url(url, general=general), PostgresEngine.from_url(url, general=general)
    for each in (store, other):
        await each.open()
        await each.add("q", [NewJob(name="n")])
    await other.exchange("q", [], Claim(want=5, token="t", lease=LONG, worker="w"))  # so that an add has to notify
    with psycopg.connect(wary.url(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        connection.execute("SELECT pg_reload_conf()")
    with psycopg.connect(url, autocommit=True) as connection:
        await until(connection, "SHOW synchronous_standby_names", "nobody")

        adding = asyncio.ensure_future(store.add("q", [NewJob(name="seen before it is safe")]))
        await until(connection, "SELECT waiting FROM toril.standing", 1)
        # Who adds is not answered before the standby has it; yet nobody else has to wait for a lock.
        connection.execute("SET lock_timeout = '10s'; SET synchronous_commit = off")
        connection.execute("SELECT 1 FROM toril.queues FOR NO KEY UPDATE")
        answered = adding.done()
        connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
        connection.execute("SELECT pg_reload_conf()")

    await adding
    assert not answered
    for each in (store, other):
        await each.close()
