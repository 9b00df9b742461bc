"""A database that does not answer, and errors that nobody foresaw: a relay ends all the same, and says why."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.outbox.places import LONG, Place, relay_of
from tests.postgres import postgres
from toril import App
from toril.outbox import database as module
from toril.outbox.database import Database, OutboxAway
from toril.outbox.relay import OwnThread
from toril.store.engine import Store, connect


def nowhere() -> Store:
    """A store that is never asked."""
    return connect("memory://")


async def test_a_thread_that_is_stuck_keeps_no_process_from_ending(tmp_path: Path) -> None:
    relay: Any = relay_of(Place(f"sqlite:///{tmp_path / 'app.db'}"), nowhere())
    begun, go_on = threading.Event(), threading.Event()

    def stuck() -> bool:
        found.append(threading.current_thread())
        begun.set()
        return not go_on.wait(LONG)

    found = list[threading.Thread]()
    relay._database.anything = stuck
    round_ = asyncio.create_task(relay.round())
    assert await asyncio.to_thread(begun.wait, LONG)
    go_on.set()
    assert await round_ is False
    await relay.close()

    (thread,) = found
    assert thread.daemon, "else the interpreter waits for it"
    await asyncio.to_thread(thread.join, LONG)
    assert not thread.is_alive(), "and it ends when the relay does"


async def test_what_goes_wrong_in_the_thread_is_the_callers_and_the_thread_goes_on() -> None:
    thread = OwnThread("toril-outbox")

    with pytest.raises(ZeroDivisionError):
        await thread.do(lambda: 1 // 0)
    assert await thread.do(divmod, 7, 2) == (3, 1)
    thread.close()


async def test_who_waits_for_another_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(postgres().database())
    place.create()
    other = place.connect()
    other.execute("LOCK TABLE toril_outbox IN ACCESS EXCLUSIVE MODE")
    monkeypatch.setattr(module, "_LOCKED", 50)
    relay = relay_of(place, nowhere())

    async with asyncio.timeout(LONG):
        with pytest.raises(OutboxAway, match="lock timeout"):
            await relay.round()
        other.rollback()
        monkeypatch.undo()
        assert await relay.round() is False
    await relay.close()
    place.close()


def test_what_is_bounded_is_the_transaction_and_not_the_session() -> None:
    """A pooler gives the session to others."""
    database = Database(postgres().database())
    with database._transaction():
        within = [database._execute(f"SHOW {name}", ()) for name in ("lock_timeout", "statement_timeout")]
    after = [database._execute(f"SHOW {name}", ()) for name in ("lock_timeout", "statement_timeout")]
    database.close()

    assert within == [[("5s",)], [("15s",)]]
    assert after == [[("0",)], [("0",)]]


async def test_a_relay_that_ends_by_an_error_raises_it(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Database) -> bool:
        raise ZeroDivisionError("nobody foresaw this")

    monkeypatch.setattr(Database, "anything", broken)
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")

    async with asyncio.timeout(LONG):
        with pytest.raises(ZeroDivisionError, match="nobody foresaw"):
            await app.relay(place.url)
