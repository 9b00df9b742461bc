"""The event loop: never blocked by the store, free to cancel, to end, or to be one of several."""
# ruff: noqa: ASYNC110 - threads end without telling the loop

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import pytest

from tests.conformance.jobs import claim
from tests.faults.children import LONG, opened
from tests.faults.doubles import replace_disk
from tests.faults.ledger import stored_ids, unsound
from toril.engines.sqlite import SqliteEngine, connect
from toril.errors import Closed
from toril.model import KEEP_ALL, Claim, Completed, JobOptions, NewJob, Settlement


@pytest.mark.covers("F108")
async def test_the_loop_runs_on_while_a_commit_is_slow(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, ticked = replace_disk(monkeypatch), threading.Event()
    engine = await opened(database)
    waited: list[bool] = []
    disk.before_commit = lambda: waited.append(ticked.wait(30))

    async with asyncio.TaskGroup() as group:
        adding = group.create_task(engine.add("q", [NewJob(name="n")]))
        for _ in range(100):
            await asyncio.sleep(0.001)
            assert not adding.done()
        assert (await engine.counts("q")).waiting == 0  # reading goes on as well
        ticked.set()

    assert waited == [True]
    await engine.close()


@pytest.mark.covers("B64")
async def test_a_closed_store_says_so(database: Path) -> None:
    engine = await opened(database)
    await engine.close()
    await engine.close()

    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: engine.add("q", [NewJob(name="n")]), lambda: claim(engine), lambda: engine.counts("q"),
        lambda: engine.wait(["q"], timeout=LONG), lambda: engine.finished("q", ["1"], timeout=LONG),
        lambda: engine.recover("q"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(Closed, match=r"is not open; open it with `async with app:`"):
            await call()
    assert not (await engine.health()).ok


@pytest.mark.covers("B64")
async def test_opening_twice_at_once_opens_once(database: Path) -> None:
    engine = connect(f"sqlite:///{database}")

    async with asyncio.TaskGroup() as group:
        group.create_task(engine.open())
        group.create_task(engine.open())
    threads = threads_of_the_store()
    await engine.close()

    assert threads == ["toril-sqlite"]
    assert threads_of_the_store() == []


@pytest.mark.covers("B64")
async def test_a_store_that_was_never_opened_can_be_closed(database: Path) -> None:
    engine = connect(f"sqlite:///{database}")

    await engine.close()

    assert list(database.parent.iterdir()) == []


@pytest.mark.covers("B64")
async def test_a_closed_store_can_be_opened_again(database: Path) -> None:
    engine = await opened(database)
    await engine.add("q", [NewJob(name="n")])
    await engine.counts("q")
    await engine.close()

    await engine.open()

    assert (await engine.counts("q")).waiting == 1
    await engine.add("q", [NewJob(name="n")])
    await engine.close()
    assert [path.name for path in database.parent.iterdir()] == ["jobs.db"]


@pytest.mark.covers("B64")
async def test_closing_ends_every_wait(database: Path) -> None:
    engine = await opened(database)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        waiting = group.create_task(engine.wait(["q"], timeout=LONG))
        while not engine._notifier.names:
            await asyncio.sleep(0)
        await engine.add("other", [NewJob(name="n")])
        await engine.close()

    assert waiting.result() == set()


@pytest.mark.covers("B74")
@pytest.mark.parametrize("seed", range(3))
async def test_a_call_that_is_cancelled_at_any_moment_leaves_the_store_sound(database: Path, seed: int) -> None:
    engine, chance = await opened(database), random.Random(seed)
    answered: set[str] = set()

    async def add(number: int) -> None:
        ids = [f"{number}-{i}" for i in range(5)]
        await engine.add(
            "q", [NewJob(name="n", id=identity, options=JobOptions(keep_completed=KEEP_ALL)) for identity in ids]
        )
        answered.update(ids)

    async def work(number: int) -> None:
        jobs = (await claim(engine, 3)).jobs
        nothing = Claim(want=0, token=f"settle-{number}", lease=LONG, worker="w")
        await engine.exchange("q", [Settlement(job.lease, Completed()) for job in jobs], nothing)

    async def read(number: int) -> None:
        await engine.counts("q")
        await engine.wait(["q"], timeout=1)

    cancelled = 0
    for number in range(150):
        tasks = [asyncio.ensure_future(call(number)) for call in chance.sample([add, work, read], k=3)]
        for task in tasks:
            for _ in range(chance.choice((0, 1, 2, 3, 5, 50))):
                await asyncio.sleep(0)
            if chance.random() < 0.7:
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        cancelled += sum(isinstance(result, asyncio.CancelledError) for result in results)
        assert not [one for one in results if isinstance(one, Exception)]
    await engine.close()

    stored = stored_ids(database)
    print(f"{cancelled} of 450 calls cancelled, {len(stored)} jobs stored, {len(answered)} of them answered")
    assert cancelled > 100
    assert answered <= stored
    assert stored == {f"{identity.partition('-')[0]}-{i}" for identity in stored for i in range(5)}
    assert unsound(database) == []


@pytest.mark.covers("B74")
async def test_opening_can_be_cancelled_at_any_moment(database: Path) -> None:
    for moment in range(20):
        engine = connect(f"sqlite:///{database}")
        await cancelled_after(engine.open(), moment * 0.002)
        await engine.close()

    async with asyncio.timeout(20):
        while threads_of_the_store():
            await asyncio.sleep(0.01)
    await (await opened(database)).close()
    assert [path.name for path in database.parent.iterdir()] == ["jobs.db"]
    assert unsound(database) == []


@pytest.mark.covers("B74")
async def test_closing_can_be_cancelled_at_any_moment(database: Path) -> None:
    engine = await opened(database)
    await engine.counts("q")
    assert engine._reader is not None

    with engine._reader.turn:  # so that it cannot have stopped already
        await cancelled_after(engine.close(), 0)
    await engine.close()

    try:
        async with asyncio.timeout(60):
            while threads_of_the_store():
                await asyncio.sleep(0.01)
    finally:
        await engine._runner.stop()


async def cancelled_after(call: Coroutine[None, None, None], seconds: float) -> None:
    task = asyncio.ensure_future(call)
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def threads_of_the_store() -> list[str]:
    return [thread.name for thread in threading.enumerate() if _is_of_a_store(thread) and thread not in _others]


def _is_of_a_store(thread: threading.Thread) -> bool:
    return thread.name.startswith("toril-sqlite")


_others: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """Stores that stay open for other tests of this process are not looked at here."""
    _others.clear()
    _others.update(filter(_is_of_a_store, threading.enumerate()))


@pytest.mark.covers("B73")
async def test_a_second_event_loop_can_use_the_same_store(database: Path) -> None:
    engine = await opened(database)

    async def elsewhere() -> int:
        await engine.wait(["call"], timeout=LONG)
        await engine.add("answer", [NewJob(name="n")] * 3)
        return (await engine.counts("answer")).waiting

    thread = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
    async with asyncio.timeout(30):
        await engine.add("call", [NewJob(name="n")])
        assert await engine.wait(["answer"], timeout=LONG) == {"answer"}
        assert await thread == 3
    await engine.close()


@pytest.mark.covers("B73")
def test_a_store_outlives_the_loop_that_opened_it(database: Path) -> None:
    async def open_and_leave() -> SqliteEngine:
        engine = await opened(database)
        waiting = asyncio.ensure_future(engine.wait(["q"], timeout=LONG))
        await asyncio.sleep(0)
        assert not waiting.done()
        return engine  # the loop ends with a wait under way

    async def go_on(engine: SqliteEngine) -> int:
        await engine.add("q", [NewJob(name="n")])
        found = (await engine.counts("q")).waiting
        await engine.close()
        return found

    engine = asyncio.run(open_and_leave())

    assert asyncio.run(asyncio.wait_for(go_on(engine), 20)) == 1
