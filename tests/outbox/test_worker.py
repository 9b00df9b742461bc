"""A worker process with an outbox, and relays that are killed as a machine kills them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.outbox.places import Place, finished, relay_of
from toril import App, InvalidOption, JobContext, UsageError
from toril.runtime.clock import SYSTEM
from toril.store.engine import connect

LONG = 120.0
KILLS = int(os.environ.get("TORIL_OUTBOX_KILLS", "2"))  # processes killed, for each kind of database


async def test_a_worker_goes_on_without_an_outbox_and_runs_what_is_written(place: Place, tmp_path: Path) -> None:
    place.all("DROP TABLE toril_outbox")
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}", outbox=place.url)
    mail, ran, told = app.queue("mail"), asyncio.Queue[str](), asyncio.Event()
    app.on("error", lambda _: told.set())

    @mail.handler
    async def send(ctx: JobContext[str]) -> None:
        ran.put_nowait(ctx.data)

    work = asyncio.create_task(app.run())
    try:
        async with asyncio.timeout(LONG):
            await told.wait()
            connection = place.connect()
            app.outbox(connection).create()
            app.outbox(connection).add(send, "first")
            connection.commit()
            assert await ran.get() == "first"
            app.outbox(connection).add(send, "second")
            connection.commit()
            assert await ran.get() == "second"
    finally:
        app.stop()
        assert await work == 0
    assert place.left() == []


async def test_an_app_hands_over_by_itself_when_asked(place: Place, tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    app.queue("mail")
    connection = place.connect()
    app.outbox(connection).add("n")
    connection.commit()

    assert await app.outbox_status() is None
    with pytest.raises(UsageError, match="this app has no outbox"):
        await app.relay_once()
    assert await app.relay_once(place.url) == 1
    async with app:
        assert (await app.queue("mail").counts()).waiting == 1


@pytest.mark.parametrize("url", ["mysql://host/db", "shop.db", "sqlite://shop.db", 7])
def test_what_cannot_be_an_outbox_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption):
        App("memory://", outbox=url)


RELAY = """
import asyncio, os, signal, sys
from toril.runtime.clock import SYSTEM
from toril.store.engine import connect
from toril.events import Events
from toril.outbox.database import Database
from toril.outbox.relay import Relay

left = int(sys.argv[3])

class Mortal(Database):
    def _execute(self, sql, parameters):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._execute(sql, parameters)

async def main():
    store = connect(sys.argv[2])
    await store.open()
    await Relay(Mortal(sys.argv[1]), store, SYSTEM, Events(), "relay").drain()

asyncio.run(main())
"""


@pytest.mark.covers("F122")
async def test_processes_that_are_killed_lose_and_double_nothing(place: Place, tmp_path: Path) -> None:
    (tmp_path / "relay.py").write_text(RELAY, "utf-8")
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    app = App("memory://")
    app.queue("mail")
    ids, runs, store = list[str](), Counter[str](), connect(url)
    await store.open()
    for kill in range(KILLS):
        connection = place.connect()
        ids += [app.outbox(connection).add("n") for _ in range(10)]
        connection.commit()
        first = 11 if place.is_sqlite else 13  # the first statement after the call to the store
        at = 3 + int(SYSTEM.random() * 12) if kill else first
        command = [sys.executable, str(tmp_path / "relay.py"), place.url, url, str(at)]
        done = await asyncio.to_thread(subprocess.run, command, timeout=LONG, check=False)
        assert done.returncode in {-signal.SIGKILL, 0}
        await finished(store, runs)
        place.time_passes()

    relay = relay_of(place, store)
    await relay.drain()
    await relay.close()
    await finished(store, runs)
    await store.close()

    assert runs == dict.fromkeys(ids, 1)
    assert place.left() == []
