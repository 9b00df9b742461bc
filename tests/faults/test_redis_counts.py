"""What a job costs, counted: the server's commands, calls of scripts and of Python functions. A clock is looked at only
for what is done by the second."""

import asyncio
import cProfile
import pstats
import time

import pytest

from tests.conformance.jobs import claim
from tests.servers import RedisServer, running
from toril import App, JobContext
from toril.engines.redis import RedisEngine, connect, scripts
from toril.engines.redis.exchange import arguments_of, exchange_of
from toril.model import Call, Claim, Completed, NewJob, Settlement

JOBS = 100


def commands(server: RedisServer) -> dict[str, int]:
    """How often each command was run, in scripts and outside."""
    counts = {}
    for line in server.info("commandstats").splitlines():
        name, separator, rest = line.partition(":")
        if separator:
            counts[name.removeprefix("cmdstat_")] = int(rest.split("calls=")[1].split(",")[0])
    return counts


class Cost:
    """Commands since it was made, a job."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._before = commands(server)

    def spent(self) -> dict[str, float]:
        now = commands(self._server)
        spent = {name: (count - self._before.get(name, 0)) / JOBS for name, count in now.items()}
        del spent["info"]
        return {name: count for name, count in spent.items() if count}


async def opened() -> tuple[RedisServer, RedisEngine]:
    server = running()
    server.tell("FLUSHALL")
    engine = connect(server.url)
    await engine.open()
    await engine.add("warm", [NewJob(name="n")])
    held = (await claim(engine, queue="warm")).jobs[0]
    await engine.exchange("warm", [Settlement(held.lease, Completed())], Claim(want=0, token="t", lease=1, worker="w"))
    return server, engine


async def test_a_bulk_add_is_one_call_and_three_commands_a_job() -> None:
    server, engine = await opened()
    cost = Cost(server)

    await engine.add("q", [NewJob(name="n") for _ in range(JOBS)], call=Call("me", 1))

    spent = cost.spent()
    assert spent["evalsha"] == 1 / JOBS
    assert (spent["hset"], spent["xadd"]) == (1 + 1 / JOBS, 2)
    assert sum(spent.values()) <= 3.4
    await engine.close()


async def test_a_lone_add_is_one_call_and_fifteen_commands() -> None:
    server, engine = await opened()
    await engine.add("q", [NewJob(name="n")])
    cost = Cost(server)

    for number in range(JOBS):
        await engine.add("q", [NewJob(name="n")], call=Call("me", number + 1))

    spent = cost.spent()
    assert spent["evalsha"] == 1
    assert sum(spent.values()) <= 15
    await engine.close()


async def test_the_first_add_of_a_process_costs_what_every_add_costs() -> None:
    server = running()
    scripts.script.cache_clear()
    scripts.assembler.cache_clear()
    async with App(server.url) as app:
        queue, calls = app.queue("q"), list[int]()
        for _ in range(2):
            profile = cProfile.Profile()
            profile.enable()
            await queue.add("n", 1)
            profile.disable()
            calls.append(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]

    first, second = calls
    assert first <= 2 * second


async def test_a_hundred_added_at_once_are_two_calls() -> None:
    server, engine = await opened()
    await engine.close()
    async with App(server.url) as app:
        queue = app.queue("q")
        await queue.add("n")
        cost = Cost(server)

        await asyncio.gather(*(queue.add("n", number) for number in range(JOBS)))

        assert cost.spent()["evalsha"] == 2 / JOBS
        assert (await queue.counts()).waiting == JOBS + 1


async def test_one_job_is_settled_and_the_next_claimed_in_one_call_and_thirty_two_commands() -> None:
    server, engine = await opened()
    await engine.add("q", [NewJob(name="n") for _ in range(JOBS + 1)])
    batch = [Settlement(job.lease, Completed()) for job in (await claim(engine, 1)).jobs]
    cost = Cost(server)

    for turn in range(1, JOBS + 1):
        wanted = Claim(want=1, token=f"t{turn}", lease=30_000, worker="w")
        answer = await engine.exchange("q", batch, wanted, call=Call("w", turn))
        batch = [Settlement(job.lease, Completed()) for job in answer.jobs]

    spent = cost.spent()
    assert len(batch) == 1
    assert spent["evalsha"] == 1
    assert sum(spent.values()) <= 32.1
    await engine.close()


async def test_a_hundred_are_settled_and_claimed_in_one_call_and_seven_commands_a_job() -> None:
    server, engine = await opened()
    await engine.add("q", [NewJob(name="n") for _ in range(2 * JOBS)])
    taken = (await claim(engine, JOBS)).jobs
    batch = [Settlement(job.lease, Completed()) for job in taken]
    cost = Cost(server)

    answer = await engine.exchange(
        "q", batch, Claim(want=JOBS, token="next", lease=30_000, worker="w"), call=Call("w", 1)
    )

    spent = cost.spent()
    assert len(answer.jobs) == JOBS
    assert spent["evalsha"] == 1 / JOBS
    assert (spent["hgetall"], spent["hmget"], spent["set"], spent["xadd"]) == (1, 1.03, 1.01, 2)
    assert sum(spent.values()) <= 6.39
    await engine.close()


async def test_python_makes_few_calls_a_job() -> None:
    _, engine = await opened()
    await engine.add("q", [NewJob(name="n") for _ in range(2 * JOBS)])
    batch = [Settlement(job.lease, Completed()) for job in (await claim(engine, JOBS)).jobs]
    wanted = Claim(want=JOBS, token="next", lease=30_000, worker="w")
    answer = await engine._runner.write("exchange", "q", arguments_of(batch, wanted), None, None)
    await engine.close()
    profile = cProfile.Profile()

    profile.enable()
    arguments_of(batch, wanted)
    given = exchange_of("q", "next", answer)
    profile.disable()

    assert len(given.jobs) == JOBS
    calls = pstats.Stats(profile).total_calls / JOBS  # type: ignore[attr-defined]
    assert calls <= 21


async def calls_of(slots: int, jobs: int) -> tuple[float, float]:
    """How many functions a worker calls per job, from its claim to its end, once it is under way; and how many turns of
    the event loop it takes."""
    server = running()
    server.tell("FLUSHALL")
    profile, done, first = cProfile.Profile(), 0, 2 * slots

    async def noop(_: JobContext[int]) -> None:
        nonlocal done
        done += 1
        if done == first:
            profile.enable()
        if done == first + jobs:
            profile.disable()
            app.stop()

    app = App(server.url)
    queue = app.queue("q", {"n": noop}, concurrency=slots)
    async with app:
        await queue.add_many([("n", 1)] * (jobs + first + slots))
        await app.run()
    stats = pstats.Stats(profile)
    turns = sum(found[1] for (_, _, name), found in stats.stats.items() if name == "_run_once")  # type: ignore[attr-defined]
    return stats.total_calls / jobs, turns / jobs  # type: ignore[attr-defined]


async def test_a_worker_makes_few_calls_and_turns_a_job() -> None:
    calls, turns = await calls_of(1, 300)
    assert calls <= 285
    assert turns <= 2.1

    calls, turns = await calls_of(100, 2000)
    assert calls <= 115
    assert turns <= 0.1


@pytest.mark.covers("R183")
async def test_an_idle_worker_asks_little() -> None:
    """Ten queues with nothing to do: what their start costs, and then a few calls a second for all of them."""
    server = running()
    server.tell("FLUSHALL")
    app = App(server.url)

    async def handler(ctx: JobContext[int]) -> str:
        return "done"

    queues = [app.queue(f"q{number}", {"n": handler}) for number in range(10)]
    async with app:
        before, began = commands(server), time.monotonic()
        run = asyncio.create_task(app.run())
        try:
            async with asyncio.timeout(60):
                while "cmd=bzpopmin" not in server.clients():  # noqa: ASYNC110 - the server tells nobody
                    await asyncio.sleep(0.05)
            await asyncio.sleep(2)
            now, took = commands(server), time.monotonic() - began
            assert await queues[3].add_and_wait("n", 1, timeout=60) == "done"
        finally:
            app.stop()
            await run

    calls = {name: now.get(name, 0) - before.get(name, 0) for name in ("evalsha", "bzpopmin")}
    assert calls["evalsha"] <= 10 * 6 + 4 * took
    assert calls["bzpopmin"] <= 10 * 3 + 4 * took


async def test_a_start_without_work_costs_few_calls() -> None:
    """What 20 idle queues cost: a claim, a look for lost jobs and for removed schedules each when they start, then one
    blocking read for all of them."""
    server = running()
    server.tell("FLUSHALL")
    app = App(server.url)

    async def handler(ctx: JobContext[int]) -> None:
        raise AssertionError("there is nothing to do")

    for number in range(20):
        app.queue(f"q{number}", {"n": handler})
    cost = Cost(server)

    assert await app.run(burst=True) == 0

    spent = {name: round(count * JOBS) for name, count in cost.spent().items()}
    assert spent["evalsha"] <= 20 * 4 + 5
    assert spent.get("bzpopmin", 0) <= 45


async def cost_of(groups: int) -> dict[str, float]:
    """What adding, claiming and settling jobs costs that are spread over so many groups."""
    server, engine = await opened()
    cost = Cost(server)
    await engine.add("q", [NewJob(name="n", group=f"g{n % groups}") for n in range(JOBS)], call=Call("me", 1))
    batch: list[Settlement] = []
    for turn in range(JOBS // 10 + 1):
        wanted = Claim(want=10 if turn < JOBS // 10 else 0, token=f"t{turn}", lease=30_000, worker="w")
        answer = await engine.exchange("q", batch, wanted, call=Call("w", turn + 1))
        batch = [Settlement(job.lease, Completed()) for job in answer.jobs]
    assert (await engine.counts("q")).waiting == 0
    await engine.close()
    return cost.spent()


async def test_as_many_groups_as_jobs_cost_no_more_than_twice_one_group() -> None:
    many, one = [sum((await cost_of(groups)).values()) for groups in (JOBS, 1)]

    assert many <= 2 * one
    assert one <= 2 * many
    assert max(many, one) <= 40
