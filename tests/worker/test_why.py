"""`queue.why`: every answer, in the situation that it describes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from tests.declared import declared
from tests.worker.conftest import Timed
from toril import (
    App,
    Breaker,
    Explanation,
    Fixed,
    GroupLimits,
    InvalidOption,
    JobContext,
    NotFound,
    RateLimit,
    Retry,
    TransientError,
)
from toril.model import Claim, Heartbeat, Limits
from toril.testing import Memory


class Stage:
    """An app whose `hold` jobs run until they are let go."""

    def __init__(self, app: App, test: Memory) -> None:
        self.queue = app.queues["q"]
        self.test = test
        self.app = app


@asynccontextmanager
async def stage(timed: Timed, **options: object) -> AsyncIterator[tuple[Stage, asyncio.Event]]:
    """A worker at work, with one slot."""
    app = App("memory://")
    started, go = asyncio.Event(), asyncio.Event()

    async def hold(ctx: JobContext[None]) -> None:
        started.set()
        await go.wait()

    async def fails(ctx: JobContext[None]) -> None:
        raise InvalidOption("no good")

    async def down(ctx: JobContext[None]) -> None:
        raise TransientError("down")

    async def limited(ctx: JobContext[None]) -> None:
        started.set()
        ctx.rate_limited(30)

    app.queue("q", {"hold": hold, "fails": fails, "down": down, "limited": limited}, **options)  # type: ignore[arg-type]
    async with timed(app) as test:
        worker = asyncio.ensure_future(app.run())
        while not await app.queues["q"].workers():  # noqa: ASYNC110 - its first sign of life
            await asyncio.sleep(0.001)
        try:
            yield Stage(app, test), started
        finally:
            go.set()
            app.stop()
            await worker


async def test_a_paused_queue(timed: Timed) -> None:
    async with stage(timed) as (at, _):
        await at.queue.pause()
        job = await at.queue.add("hold")

        answer = await at.queue.why(job.id)

    assert (answer.reason, str(answer)) == ("paused", "Queue q is paused.")


async def test_a_job_that_is_not_due(timed: Timed) -> None:
    async with stage(timed) as (at, _):
        job = await at.queue.add("hold", delay=90)

        answer = await at.queue.why(job.id)

        assert answer.reason == "not_due"
        assert answer.sentence.startswith("It is not due until 2027-01-15 08:01:30 UTC, in 90 s")
        assert answer.facts["due_at"] == at.test.now + timedelta(seconds=90)


async def test_a_job_between_two_attempts(timed: Timed) -> None:
    async with stage(timed) as (at, _):
        job = await at.queue.add("fails", attempts=3)
        while await job.state() != "delayed":  # noqa: ASYNC110 - the worker is at it
            await asyncio.sleep(0.001)

        answer = await at.queue.why(job.id)

    assert answer.reason == "retry_later"
    assert answer.sentence.startswith("Attempt 1 failed, and the next is not due until")


async def test_a_rate_that_is_used_up(timed: Timed) -> None:
    async with stage(timed, rate_limit=RateLimit(1, 60), concurrency=2) as (at, started):
        await at.queue.add("hold")
        await started.wait()
        job = await at.queue.add("hold")

        answer = await at.queue.why(job.id)

        assert answer.reason == "rate"
        assert answer.sentence == "Queue q is rate limited until 2027-01-15 08:01:00 UTC (60 s left)."
        assert answer.facts["till"] == at.test.now + timedelta(seconds=60)


async def test_a_queue_that_was_told_to_slow_down(timed: Timed) -> None:
    async with stage(timed) as (at, started):
        job = await at.queue.add("limited")
        await started.wait()
        while await job.state() != "waiting":  # noqa: ASYNC110 - it is being given back
            await asyncio.sleep(0.001)

        answer = await at.queue.why(job.id)

    assert answer.sentence == "Queue q is rate limited until 2027-01-15 08:00:30 UTC (30 s left)."


async def test_a_queue_at_its_concurrency(timed: Timed) -> None:
    async with stage(timed, concurrency=2) as (at, started):
        await at.queue.set_concurrency(1)
        first = await at.queue.add("hold")
        await started.wait()
        job = await at.queue.add("hold")

        answer = await at.queue.why(job.id)

    assert answer.reason == "concurrency"
    assert answer.sentence == f"Queue q is at its limit of 1 running: {first.id}."


async def test_a_circuit_that_is_open(timed: Timed) -> None:
    async with stage(timed, breaker=Breaker(failures=1, pause=60)) as (at, _):
        await at.queue.add("down", attempts=1)
        while not await at.app.breakers.list():  # noqa: ASYNC110 - the worker is at it
            await asyncio.sleep(0.001)
        put_off = await at.queue.add("down")
        while await put_off.state() != "delayed":  # noqa: ASYNC110 - the worker is at it
            await asyncio.sleep(0.001)
        tomorrow = await at.queue.add("down", delay=86_400)
        other = await at.queue.add("hold", delay=60)

        answer = await at.queue.why(put_off.id)
        elsewhere = await App("memory://").queue("q")._with(services=at.app.services).why(put_off.id)

        assert answer.reason == "circuit"
        assert answer.sentence == "The circuit of q/down is open until 2027-01-15 08:01:00 UTC (60 s left)."
        assert answer.facts["till"] == at.test.now + timedelta(seconds=60)
        assert answer.facts["due_at"] >= answer.facts["till"]
        assert elsewhere == answer, "also where the breaker is not declared"
        assert [(await at.queue.why(each.id)).reason for each in (tomorrow, other)] == ["not_due", "not_due"]


async def test_a_circuit_that_the_producer_has_named(timed: Timed) -> None:
    async with stage(timed) as (at, _):
        await at.app.breakers.trip("host-1", 60)
        put_off = await at.queue.add("down", breaker="host-1")
        while await put_off.state() != "delayed":  # noqa: ASYNC110 - the worker is at it
            await asyncio.sleep(0.001)

        answer = await at.queue.why(put_off.id)

    assert answer.sentence == "The circuit of host-1 is open until 2027-01-15 08:01:00 UTC (60 s left)."


async def test_a_circuit_that_is_being_tried(timed: Timed) -> None:
    async with stage(timed, concurrency=2, breaker=Breaker(by="queue", failures=1, pause=60, probes=1)) as (
        at,
        started,
    ):
        await at.app.breakers.trip("q", 1)
        at.test.clock.advance(1000)
        await at.queue.add("hold")
        await started.wait()
        put_off = await at.queue.add("hold")
        while await put_off.state() != "delayed":  # noqa: ASYNC110 - the worker is at it
            await asyncio.sleep(0.001)

        answer = await at.queue.why(put_off.id)

    assert answer.reason == "circuit"
    assert answer.sentence == "The circuit of q is half-open: 1 job probes it first."


async def test_no_worker(timed: Timed) -> None:
    app = App("memory://")
    queue = app.queue("q")
    async with timed(app):
        job = await queue.add("n")

        answer = await queue.why(job.id)

    assert (answer.reason, answer.sentence) == ("no_worker", "No Toril worker serves queue q.")


async def test_every_worker_was_told_to_claim_nothing_more(timed: Timed) -> None:
    app = App("memory://")
    queue = app.queue("q")
    async with timed(app):
        for name in ("a", "b"):
            await app.store.heartbeat(Heartbeat(worker=name, queues=["q"], slots=20, running=0), ttl=600_000)
        job = await queue.add("n")
        await app.quiet_worker("a")
        one_listens = await queue.why(job.id)

        await app.stop_worker("b")
        none_listens = await queue.why(job.id)

    assert one_listens.reason == "next"
    assert none_listens.reason == "quiet"
    assert none_listens.sentence == "All workers of queue q were told to claim no more jobs: a, b."
    assert none_listens.facts == {"queue": "q", "workers": ["a", "b"]}


async def test_a_worker_is_quiet_also_after_it_has_heard_of_it(timed: Timed) -> None:
    async with stage(timed) as (at, _):
        (worker,) = await at.app.workers()
        await at.app.quiet_worker(worker.id)
        for _ in range(3):  # heartbeats: with the second one the order itself is forgotten
            before = worker.seen_at
            while worker.seen_at == before:
                at.test.clock.advance(1_000)
                await asyncio.sleep(0.001)
                (worker,) = await at.app.workers()
        job = await at.queue.add("hold")

        answer = await at.queue.why(job.id)

    assert worker.orders == ("quiet",)
    assert answer.reason == "quiet"


async def test_a_job_beside_one_that_has_stalled_and_runs_alone(timed: Timed) -> None:
    """The worker starts nothing in its other queues either, and its free slots are no use."""
    app = App("memory://")
    started, go = asyncio.Event(), asyncio.Event()

    async def hold(ctx: JobContext[None]) -> None:
        started.set()
        await go.wait()

    async def short(ctx: JobContext[None]) -> None: ...

    stalled, other = app.queue("stalled", {"hold": hold}), app.queue("other", {"short": short}, concurrency=5)
    async with timed(app) as test:
        await stalled.add("hold")
        dead = Claim(want=1, token="t", lease=1_000, worker="dead")
        await app.store.exchange("stalled", [], dead)
        test.clock.advance(2_000)
        await app.store.recover("stalled")
        working = asyncio.ensure_future(app.run())
        await started.wait()
        while not any(each.isolates for each in await app.store.workers()):
            test.clock.advance(500)
            await asyncio.sleep(0.001)
        job = await other.add("short")

        answer = await other.why(job.id)

        go.set()
        while (await other.counts()).waiting:  # noqa: ASYNC110 - it runs once the other has ended
            await asyncio.sleep(0.001)
        app.stop()
        await working

    assert answer.reason == "isolated"
    assert answer.sentence.startswith("The workers of queue other start no jobs until a stalled job has run alone")


async def test_no_living_worker_has_a_handler(timed: Timed) -> None:
    async with stage(timed, unknown="release", concurrency=2) as (at, _):
        held = await at.queue.add("hold")
        await at.queue.pause()
        later = await at.queue.add("unheard_of", delay=600)
        await at.queue.resume()
        released = await at.queue.add("unheard_of")
        while await released.state() != "delayed":  # noqa: ASYNC110 - the worker is at it
            await asyncio.sleep(0.001)

        answers = [await at.queue.why(each.id) for each in (released, later, held)]

    assert [answer.reason for answer in answers] == ["no_handler", "not_due", "running"]
    said = answers[0]
    assert said.sentence.startswith(
        "No live Toril worker has a handler for 'unheard_of' in queue q. It will be offered again at "
    )
    assert said.facts["handlers"] == ["down", "fails", "hold", "limited"]


async def test_a_waiting_job_that_no_living_worker_has_a_handler_for(timed: Timed) -> None:
    async with stage(timed, concurrency=1) as (at, started):
        await at.queue.add("hold")
        await started.wait()
        waiting = await at.queue.add("unheard_of")

        answer = await at.queue.why(waiting.id)

    assert answer.reason == "no_handler"
    assert answer.sentence == "No live Toril worker has a handler for 'unheard_of' in queue q."


async def test_a_worker_that_says_nothing_of_its_handlers_may_have_any(timed: Timed) -> None:
    app = App("memory://")
    queue = app.queue("q")
    async with timed(app):
        job = await queue.add("unheard_of")
        told = Heartbeat(worker="w1", queues=["q"], slots=1, running=0, declares={"q": declared("n")})
        await app.store.heartbeat(told, ttl=60_000)
        first = await queue.why(job.id)
        await app.store.heartbeat(Heartbeat(worker="w2", queues=["q"], slots=1, running=0), ttl=60_000)
        second = await queue.why(job.id)

    assert [first.reason, second.reason] == ["no_handler", "next"]


async def test_a_rate_that_only_the_code_of_the_workers_has_is_known(timed: Timed) -> None:
    app = App("memory://")
    queue = app.queue("q")  # as in a program that does not have the code
    limited = declared("n", rate=RateLimit(1, per=60))
    async with timed(app):
        await app.store.heartbeat(
            Heartbeat(worker="w", queues=["q"], slots=1, running=0, declares={"q": limited}), ttl=60_000
        )
        await queue.add_many([("n", None)] * 2)
        limits = Limits(rate=limited.rate)
        claim = Claim(want=2, token="t", lease=30_000, worker="w", limits=limits)
        (running,) = (await app.store.exchange("q", [], claim)).jobs
        waiting = next(each.id for each in (await queue.jobs("waiting")).items if each.id != running.lease.id)

        answer = await queue.why(waiting)

    assert answer.reason == "rate"


async def test_behind_others_and_next_in_line(timed: Timed) -> None:
    async with stage(timed) as (at, started):
        await at.queue.add("hold")
        await started.wait()
        second = await at.queue.add("hold")
        third = await at.queue.add("hold")

        answers = [await at.queue.why(each.id) for each in (second, third)]

    assert [(each.reason, each.sentence) for each in answers] == [
        ("next", "It is next to start, as soon as a worker has a free slot."),
        ("behind", "It is behind 1 job."),
    ]


async def test_jobs_whose_worker_died_run_alone(timed: Timed) -> None:
    async with stage(timed) as (at, started):
        await at.queue.add("hold")
        await started.wait()
        first, second = [await at.queue.add("hold") for _ in range(2)]
        claim = Claim(want=2, token="gone", lease=30_000, worker="gone")
        died = (await at.app.store.exchange("q", [], claim)).jobs
        await at.app.store.recover("q", dead=[job.lease for job in died], cause="its process was killed by SIGKILL")

        answers = [await at.queue.why(each.id) for each in (first, second)]

    why = (
        "It must run alone because its worker died (its process was killed by SIGKILL): it is waiting for a process "
        "that runs nothing else"
    )
    assert [(each.reason, each.sentence) for each in answers] == [
        ("alone", f"{why}."), ("alone", f"{why}, behind 1 such job."),
    ]  # fmt: skip


async def test_a_job_that_runs_alone_says_so(timed: Timed) -> None:
    app = App("memory://")
    started, go = asyncio.Event(), asyncio.Event()

    async def hold(ctx: JobContext[None]) -> None:
        started.set()
        await go.wait()

    queue = app.queue("q", {"hold": hold})
    async with timed(app):
        job = await queue.add("hold")
        claim = Claim(want=1, token="gone", lease=30_000, worker="gone")
        (died,) = (await app.store.exchange("q", [], claim)).jobs
        await app.store.recover("q", dead=[died.lease], cause="a crash")
        worker = asyncio.ensure_future(app.run())
        await started.wait()

        answer = await queue.why(job.id)

        go.set()
        app.stop()
        await worker
    assert answer.reason == "running_alone"
    assert answer.sentence.endswith(", alone because its worker died (a crash).")


async def test_a_job_that_runs_and_one_that_was_asked_to_stop(timed: Timed) -> None:
    async with stage(timed) as (at, started):
        job = await at.queue.add("hold")
        await started.wait()
        running = await at.queue.why(job.id)
        await at.queue.pause()
        await at.app.store.cancel("q", [job.id], reason="enough")
        stopping = await at.queue.why(job.id)

    assert running.reason == "running"
    assert "since 2027-01-15 08:00:00 UTC" in running.sentence
    assert stopping.sentence.endswith("was asked to stop: enough")


async def test_jobs_that_have_ended(timed: Timed) -> None:
    async with stage(timed, keep_failed=True) as (at, _):
        failed = await at.queue.add("fails", attempts=1)
        while await failed.state() != "failed":  # noqa: ASYNC110 - the worker is at it
            await asyncio.sleep(0.001)
        dead = await at.queue.add("fails", attempts=1, keep_failed=False)
        while await dead.state() != "failed":  # noqa: ASYNC110 - the worker is at it
            await asyncio.sleep(0.001)
        answers = [await at.queue.why(each.id) for each in (failed, dead)]
        await at.app.dead_letters.discard(f"q/{dead.id}")
        answers.append(await at.queue.why(dead.id))

        assert [answer.sentence for answer in answers] == [
            "It failed at 2027-01-15 08:00:00 UTC: no good",
            "It failed at 2027-01-15 08:00:00 UTC after 1 of 1 attempts and is a dead letter: no good",
            "It failed at 2027-01-15 08:00:00 UTC and is no longer stored. Reason: no good",
        ]
        with pytest.raises(NotFound, match="no run record"):
            await at.queue.why("never")


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("runs", [True, False])
async def test_a_cancelled_job_with_the_reason(timed: Timed, runs: bool, kept: bool) -> None:
    async with stage(timed) as (at, started):
        if not runs:
            await at.queue.pause()
        job = await at.queue.add("hold", keep_failed=kept)
        if runs:
            await started.wait()
        await job.cancel("the customer left, password=hunter2")
        while (record := await at.queue.job(job.id)) is not None and await record.state() != "failed":
            at.test.clock.advance(100)
            await asyncio.sleep(0.001)

        answer = await at.queue.why(job.id)

    when, reason = "It was cancelled at 2027-01-15 08:00:", "the customer left, password=***"
    assert answer.sentence.startswith(when)
    assert answer.sentence.endswith(f" UTC: {reason}" if record else f" UTC and is no longer stored. Reason: {reason}")


async def test_a_group_that_is_at_its_limit(timed: Timed) -> None:
    async with stage(timed, concurrency=5, groups=GroupLimits(concurrency=1)) as (at, started):
        holder = await at.queue.add("hold", group="tenant:42")
        await started.wait()
        job = await at.queue.add("hold", group="tenant:42")

        answer = await at.queue.why(job.id)

    assert (answer.reason, answer.facts["holders"], answer.facts["ahead"]) == ("group_limit", [holder.id], 0)
    assert str(answer) == f"Group tenant:42 of queue q is at its limit of 1 running: {holder.id}."


async def test_a_group_that_is_paused(timed: Timed) -> None:
    async with stage(timed, concurrency=5) as (at, _):
        await at.queue.groups.pause("tenant:42")
        job = await at.queue.add("hold", group="tenant:42")

        answer = await at.queue.why(job.id)

    assert (answer.reason, str(answer)) == ("group_paused", "Group tenant:42 of queue q is paused.")


async def test_a_group_whose_rate_is_used_up(timed: Timed) -> None:
    async with stage(timed, concurrency=5, groups=GroupLimits(rate_limit=RateLimit(1, 60))) as (at, started):
        await at.queue.add("hold", group="tenant:42")
        await started.wait()
        job = await at.queue.add("hold", group="tenant:42")

        answer = await at.queue.why(job.id)

    assert answer.reason == "group_rate"
    assert str(answer).startswith("Group tenant:42 of queue q is rate limited until 20")


async def test_a_group_that_waits_for_its_turn(timed: Timed) -> None:
    async with stage(timed) as (at, started):
        await at.queue.add("hold", group="tenant:42")
        await started.wait()
        await at.queue.add("hold", group="tenant:42")
        job = await at.queue.add("hold", group="tenant:42")

        answer = await at.queue.why(job.id)

    assert (answer.reason, str(answer)) == (
        "group_turn", "It is waiting for group tenant:42's turn, behind 1 of its own jobs.",
    )  # fmt: skip


async def _rested(test: Memory, app: App, name: str) -> tuple[str, Explanation]:
    """What is said of a job that has run as far as it rests, and its id."""
    job = await app.queues["q"].add(name)
    await test.drain()
    return job.id, await app.queues["q"].why(job.id)


async def test_a_job_that_rests_for_one_thing(timed: Timed) -> None:
    app = App("memory://")

    async def sleeps(ctx: JobContext[None]) -> None:
        await ctx.sleep("cool-off", timedelta(days=3))

    async def asks(ctx: JobContext[None]) -> None:
        await ctx.wait_for("approval", timeout="3h")

    async def collects(ctx: JobContext[None]) -> None:
        await ctx.wait_for("paid", key="invoice:7")

    def down() -> None:
        raise TransientError("down")

    async def charges(ctx: JobContext[None]) -> None:
        await ctx.step("charge", down, retry=Retry(3, Fixed(90)))

    async def calls(ctx: JobContext[None]) -> None:
        await ctx.call("report", app.queues["other"].new("never", job_id="made"))

    app.queue("q", {"sleeps": sleeps, "asks": asks, "collects": collects, "charges": charges, "calls": calls})
    app.queue("other")
    async with timed(app) as test:
        found = {name: await _rested(test, app, name) for name in ("sleeps", "asks", "collects", "charges", "calls")}

    asked = found["asks"][1]
    assert {name: (why.reason, why.sentence) for name, (_, why) in found.items()} == {
        "sleeps": ("sleeping", "It sleeps (cool-off) until 2027-01-18 08:00:00 UTC, in 3 days."),
        "asks": (
            "waiting_for_signal",
            "It has waited for the signal approval since 2027-01-15 08:00:00 UTC, at most until "
            "2027-01-15 11:00:00 UTC, in 3 hours.",
        ),
        "collects": (
            "waiting_for_signal",
            "It has waited for the signal paid by the key invoice:7 since 2027-01-15 08:00:00 UTC, without a timeout.",
        ),
        "charges": ("retry_step", "It will try step charge again at 2027-01-15 08:01:30 UTC, in 90 s."),
        "calls": ("waiting_for_call", "It waits for what it called in step report. Not ended: other:made."),
    }
    assert asked.facts["since"] == test.now
    assert (asked.facts["steps"], asked.facts["signals"]) == (["approval"], [{"name": "approval", "key": None}])


async def test_a_job_that_rests_for_several_things_or_has_no_handler(timed: Timed) -> None:
    app = App("memory://")

    async def both(ctx: JobContext[None]) -> None:
        waits = [ctx.wait_for(name, timeout="1h") for name in ("a", "b", "c")]
        await ctx.gather(ctx.sleep("nap", 60), *waits)

    app.queue("q", {"both": both})
    async with timed(app) as test:
        id_, several = await _rested(test, app, "both")
        beat = Heartbeat(worker="w", queues=["q"], slots=1, running=0, declares={"q": declared("other")})
        await app.store.heartbeat(beat, ttl=600_000)
        without = await app.queues["q"].why(id_)

    assert several.reason == "resting"
    assert several.sentence.startswith("It sleeps (gather[0]/nap) until 2027-01-15 08:01:00 UTC, in 60 s, and has ")
    assert several.sentence.endswith(", and rests for 1 more.")
    assert len(several.facts["steps"]) == 4
    assert without.sentence.endswith("No live Toril worker has a handler for 'both' in queue q, so it will not go on.")
