"""How a worker can die or stall, one way a test, on the virtual clock."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.sim.faults import Fate, Point
from tests.sim.loop import run, until
from tests.sim.plan import QUEUE, Terms
from tests.sim.script import Kind, Script, outcome_of, script_of
from tests.sim.stage import LEASE, OneFault, Process, Stage, picture, staged
from toril.model import (
    Call,
    Claim,
    Claimed,
    Completed,
    EventKind,
    Exchange,
    NewJob,
    RunRow,
    RunStatus,
    Settlement,
    Verdict,
)

SHORT = 2_000


async def add(stage: Stage, *scripts: Script, attempts: int = 2) -> None:
    """By a process that nothing befalls."""
    jobs = [NewJob(name=script.name, data=script.data, attempts=attempts) for script in scripts]
    for script in scripts:
        stage.journal.attempted[script.nonce] = None
    added = await stage.process("producer").engine.add(QUEUE, jobs)
    stage.journal.acknowledged.update(zip((script.nonce for script in scripts), (a.id for a in added), strict=True))


def quick(*nonces: str) -> list[Script]:
    return [Script(nonce=nonce, kind=Kind.QUICK, ms=1) for nonce in nonces]


async def exchange(
    process: Process, done: Sequence[Claimed] = (), *, want: int = 1, lease: int = LEASE, call: Call | None = None
) -> Exchange:
    """One exchange of a process that runs whatever it gets in no time."""
    batch = [Settlement(job.lease, outcome_of(script_of(job.data), job)) for job in done]
    claim = Claim(want=want, token=process.clock.unique(), lease=lease, worker=process.node.name)
    answer = await process.engine.exchange(QUEUE, batch, claim, call=call)
    for job in answer.jobs:
        nonce = script_of(job.data).nonce
        process.journal.began(nonce, job.fence)
        process.journal.over(nonce, job.fence)
    return answer


async def work(process: Process, *, exchanges: int, want: int = 1) -> None:
    """Claim, and hand in with the next claim, so often."""
    jobs: Sequence[Claimed] = ()
    for _ in range(exchanges):
        jobs = (await exchange(process, jobs, want=want)).jobs


async def runs(stage: Stage) -> list[RunRow]:
    store = stage.store.view()
    return [run for ending in RunStatus for run in (await store.runs(QUEUE, ending)).items]


@pytest.mark.covers("F01")
def test_a_worker_that_dies_before_its_claim_is_sent_changes_nothing() -> None:
    async def scene() -> None:
        async with staged(OneFault(0, Fate(crash=Point.BEFORE_SEND))) as stage:
            await add(stage, *quick("a"))
            before = await picture(stage.store.view())
            subject = stage.process()

            died = not await stage.run(subject, work(subject, exchanges=1))

            assert died
            assert await picture(stage.store.view()) == before

    run(scene())


@pytest.mark.parametrize("point", [Point.AFTER_EFFECT, Point.AFTER_REPLY])
@pytest.mark.covers("F02", "F03")
def test_what_a_dead_worker_had_claimed_runs_elsewhere_and_has_lost_no_attempt(point: Point) -> None:
    async def scene() -> None:
        async with staged(OneFault(0, Fate(crash=point))) as stage:
            await add(stage, *quick("a", "b", "c"))
            subject = stage.process()
            await stage.run(subject, work(subject, exchanges=1, want=3))

            await stage.take_over()

            await stage.judge()
            assert [(run.attempts_made, run.stalls) for run in await runs(stage)] == [(1, 1)] * 3
            assert stage.journal.started == {"a": 1, "b": 1, "c": 1}

    run(scene())


@pytest.mark.covers("F04", "G4")
def test_a_job_whose_worker_was_killed_starts_again_soon_after_its_lease_ran_out() -> None:
    async def scene() -> float:
        async with staged() as stage:
            await add(stage, Script(nonce="a", kind=Kind.LONG, ms=60_000))
            subject = stage.process()
            stage.work(subject, Terms(lease=SHORT))
            await asyncio.sleep(20)
            killed = asyncio.get_running_loop().time()
            subject.node.kill()
            heirs = stage.group.create_task(stage.take_over(lease=SHORT))
            assert await until(lambda: stage.journal.started["a"] == 2, 60)
            restarted = asyncio.get_running_loop().time()
            await heirs
            await stage.judge()
            return restarted - killed

    assert run(scene()) <= (SHORT + 1000) / 1000


@pytest.mark.covers("F05")
def test_the_outside_can_tell_a_ghost_by_its_fence() -> None:
    async def scene() -> None:
        async with staged() as stage:
            await add(stage, *quick("a"))
            ghost, heir, reaper = stage.process("ghost"), stage.process("heir"), stage.process("reaper")
            row: list[int] = []

            def write(fence: int) -> bool:
                """What a handler does outside: a row that takes no fence below the newest that it has seen."""
                if row and fence <= row[-1]:
                    return False
                row.append(fence)
                return True

            (stale,) = (await exchange(ghost, lease=SHORT)).jobs
            await asyncio.sleep(SHORT / 1000)
            await reaper.engine.recover(QUEUE)
            claim = Claim(want=1, token="heir", lease=LEASE, worker="heir", alone=True)
            (job,) = (await heir.engine.exchange(QUEUE, [], claim)).jobs

            assert write(job.fence)
            assert not write(stale.fence)

    run(scene())


@pytest.mark.covers("F06")
def test_a_worker_that_dies_before_it_says_that_a_job_is_done_has_it_run_again() -> None:
    async def scene() -> None:
        async with staged(OneFault(1, Fate(crash=Point.BEFORE_SEND))) as stage:
            await add(stage, *quick("a"))
            subject = stage.process()
            await stage.run(subject, work(subject, exchanges=2))

            await stage.take_over()

            await stage.judge()
            assert stage.journal.started == {"a": 2}
            assert len(await runs(stage)) == 1

    run(scene())


@pytest.mark.covers("F07")
def test_a_finish_whose_answer_was_lost_is_recognised_when_it_is_sent_again() -> None:
    async def scene() -> None:
        async with staged() as stage:
            await add(stage, *quick("a"))
            subject = stage.process()
            (job,) = (await exchange(subject)).jobs
            call = Call("subject", 1)
            batch = [Settlement(job.lease, Completed(str(job.fence)))]
            claim = Claim(want=0, token="again", lease=LEASE, worker="subject")

            verdicts = [(await subject.engine.exchange(QUEUE, batch, claim, call=call)).verdicts for _ in range(3)]

            assert verdicts == [(Verdict.OK,)] * 3
            events = (await stage.store.view().events(QUEUE)).items
            assert [event.kind for event in events].count(EventKind.COMPLETED) == 1
            await stage.judge()

    run(scene())


@pytest.mark.covers("F08")
def test_a_job_claimed_with_a_finish_whose_answer_was_lost_is_never_failed_for_it() -> None:
    async def scene() -> None:
        async with staged(OneFault(1, Fate(crash=Point.AFTER_EFFECT))) as stage:
            await add(stage, *quick("a", "next"))
            subject = stage.process()
            await stage.run(subject, work(subject, exchanges=2))

            await stage.take_over()

            await stage.judge()
            assert sorted((run.cause.value, run.stalls) for run in await runs(stage)) == [
                ("completed", 0),
                ("completed", 1),
            ]

    run(scene())


@pytest.mark.parametrize("delay", [0, 500])
@pytest.mark.parametrize("point", Point)
@pytest.mark.covers("F09")
def test_a_retry_is_counted_once_wherever_its_worker_dies(point: Point, delay: int) -> None:
    async def scene() -> None:
        async with staged(OneFault(1, Fate(crash=point))) as stage:
            await add(stage, Script(nonce="a", kind=Kind.FLAKY, ms=1, times=1, delay=delay))
            subject = stage.process()
            await stage.run(subject, work(subject, exchanges=2))

            await stage.take_over()

            await stage.judge()
            (ended,) = await runs(stage)
            assert ended.attempts_made == 2

    run(scene())
