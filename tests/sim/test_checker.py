"""The checker itself: each thing that it must see, shown to it."""

import asyncio

import pytest

from tests.sim.checker import total
from tests.sim.journal import Journal
from tests.sim.ledger import Entry, Stage
from tests.sim.loop import Deadlock, run, until
from tests.sim.script import Kind, Script
from toril.model.states import State


def entry(nonce: str, stage: Stage = Stage.GONE, *, finishes: int = 1, causes: int = 0) -> Entry:
    script = Script(nonce=nonce, kind=Kind.QUICK, ms=0)
    return Entry(
        id="1", data=script.data, script=script, attempts=1, priority=0, keeps=dict.fromkeys(State, False),
        stage=stage, finishes=finishes, causes=causes,
    )  # fmt: skip


def journal(*, attempted: str = "", acknowledged: str = "", started: str = "") -> Journal:
    log = Journal()
    log.attempted.update(dict.fromkeys(attempted))
    log.acknowledged.update(dict.fromkeys(acknowledged, "1"))
    log.started.update(started)
    return log


def test_a_job_that_was_acknowledged_and_never_ended_is_lost() -> None:
    log = journal(attempted="ab", acknowledged="ab")

    assert total(log, {"a": entry("a", Stage.READY)}).lost == ("a", "b")


def test_a_job_that_nobody_added_is_unexpected() -> None:
    assert total(journal(started="x"), {}).unexpected == ("x",)


def test_a_second_end_is_seen() -> None:
    assert total(journal(attempted="a"), {"a": entry("a", finishes=2)}).finished_twice == ("a",)


def test_a_run_without_a_cause_is_unexplained() -> None:
    log = journal(attempted="ab", started="aab" + "b")

    totals = total(log, {"a": entry("a"), "b": entry("b", causes=1)})

    assert totals.unexplained == ("a",)


def test_an_add_that_worked_without_an_answer_is_recovered_and_no_fault() -> None:
    totals = total(journal(attempted="a", started="a"), {"a": entry("a")})

    assert totals.recovered == ("a",)
    assert (totals.lost, totals.unexpected, totals.finished_twice, totals.unexplained) == ((), (), (), ())


def test_time_is_virtual() -> None:
    async def sleeps() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert run(sleeps()) == 3600


def test_waiting_for_nothing_is_a_deadlock() -> None:
    async def waits() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(waits())


def test_what_never_comes_true_is_waited_for_no_longer_than_said() -> None:
    assert run(until(lambda: False, 5)) is False
