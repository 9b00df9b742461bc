"""The real worker on the virtual clock in calm weather, where more can be promised."""

import asyncio
from dataclasses import replace

import pytest

from tests.sim.faults import Fate, Fault
from tests.sim.kept import assert_clean
from tests.sim.loop import Deadlock, run, until
from tests.sim.node import Node
from tests.sim.plan import QUEUE, Plan, Terms
from tests.sim.script import Kind, Script
from tests.sim.stage import Process, Stage, staged
from tests.sim.world import simulate
from toril.model import NewJob

LEASE = 3_000


async def add(stage: Stage, *scripts: Script, attempts: int = 1) -> None:
    producer = stage.process("producer")
    for script in scripts:
        stage.journal.attempted[script.nonce] = None
    jobs = [NewJob(name=script.name, data=script.data, attempts=attempts) for script in scripts]
    added = await producer.engine.add(QUEUE, jobs)
    stage.journal.acknowledged.update(zip((script.nonce for script in scripts), (a.id for a in added), strict=True))


async def worked_off(stage: Stage, worker: Process, terms: Terms) -> None:
    """Until all is done; then the worker stops, and everything is judged."""
    running = stage.work(worker, terms)
    assert await until(lambda: bool(stage.journal.violations) or not stage.unfinished(), 600)
    running.stop()
    assert await until(lambda: worker.node.over, 30)
    await stage.judge()


@pytest.mark.covers("I10")
def test_one_worker_with_one_slot_keeps_the_order() -> None:
    async def scene() -> list[str]:
        async with staged() as stage:
            names = [f"job-{n:03}" for n in range(100)]
            await add(stage, *(Script(nonce=name, kind=Kind.QUICK, ms=n % 7) for n, name in enumerate(names)))
            await worked_off(stage, stage.process("w"), Terms(lease=LEASE))
            assert stage.witness.conduct.starts == names
            return stage.witness.conduct.starts

    assert len(run(scene())) == 100


@pytest.mark.parametrize("slots", [1, 4])
def test_a_handler_that_blocks_the_loop_for_three_leases_runs_once(slots: int) -> None:
    """So do those that had ended beside it, and wait to be handed in."""

    async def scene() -> dict[str, int]:
        async with staged() as stage:
            blocks = Script(nonce="blocks", kind=Kind.BLOCKS, ms=3 * LEASE)
            await add(stage, blocks, *(Script(nonce=f"n{n}", kind=Kind.QUICK, ms=10) for n in range(3)))
            stage.witness.conduct.calm_at = 0.0
            await worked_off(stage, stage.process("w"), Terms(slots=slots, lease=LEASE))
            return dict(stage.journal.started)

    assert run(scene()) == {"blocks": 1, "n0": 1, "n1": 1, "n2": 1}


def test_a_stopped_worker_gives_back_what_it_cannot_finish_and_another_runs_it() -> None:
    async def scene() -> None:
        async with staged() as stage:
            await add(stage, Script(nonce="long", kind=Kind.MARATHON, ms=30_000, times=3))
            first = stage.process("first")
            running = stage.work(first, Terms(lease=LEASE, grace=1.0))
            assert await until(lambda: stage.journal.started["long"] == 1, 10)

            running.stop()
            assert await until(lambda: first.node.over, 5)
            assert [entry.starts for entry in stage.witness.ledger.held_by("first")] == []
            await worked_off(stage, stage.process("second"), Terms(lease=LEASE))

            (entry,) = stage.witness.ledger.entries
            assert (entry.made, entry.stalls, entry.starts) == (1, 0, 2)

    run(scene())


def test_a_lease_that_was_lost_and_holds_again_is_nobodys_to_give_back() -> None:
    """A settlement was refused because the lease was over; then the clock of the store went back."""

    async def scene() -> dict[str, int]:
        async with staged() as stage:
            stage.witness.conduct.calm_at = 0.0
            await add(stage, Script(nonce="n", kind=Kind.QUICK, ms=500))
            worker = stage.process("w")
            running = stage.work(worker, Terms(lease=LEASE))
            assert await until(lambda: stage.journal.started["n"] > 0, 10)
            stage.clock.step(2 * LEASE)
            assert await until(lambda: stage.journal.tally["settled: lease_lost"] > 0, 10)
            stage.clock.step(-2 * LEASE)
            assert list(stage.witness.ledger.held_by("w")), "it holds again"
            running.stop()
            assert await until(lambda: worker.node.over, 30)
            await worked_off(stage, stage.process("other"), Terms(lease=LEASE))
            return stage.journal.started

    assert run(scene()) == {"n": 2}


class NoAnswers:
    """For as long as it is said so, what the worker sends takes effect, and it hears nothing."""

    patience = 0.5
    silent = False

    def fate(self, node: str, what: str) -> Fate:
        return Fate(lost="reply") if self.silent and (node, what) == ("w", "exchange") else Fate()


def test_a_job_that_a_worker_never_heard_of_is_not_its_to_give_back() -> None:
    """The lease was over when the claim was sent again, so that its answer left the job out; then the clock went
    back."""

    async def scene() -> dict[str, int]:
        weather = NoAnswers()
        async with staged(weather) as stage:
            stage.witness.conduct.calm_at = 0.0
            worker = stage.process("w")
            running = stage.work(worker, Terms(lease=LEASE))
            await until(lambda: False, 1)  # for its first calls
            weather.silent = True
            await add(stage, Script(nonce="n", kind=Kind.QUICK, ms=1))
            assert await until(lambda: stage.witness.ledger.last_claim > 0, 10)
            stage.clock.step(2 * LEASE)
            weather.silent = False
            assert await until(lambda: stage.journal.tally["resent call answered from memory"] > 0, 10)
            stage.clock.step(-2 * LEASE)
            assert list(stage.witness.ledger.held_by("w")), "it holds again"
            running.stop()
            assert await until(lambda: worker.node.over, 30)
            await worked_off(stage, stage.process("other"), Terms(lease=LEASE))
            return stage.journal.started

    assert run(scene()) == {"n": 1}


class SlowClaims:
    """Calm, but an exchange takes its time."""

    patience = 5.0

    def __init__(self, answer: float) -> None:
        self._answer = answer

    def fate(self, node: str, what: str) -> Fate:
        return Fate(0.5, self._answer) if what == "exchange" and node == "first" else Fate()


@pytest.mark.covers("F33")
@pytest.mark.parametrize("answer", [0.5, 1.8])
def test_a_claim_that_is_answered_after_the_stop_is_given_back(answer: float) -> None:
    async def scene() -> None:
        async with staged(SlowClaims(answer)) as stage:
            await add(stage, Script(nonce="a", kind=Kind.QUICK, ms=10))
            first = stage.process("first")
            running = stage.work(first, Terms(lease=LEASE, grace=10.0))
            await asyncio.sleep(0.7)  # the job is on its way here

            running.stop()
            assert await until(lambda: first.node.over, 9)
            assert stage.journal.started == {}
            await worked_off(stage, stage.process("second"), Terms(lease=LEASE))

            (entry,) = stage.witness.ledger.entries
            assert (entry.made, entry.stalls, entry.starts) == (1, 0, 2)

    run(scene())


class NoLastWord:
    """Calm, but reports are lost from the ninth on: all that the handler waits for, and not what is held back."""

    patience = 0.1

    def __init__(self) -> None:
        self.reports = 0

    def fate(self, node: str, what: str) -> Fate:
        report = node == "w" and what == "report"
        self.reports += report
        return Fate(lost="request") if report and self.reports > 8 else Fate()


def test_progress_that_cannot_be_written_does_not_undo_a_job_that_is_done() -> None:
    async def scene() -> int:
        weather = NoLastWord()
        async with staged(weather) as stage:
            await add(
                stage, Script(nonce="long", kind=Kind.LONG, ms=LEASE), Script(nonce="next", kind=Kind.QUICK, ms=1)
            )
            await worked_off(stage, stage.process("w"), Terms(lease=LEASE))
            assert stage.journal.started == {"long": 1, "next": 1}
            assert stage.journal.tally["settled: completed"] == 2
        return weather.reports

    assert run(scene()) > 9


def test_without_faults_nothing_runs_twice_but_what_says_so() -> None:
    for seed in range(6):
        plan = Plan.draw(seed)
        weights = {Kind.QUICK: 5.0, Kind.LONG: 2.0, Kind.BLOCKS: 1.0, Kind.DEAF: 0.5}
        calm = replace(plan, mix=dict.fromkeys(Fault, 0.0), weights=weights, operator=False, farewell="none")
        result = simulate(seed, plan=calm)

        assert_clean(result)
        assert result.tally["settled: lease_lost"] == 0


def test_what_is_held_up_is_made_up_for_in_order() -> None:
    async def scene() -> list[tuple[str, float]]:
        node, seen = Node("n"), []
        loop = asyncio.get_running_loop()

        async def tick() -> None:
            for n in range(3):
                await asyncio.sleep(1)
                seen.append((f"tick {n}", loop.time()))

        task = loop.create_task(tick(), context=node.main.context())
        await asyncio.sleep(1.5)
        node.pause()
        await asyncio.sleep(10)
        node.resume()
        await task
        return seen

    assert run(scene()) == [("tick 0", 1.0), ("tick 1", 11.5), ("tick 2", 12.5)]


def test_a_loop_that_spins_is_seen() -> None:
    async def spins() -> None:
        while True:  # noqa: ASYNC110 - that is the point
            await asyncio.sleep(0)

    with pytest.raises(Deadlock, match="spins"):
        run(spins())
