"""A store that loses calls also loses those of steps and of flows."""

from typing import Any

from toril.engines.sqlite import SqliteEngine
from toril.engines.sqlite.url import parse
from toril.errors import EngineUnavailable
from toril.model import JobRef, NewJob, NewSignal
from toril.testing import ManualClock
from toril.testing.faults import FlakyStore


async def test_calls_for_steps_and_flows_are_lost_too() -> None:
    store = SqliteEngine(parse("memory://"), clock=ManualClock())
    await store.open()
    await store.add("q", [NewJob(name="n", id="j")])
    flaky: Any = FlakyStore(store, rate=0.6, seed=1)
    answered, lost = set[str](), 0
    for number in map(str, range(40)):
        try:
            await flaky.steps.deliver("q", [NewSignal(name="s", payload=number, job_id="j")])
            answered.add(number)
        except EngineUnavailable:
            lost += 1
    for _ in range(20):
        try:
            await flaky.flows.child_counts(JobRef("q", "j"))
        except EngineUnavailable:
            lost += 1
    there = {signal.payload for signal in await store.steps.inbox("q", "j")}
    await store.close()

    assert answered < there, "some took effect, and only their answer was lost"
    assert len(there) < 40, "others did not"
    assert flaky.lost == lost
    assert lost > 60 - len(answered) - 20, "some looks at children were lost too"
