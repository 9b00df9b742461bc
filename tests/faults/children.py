"""What the child processes do. Each is told the store's file and the ledger in which it notes what happened."""

import asyncio
import os
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

from tests.faults.families import crowd, family, orphan
from tests.faults.flowing import tend
from tests.faults.ledger import Ledger
from toril.engines.sqlite import SqliteEngine, connect, database
from toril.engines.sqlite.database import SqliteDatabase
from toril.engines.sqlite.url import parse
from toril.errors import EngineUnavailable, TorilError
from toril.model import KEEP_ALL, Claim, Completed, JobOptions, NewJob, Settlement, Verdict
from toril.model.states import State
from toril.runtime.clock import SYSTEM

LONG = 60_000
NOBODY = 65534


async def produce(path: str, log: str, name: str, batch: int = 5, batches: int = 0) -> None:
    """Add batches, and note each id after its add was answered; for ever, or so many batches."""
    ledger = Ledger(log)
    try:
        engine = await opened(path)
    except EngineUnavailable as error:
        ledger.note("refused", [str(error)])
        return
    for number in range(batches) if batches else count():
        ids = [f"{name}-{number}-{i}" for i in range(batch)]
        try:
            await engine.add("q", [NewJob(name="n", id=identity, data='{"text": "some"}') for identity in ids])
        except EngineUnavailable as error:
            ledger.note("unknown", [f"{identity} {error}" for identity in ids])
        else:
            ledger.note("kept", ids)
    await engine.close()


async def work(path: str, log: str, name: str, want: int, lease: int = LONG) -> None:
    """Claim and complete until nothing is left. Note each start, and each verdict on handing in."""
    engine, ledger = await opened(path), Ledger(log)
    done: list[Settlement] = []
    for number in count():
        claim = Claim(
            want=want, token=f"{name}-{number}", lease=lease, worker=name, alone=True, max_stalls=1_000_000
        )  # fmt: skip
        answer = await engine.exchange("q", done, claim)
        for verdict in Verdict:
            handed_in = zip(done, answer.verdicts, strict=True)
            ledger.note(verdict.value, [one.lease.id for one, its in handed_in if its is verdict])
        ledger.note("start", [job.lease.id for job in answer.jobs])
        done = [Settlement(job.lease, Completed()) for job in answer.jobs]
        if not done and not await _more_may_come(engine):
            break
    await engine.close()


async def _more_may_come(engine: SqliteEngine) -> bool:
    """Whether jobs are left. Those of workers that died are taken back here, as soon as their lease has run out."""
    recovered = await engine.recover("q")
    if recovered.returned:
        return True
    counts = await engine.counts("q")
    if counts.active:
        await asyncio.sleep(0.02)
    return bool(counts.active or counts.waiting)


async def fill(path: str, jobs: int, log: str = os.devnull) -> None:
    """A file with many jobs in it. With a ledger, stay until killed, so that the log is left beside the file."""
    engine, ledger = await opened(path), Ledger(log)
    for start in range(0, jobs, 500):
        await engine.add("q", [NewJob(name="n", options=JobOptions(keep_completed=KEEP_ALL))] * min(500, jobs - start))
    if log != os.devnull:
        ledger.note("filled", [path])
        await asyncio.Event().wait()
    await engine.close()


async def visit(folder: str, log: str) -> None:
    """Open each file of the folder and use it a little; note what came of it."""
    ledger = Ledger(log)
    for path in sorted(Path(folder).glob("*.db")):  # noqa: ASYNC240 - nobody else is on this loop
        engine = connect(f"sqlite:///{path}")
        try:
            await engine.open()
        except TorilError as error:
            ledger.note("refused", [f"{path.name} {type(error).__name__} {error}"])
            continue
        try:
            await _use(engine)
            ledger.note("used", [path.name])
        except TorilError as error:
            ledger.note("stopped", [f"{path.name} {type(error).__name__} {error}"])
        await engine.close()


async def _use(engine: SqliteEngine) -> None:
    await engine.counts("q")
    await engine.page("q", State.WAITING)
    claim = Claim(want=20, token="visit", lease=LONG, worker="visit")
    jobs = (await engine.exchange("q", [], claim)).jobs
    again = Claim(want=20, token="again", lease=LONG, worker="visit")
    await engine.exchange("q", [Settlement(job.lease, Completed()) for job in jobs], again)
    await engine.add("q", [NewJob(name="n", id="visitor")])


def database_of(engine: SqliteEngine) -> SqliteDatabase:
    """An engine's hold on its file."""
    database = engine._writer.database
    assert isinstance(database, SqliteDatabase)
    return database


async def migrate_and_die(path: str, at: int) -> None:
    """Open a store; at its so manieth statement, die."""
    seen = count(1)

    def count_and_die(_: str) -> None:
        if next(seen) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def connect_traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = plain(*args, **kwargs)
        connection.set_trace_callback(count_and_die)
        return connection

    plain, sqlite3.connect = sqlite3.connect, connect_traced  # type: ignore[assignment]
    await (await opened(path)).close()


async def open_as_nobody(path: str, log: str) -> None:
    """Try to open a file without the rights of root; note the answer."""
    ledger = Ledger(log)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        await opened(path)
    except TorilError as error:
        ledger.note(type(error).__name__, [str(error)])


async def share(url: str, name: str, user: int, group: int, log: str) -> None:
    """Add 20 jobs beside another process that does the same: as a user of a group where we are root, else as we are."""
    ledger = Ledger(log)
    if os.getuid() == 0:
        os.setgroups([group])
        os.setgid(user)
        os.setuid(user)
    os.umask(0o022)
    engine = connect(url)
    await engine.open()
    await engine.wait(["idle"], timeout=1)  # whoever waits has a socket, and there is a folder for it
    await engine.add("q", [NewJob(name="n", id=f"{name}-0")])
    while (await engine.counts("q")).waiting < 2:  # both have the file open
        await engine.wait(["q"], timeout=1_000)
    for number in range(1, 20):
        await engine.add("q", [NewJob(name="n", id=f"{name}-{number}")])
    beside = Path(parse(url).path or "").parent.iterdir()
    ledger.note("mode", [f"{path.name} {path.stat().st_mode & 0o777:04o}" for path in sorted(beside)])
    await engine.close()


async def echo(path: str, times: int, looks: float = 0.05) -> None:
    """Answer each job in `ping` by one in `pong`, with the time at which it was added. `looks` is how often it looks
    into the file, if nobody tells it of the job."""
    database._CHECK_EVERY = database._CHECK_NOTIFIED_EVERY = looks  # type: ignore[misc]
    engine, answered = await opened(path), 0
    while answered < times:
        await engine.wait(["ping"], timeout=LONG)
        claim = Claim(want=2, token=SYSTEM.unique(), lease=LONG, worker="echo")
        for _ in (await engine.exchange("ping", [], claim)).jobs:
            await engine.add("pong", [NewJob(name="n", data=str(SYSTEM.monotonic()))])
            answered += 1
    await engine.close()


async def opened(path: str | Path) -> SqliteEngine:
    engine = connect(f"sqlite:///{path}")
    await engine.open()
    return engine


ROLES: dict[str, Callable[..., Awaitable[None]]] = {
    role.__name__: role
    for role in (echo, fill, migrate_and_die, open_as_nobody, produce, share, visit, work, family, crowd, orphan, tend)
}
