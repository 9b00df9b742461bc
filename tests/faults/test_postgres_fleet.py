"""A fleet on PostgreSQL: its processes and its server die, its user has few rights, and what it holds moves on."""

import asyncio
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Toril, documents, folder, on, toril
from tests.faults.fleet import SLOW, fleet
from tests.faults.nursery import until
from tests.postgres import Postgres, postgres
from tests.servers import RedisServer
from toril import App, EngineRefused
from toril.engines.postgres import PostgresEngine
from toril.model import Claim, Completed, NewJob, Schedule, Settlement
from toril.model.states import State
from toril.runtime.clock import SYSTEM

__all__ = ["folder", "toril"]

PAGE = (Path(__file__).parents[2] / "docs" / "postgres.md").read_text("utf-8")


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A server of its own, to be killed."""
    server = Postgres().start()
    yield server
    server.remove()


@pytest.mark.covers("X11")
def test_nothing_is_lost_when_workers_and_the_server_die(server: Postgres, tmp_path: Path) -> None:
    url = server.database()

    async def add(app: App) -> list[str]:
        return [job.id for job in await app.queue("q").add_many([("hold", 0.02)] * 300)]

    with fleet(url, tmp_path, "--processes", "2", ALIVE_CONCURRENCY="5") as run:
        run.until_up(2)
        ids = on(url, add)
        until(lambda: len(run.noted("end")) >= 20, "some have ended", timeout=SLOW)
        run.kill(run.children[0])
        until(lambda: len(run.noted("end")) >= 60, "more have ended", timeout=SLOW)
        server.stop(signal.SIGQUIT)
        server.start()
        more = on(url, add)
        until(lambda: {each.job for each in run.noted("end")} >= {*ids, *more}, "all have ended", timeout=2 * SLOW)
        until(lambda: on(url, unfinished) == 0, "all are settled", timeout=SLOW)
        assert run.stop() == 0

    assert on(url, completed) == 600
    again = [job for job, runs in Counter(each.job for each in run.noted("end")).items() if runs > 1]
    assert len(again) <= 5 * 2 + 5  # what ran when the worker died, and when the server did


async def unfinished(app: App) -> int:
    counts = await app.queue("q").counts()
    return counts.waiting + counts.active + counts.delayed


async def completed(app: App) -> int:
    """How many jobs have completed, each counted once."""
    (queue,) = [each for each in (await app.overview()).queues if each.queue == "q"]
    assert queue.counts.failed == 0
    (summary,) = [await app.store.queue("q")]
    return summary.completed_total


def test_a_worker_that_starts_before_the_server_waits_for_it(server: Postgres, tmp_path: Path) -> None:
    url = server.database()
    server.stop(signal.SIGQUIT)
    with fleet(url, tmp_path, "--processes", "1") as run:
        until(lambda: run.said("waiting for the store: PostgreSQL at"), "it waits", timeout=SLOW)
        server.start()
        run.until_up()
        assert run.stop() == 0


async def test_a_user_with_the_rights_of_the_page_can_work_and_create_nothing() -> None:
    url = postgres().database()
    statements, *_ = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(str(statements).encode())
    owner = PostgresEngine.from_url(url.replace("//toril@", "//toril_owner@"))
    worker = PostgresEngine.from_url(url.replace("//toril@", "//toril_worker@"))
    with pytest.raises(EngineRefused, match="grant the user what it lacks"):
        await worker.open()
    await owner.open()
    await owner.close()

    await worker.open()
    await worker.add("q", [NewJob(name="n"), NewJob(name="later", delay=3_600_000, id="chosen")])
    await worker.schedules.put("q", Schedule(id="s", job=NewJob(name="n"), every=3_600_000), SYSTEM.now(), expects=None)
    (job,) = (await worker.exchange("q", [], Claim(want=1, token="t", lease=9000, worker="w"))).jobs
    settled = await worker.exchange(
        "q", [Settlement(job.lease, Completed("1"))], Claim(want=0, token="u", lease=1, worker="w")
    )

    assert [verdict.value for verdict in settled.verdicts] == ["ok"]
    assert (await worker.promote("q", ["chosen"])).done == ("chosen",)
    assert not (await worker.obliterate("q", running="remove")).more
    await worker.close()
    with (
        psycopg.connect(url.replace("//toril@", "//toril_worker@"), autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("CREATE TABLE toril.more (n int)")


def test_a_store_moves_on_and_back_with_its_history(toril: Toril, folder: Path) -> None:
    redis = RedisServer().start()
    file, base, more = f"sqlite:///{folder / 'old.db'}", postgres().database(), postgres().database()
    try:
        on(file, _filled)
        for source, target in ((file, base), (base, redis.url), (redis.url, more), (more, file)):
            assert "Moved 3 jobs, 1 schedule and 0 dead letters" in toril("move", source, target).output
            left, came = on(source, _held), on(target, _held)
            assert (sum(map(len, left.values())), came) == (
                0,
                {State.WAITING: ["1", "2"], State.DELAYED: came[State.DELAYED], State.PRIORITIZED: ["first"]},
            )
            assert len(came[State.DELAYED]) == 1
            (run,) = [
                each
                for each in documents(toril("jobs", "mail", "--runs", "--json", "--url", target).stdout)
                if each["id"] == "3"
            ]
            assert run["cause"] == "cancelled"
    finally:
        redis.stop()


async def _filled(app: App) -> None:
    mail = app.queue("mail")
    await mail.add_many([("send", {"n": n}) for n in range(2)])
    await (await mail.add("send", {"n": 3})).cancel()
    await mail.add("send", {}, priority=1, job_id="first")
    await app.store.schedules.put(
        "mail", Schedule(id="s", job=NewJob(name="n"), every=86_400_000), SYSTEM.now() + 86_400_000, expects=None
    )


async def _held(app: App) -> dict[State, list[str]]:
    pages = {state: await app.store.page("mail", state) for state in State}
    return {state: sorted(row.id for row in page.items) for state, page in pages.items() if page.items}


def test_the_doctor_finds_a_sound_store_and_what_the_server_does_wrong(toril: Toril) -> None:
    url = postgres().database()
    on(url, lambda app: app.queue("mail").add("send", {}))

    found = documents(toril("doctor", "--json", "--url", url, code=1).stdout)

    assert [each["code"] for each in found if "code" in each] == ["fsync"]  # the tests' server is in a hurry


def test_who_is_not_told_the_database_is_told_what_to_do(toril: Toril) -> None:
    said = toril("queues", "--url", postgres().url("nowhere"), code=1)

    assert "create the database, or name another in the URL" in said.output


async def test_a_forked_child_has_connections_of_its_own() -> None:
    url = postgres().database()
    code = (
        "import os, sys\n"
        "from toril import App\n"
        "q = App(sys.argv[1]).queue('q').sync\n"
        "q.add('n', 1)\n"
        "if os.fork() == 0:\n"
        "    q.add('n', 2)\n"
        "    os._exit(0)\n"
        "assert os.wait()[1] == 0\n"
        "q.add('n', 3)\n"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, url, stderr=asyncio.subprocess.PIPE)
    _, said = await child.communicate()

    assert child.returncode == 0, said.decode()
    engine = PostgresEngine.from_url(url)
    await engine.open()
    assert (await engine.counts("q")).waiting == 3
    await engine.close()
