"""Faults in users' tests: workers that die where the test says, jobs that come twice, jobs that fail the test."""

from dataclasses import dataclass
from datetime import timedelta

import pytest

from toril import App, Fixed, InvalidOption, JobContext, Retry, State, SyncJobContext
from toril.testing import memory


def ledger() -> tuple[App, list[tuple[int, int]]]:
    app, ran = App("memory://"), []

    async def charge(ctx: JobContext[int]) -> int:
        ran.append((ctx.data, ctx.fence))
        return ctx.data

    app.queue("money", {"charge": charge}, concurrency=3)
    return app, ran


@pytest.mark.parametrize(("place", "runs"), [("claimed", 1), ("returned", 2), ("settled", 1)])
async def test_a_worker_dies_where_the_test_says_and_its_job_is_recovered(place: str, runs: int) -> None:
    app, ran = ledger()
    queue = app.queues["money"]
    async with memory(app) as test:
        job = await queue.add("charge", 5, result_ttl=3600)
        test.kill(place, "charge")  # type: ignore[arg-type]
        await test.drain()
        after = await job.state()
        await test.after(queue.options.lease / 1000)

        assert (test.deaths, len(ran), await job.result(0)) == (1, runs, 5)
        assert after is (None if place == "settled" else State.ACTIVE)
        assert (await queue.counts()).active == 0


@pytest.mark.parametrize(("place", "steps"), [("step", ["a", "a", "b"]), ("stepped", ["a", "b"])])
async def test_a_worker_dies_around_the_record_of_a_durable_step(place: str, steps: list[str]) -> None:
    app, done = App("memory://"), list[str]()

    async def run(ctx: JobContext[None]) -> None:
        await ctx.step("a", done.append, "a")
        await ctx.step("b", done.append, "b")

    queue = app.queue("q", [run])
    async with memory(app) as test:
        job = await queue.add(run, result_ttl=3600)
        test.kill(place, run)  # type: ignore[arg-type]
        await test.drain()
        assert await job.state() is State.ACTIVE
        assert done == ["a"]
        assert len(await job.steps()) == (place == "stepped")
        await test.after(30)
        await job.result(0)

        assert test.deaths == 1
    assert done == steps


async def test_a_worker_dies_in_the_midst_of_a_handler_and_nothing_it_writes_then_counts() -> None:
    app, told = App("memory://"), []

    async def pay(ctx: JobContext[None]) -> None:
        told.append(ctx.last_checkpoint)
        await ctx.checkpoint("paid")
        if len(told) == 1:
            test.kill_here()

    queue = app.queue("q", [pay])
    async with memory(app) as test:
        job = await queue.add(pay)
        await test.drain()
        assert ((await job.refresh()).attempts_made, await job.state()) == (0, State.ACTIVE)
        await test.after(30)

    assert told == [None, "paid"]


async def test_a_worker_dies_in_a_handler_that_runs_in_a_thread() -> None:
    app, ran = App("memory://"), []

    def work(ctx: SyncJobContext[None]) -> None:
        ran.append(ctx.fence)
        if len(ran) == 1:
            test.kill_here()

    queue = app.queue("q", [work])
    async with memory(app) as test:
        await queue.add(work)
        await test.after("1m")

    assert (len(ran), test.deaths) == (2, 1)


async def test_the_jobs_beside_it_go_on() -> None:
    app, ran = ledger()
    queue = app.queues["money"]
    async with memory(app) as test:
        first, *_ = await queue.add_many([("charge", n) for n in range(5)])
        test.kill("returned", first)
        await test.after("2m")

        assert (await queue.counts()).active == 0
    assert {number for number, _ in ran} == set(range(5))


async def test_a_death_that_never_comes_fails_the_test() -> None:
    app, _ = ledger()
    with pytest.raises(AssertionError, match="no worker reached 'claimed'"):  # noqa: PT012 - the whole test fails
        async with memory(app) as test:
            test.kill("claimed")
            await test.drain()
    async with memory(app) as test:
        with pytest.raises(InvalidOption, match="'asleep'"):
            test.kill("asleep")  # type: ignore[arg-type]


async def test_a_job_is_delivered_twice() -> None:
    app, ran = ledger()
    queue = app.queues["money"]
    async with memory(app) as test:
        job = await queue.add("charge", 5, result_ttl=60)
        await test.deliver_twice(job)
        assert await job.result(0) == 5

        late = await queue.add("charge", 6, delay=60)
        with pytest.raises(AssertionError, match="did not run"):
            await test.deliver_twice(late)

    assert [number for number, _ in ran] == [5, 5]
    assert ran[0][1] < ran[1][1], "the fence tells them apart"


async def test_a_job_that_may_run_once_only_is_not_delivered_twice() -> None:
    app = App("memory://")

    async def once(ctx: JobContext[None]) -> None: ...

    queue = app.queue("q", [once], max_stalls=0)
    async with memory(app) as test:
        job = await queue.add(once)
        with pytest.raises(AssertionError, match="max_stalls=0"):
            await test.deliver_twice(job)


class Declined(Exception):
    """What a bank says."""


async def test_a_job_that_fails_fails_the_test_with_the_error_of_its_handler() -> None:
    app, ran = App("memory://"), []

    async def charge(ctx: JobContext[int]) -> None:
        ran.append(ctx.data)
        raise Declined(f"no {ctx.data}")

    queue = app.queue("money", {"charge": charge}, retry=Retry(3, Fixed(1)))
    with pytest.raises(Declined, match="no 0") as caught:  # noqa: PT012 - the whole test fails
        async with memory(app, on_failure="raise") as test:
            await queue.add_many([("charge", n) for n in range(3)])
            await test.after("1h")

    assert ran == [0], "and at once"
    assert caught.traceback[-1].name == "charge"
    assert caught.value.__notes__ == ["raised by job 1 'charge' of queue 'money'"]


async def test_what_no_handler_raised_fails_the_test_too() -> None:
    app, _ = ledger()
    with pytest.raises(AssertionError, match="Job function not found: refund"):  # noqa: PT012 - the whole test fails
        async with memory(app, on_failure="raise") as test:
            await app.queues["money"].add("refund", 1)
            await test.drain()


async def test_what_is_asked_for_later_is_no_failure() -> None:
    app, ran = App("memory://"), []

    async def patient(ctx: JobContext[None]) -> None:
        ran.append(ctx.attempt)
        if len(ran) == 1:
            ctx.rate_limited(10)

    queue = app.queue("q", [patient])
    async with memory(app, on_failure="raise") as test:
        await queue.add(patient)
        await test.after(10)

    assert ran == [1, 1]


@dataclass
class Order:
    number: int
    email: str


async def test_what_was_added_is_asserted() -> None:
    app = App("memory://")

    async def order(ctx: JobContext[Order]) -> None:
        await queue.add(
            "remind", {"order": {"number": ctx.data.number, "lines": [1, 2]}}, delay=60, priority=3, timeout=30
        )

    async def remind(ctx: JobContext[dict[str, object]]) -> None: ...

    queue = app.queue("shop", {"order": order, "remind": remind})
    app.queue("other")
    async with memory(app) as test:
        await queue.add(order, Order(7, "a@example.org"))
        await test.after("1h")

        test.assert_added(order, times=1)
        test.assert_added(order, Order(7, "a@example.org"), queue="shop")
        test.assert_added("order", {"number": 7})
        (reminder,) = test.assert_added(remind, {"order": {"number": 7}}, delay=60, priority=3, times=1)
        assert reminder.data["order"]["lines"] == [1, 2]
        assert (reminder.options["timeout"], reminder.options["attempts"]) == (30, 5)
        test.assert_added(remind, timeout=timedelta(seconds=30))
        test.assert_not_added(order, {"number": 8})
        test.assert_not_added(queue="other")
        assert [each.name for each in test.added] == ["order", "remind"]

        for wrong in ({"number": 8}, {"number": 7, "vat": 1}, {"order": {"lines": [1]}}):
            with pytest.raises(AssertionError, match=r"jobs added:\n  shop: order"):
                test.assert_added(data=wrong)
        with pytest.raises(AssertionError, match="added 2 times, but it was added 1 times"):
            test.assert_added(order, times=2)
        with pytest.raises(AssertionError, match="delayed by 5 s to be added at least once"):
            test.assert_added(remind, delay=5)
        with pytest.raises(TypeError, match="'prio'"):
            test.assert_added(remind, prio=3)
        with pytest.raises(InvalidOption, match="pass the job's name"):
            test.assert_added(print)


async def test_jobs_of_flows_and_duplicates_are_told_apart() -> None:
    app, _ = ledger()
    queue = app.queues["money"]
    async with memory(app) as test:
        await app.flow(queue.new("charge", 1), [queue.new("charge", 2)])
        await queue.add("charge", 3, job_id="same")
        await queue.add("charge", 4, job_id="same")

        assert [each.data for each in test.assert_added("charge", times=3)] == [1, 2, 3]
