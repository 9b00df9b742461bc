"""Jobs that would only fail are put off for a while, without spending their attempts."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from toril import App, Breaker, Fixed, InvalidName, InvalidOption, JobContext, PermanentError, Retry, State, handler
from toril.model import CircuitState
from toril.operate.breakers import BreakerMetrics
from toril.testing import memory


def host(data: dict[str, Any]) -> str:
    return str(data["host"])


@pytest.mark.covers("R225", "R226")
async def test_a_host_that_is_down_is_left_alone_and_others_are_not() -> None:
    app, ran, changes = App("memory://"), [], []
    down = {"a"}

    async def call(ctx: JobContext[dict[str, Any]]) -> None:
        ran.append((ctx.data["host"], ctx.attempt))
        if ctx.data["host"] in down:
            raise ConnectionError("down")

    queue = app.queue("q", {"call": call}, retry=Retry(10, Fixed(1)), breaker=Breaker(by=host))
    app.on("breaker", lambda event: changes.append((event.detail["key"], event.detail["state"])))
    async with memory(app) as test:
        for _ in range(5):
            await queue.add("call", {"host": "a"})
        await test.drain()
        assert ran == [("a", 1)] * 5
        assert changes == [("a", "open")]

        late = await queue.add("call", {"host": "a"})
        await queue.add("call", {"host": "b"})
        await test.after(1)
        assert ran[5:] == [("b", 1)], "those that would retry now are put off too"
        record = (await queue.store.jobs("q", [late.id]))[0]
        assert record is not None
        assert (record.state.value, record.attempts_made) == ("delayed", 0)
        assert (await app.breakers.list())[0].state is CircuitState.OPEN

        down.clear()
        del ran[:]
        await test.after(59)
        assert changes == [("a", "open")]
        for _ in range(10):
            await test.after(2)

    assert changes == [("a", "open"), ("a", "half-open"), ("a", "closed")]
    assert sorted(ran) == [("a", 1)] + [("a", 2)] * 5


@pytest.mark.covers("R225")
async def test_a_job_names_the_circuit_it_hangs_on() -> None:
    app, ran = App("memory://"), []

    async def call(ctx: JobContext[str]) -> None:
        ran.append(ctx.data)
        raise ConnectionError("down")

    first = app.queue("first", {"call": call}, retry=Retry(1))
    second = app.queue("second", {"call": call}, retry=Retry(1))
    async with memory(app) as test:
        for _ in range(6):
            await first.add("call", "held", breaker="api.example.com")
        await test.drain()
        await second.add("call", "elsewhere", breaker="api.example.com")
        await second.add("call", "free")
        await test.drain()
        (circuit,) = await app.breakers.list()

    assert sorted(ran) == ["free"] + ["held"] * 5, "five open it, in whatever queue"
    assert (circuit.key, circuit.state) == ("api.example.com", CircuitState.OPEN)
    with pytest.raises(InvalidName, match="breaker"):
        await first.add("call", "x", breaker="two\nlines")


async def test_many_jobs_of_an_open_circuit_cost_one_question_and_come_back_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, asked = App("memory://"), []

    async def call(ctx: JobContext[int]) -> None:
        assert ctx.data < 0, "it does not run while the circuit is open"

    queue = app.queue("q", {"call": call}, concurrency=2, breaker=Breaker(pause=60, by="queue"))
    async with memory(app) as test:
        await app.breakers.trip("q")
        admit = app.store.circuits.admit

        async def counted(key: str, *args: Any, **more: Any) -> Any:
            asked.append(key)
            return await admit(key, *args, **more)

        monkeypatch.setattr(app.store.circuits, "admit", counted)
        await queue.add_many([("call", n) for n in range(200)])
        await test.drain()
        start, delayed = test.clock.now(), (await app.store.page("q", State.DELAYED, limit=200)).items

    assert len(asked) <= 2, "those that run at once may both ask"
    dues = sorted(record.due or 0 for record in delayed)
    assert start + 60_000 <= dues[0] <= dues[-1] <= start + 75_000
    assert len(set(dues)) > 190


async def test_only_trouble_that_passes_counts() -> None:
    app = App("memory://")

    async def work(ctx: JobContext[str]) -> None:
        raise PermanentError("bad") if ctx.data == "permanent" else KeyError("a bug")

    queue = app.queue("q", {"work": work}, retry=Retry(1), breaker=Breaker(failures=2))
    async with memory(app) as test:
        for _ in range(5):
            await queue.add("work", "permanent")
            await queue.add("work", "unknown")
        await test.drain()
        assert await app.breakers.list() == []
        assert await app.dead_letters.count() == 10


async def test_a_handler_has_its_own_and_jobs_stand_together_by_name() -> None:
    app, ran = App("memory://"), []

    async def bad(ctx: JobContext[int]) -> None:
        ran.append("bad")
        raise TimeoutError

    async def good(ctx: JobContext[int]) -> None:
        ran.append("good")

    handlers = {"bad": handler(bad, breaker=Breaker(failures=2, rate=0.5, minimum=2)), "good": good}
    queue = app.queue("q", handlers, retry=Retry(1))
    async with memory(app) as test:
        for n in range(4):
            await queue.add("bad", n)
            await queue.add("good", n)
        await test.drain()
        (circuit,) = await app.breakers.list()

    assert (ran.count("bad"), ran.count("good")) == (2, 4)
    assert (circuit.key, circuit.state) == ("q/bad", CircuitState.OPEN)


@pytest.mark.covers("R226")
async def test_one_is_tripped_and_reset_by_hand() -> None:
    app, ran = App("memory://"), []

    async def work(ctx: JobContext[None]) -> None:
        ran.append(ctx.attempt)

    queue = app.queue("q", {"work": work}, breaker=Breaker(by="queue"))
    async with memory(app) as test:
        await app.breakers.trip("q", 3600)
        await queue.add("work")
        await test.drain()
        assert ran == []
        assert await app.breakers.reset("q") is True
        assert await app.breakers.reset("q") is False
        await test.after(4600)

    assert ran == [1]


async def test_circuits_are_told_in_figures() -> None:
    app = App("memory://")

    async def call(ctx: JobContext[str]) -> None:
        raise ConnectionError("down")

    queue = app.queue("q", {"call": call}, retry=Retry(1), breaker=Breaker(failures=3, by=str))
    async with memory(app) as test:
        await queue.add_many([("call", host) for host in "aaab"])
        await test.drain()
        figures = await app.breakers.metrics()
        listed = await app.breakers.list()

    assert figures == BreakerMetrics(closed=1, open=1, half_open=0, runs=1, failures=1)
    assert [each.key for each in listed] == ["a", "b"]
    assert (listed[1].failures, listed[1].runs, listed[1].since) == (1, 1, None)
    assert listed[0].since == test.now
    assert listed[0].till == test.now + timedelta(seconds=60)


async def test_a_job_that_overruns_its_time_counts() -> None:
    app = App("memory://")

    async def slow(ctx: JobContext[None]) -> None:
        await ctx.signal.wait()
        await asyncio.sleep(3600)

    queue = app.queue("q", {"slow": slow}, retry=Retry(1), timeout=1, breaker=Breaker(failures=1))
    async with memory(app) as test:
        await queue.add("slow")
        async with test.clock.running():
            await test.drain()
        (circuit,) = await app.breakers.list()

    assert circuit.state is CircuitState.OPEN


@pytest.mark.covers("R225")
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_two_processes_open_it_once(kind: str, tmp_path: Path) -> None:
    """Two apps on one store, as two processes are; five failures among them."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    if kind == "redis":
        server = servers.running()
        server.tell("FLUSHALL")
        url = server.url
    apps, changes, ran = [App(url), App(url)], [], []

    async def call(ctx: JobContext[int]) -> None:
        ran.append(ctx.data)
        await asyncio.sleep(0.01)  # so that both take part
        raise ConnectionError("down")

    for app in apps:
        app.queue("q", {"call": call}, retry=Retry(1), breaker=Breaker(pause=3600, by="queue"))
        app.on("breaker", lambda event: changes.append(event.detail["state"]))
    async with apps[0]:
        await apps[0].queues["q"].add_many([("call", n) for n in range(20)])
        await asyncio.gather(*(app.run(burst=True) for app in apps))
        counts = await apps[0].queues["q"].counts()

    assert changes == ["open"]
    assert 5 <= len(ran) <= 6, "one may have been under way"
    assert counts.delayed == 20 - len(ran)


@pytest.mark.parametrize("odd", [{"by": "colour"}, {"pause": 0}, {"window": -1}, {"probes": 0}])
def test_an_odd_breaker_is_refused(odd: dict[str, Any]) -> None:
    async def work(ctx: JobContext[None]) -> None: ...

    with pytest.raises(InvalidOption):
        Breaker(**odd)
    with pytest.raises(InvalidOption, match="Breaker"):
        App("memory://").queue("q", breaker=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="Breaker"):
        handler(work, breaker=5)  # type: ignore[arg-type]


async def test_probes_that_run_longer_than_their_lease_close_it_and_stay_two() -> None:
    app, changes, out, most = App("memory://"), [], 0, [0]
    broken, closed = True, asyncio.Event()

    async def call(ctx: JobContext[int]) -> None:
        nonlocal out
        if broken:
            raise ConnectionError("down")
        out += 1
        if not closed.is_set():
            most.append(out)
        await test.clock.sleep(45)
        out -= 1

    breaker = Breaker(failures=1, by="queue")
    queue = app.queue("q", {"call": call}, retry=Retry(10, Fixed(1)), breaker=breaker, lease=30, concurrency=9)
    app.on("breaker", lambda event: changes.append(event.detail["state"]))
    app.on("breaker", lambda event: closed.set() if event.detail["state"] == "closed" else None)
    async with memory(app) as test:
        await queue.add("call", 0)
        await test.drain()
        broken = False
        for n in range(5):
            await queue.add("call", n)
        async with asyncio.timeout(30), test.clock.running():
            working = asyncio.create_task(app.run(signals="leave"))
            await closed.wait()
            app.stop()
            await working

    assert changes == ["open", "half-open", "closed"]
    assert max(most) == 2
