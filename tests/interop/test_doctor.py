"""The doctor among Node's own jobs: what BullMQ leaves in a store that is well is no fault."""

import pytest

from tests.interop.node import Node
from tests.interop.side import Steps, Toril
from toril.model import RepairOutcome
from toril.operate.doctor import Doctor
from toril.runtime.clock import SYSTEM
from toril.store.engine import connect


async def test_a_store_that_node_fills_and_works_has_no_fault(node: Node, toril: Toril) -> None:
    queue, worker = (
        node.queue("q"),
        await node.worker("q", {"n": [{"echo": True}], "bad": [{"fail": "no"}]}, concurrency=4),
    )
    bulk = [{"name": "n", "data": {}, "opts": {"priority": each % 3}} for each in range(40)]
    await queue.call("addBulk", bulk)
    await queue.call("addBulk", [{"name": "bad", "data": {}, "opts": {"attempts": 2}} for _ in range(5)])
    await queue.call("add", "n", {}, {"delay": 60_000, "jobId": "later"})
    await queue.call("add", "n", {}, {"deduplication": {"id": "once"}, "delay": 60_000})
    await queue.call("upsertJobScheduler", "minutely", {"every": 60_000}, {"name": "n", "data": {}})
    await node.flow(
        name="parent", queueName="q", children=[{"name": "child", "queueName": "idle", "opts": {"delay": 60_000}}]
    )
    await worker.until("completed", times=40)
    await worker.until("failed", times=5)
    await worker.close()
    await node.queue("idle").call("pause")
    await node.queue("idle").call("addBulk", bulk)
    steps = Steps()
    async with toril.working("q", {"hold": steps.hold}) as ours:
        await ours.add("hold", {})
        await steps.started()
        store = connect(toril.url)
        await store.open()
        found = [each for each in await Doctor(store, SYSTEM, between=0.2).findings() if each.fault is not None]
        steps.let_go()
        await store.close()

    assert found == []


@pytest.mark.covers("R191")
async def test_a_parent_that_node_left_without_children_runs_after_the_repair(node: Node, toril: Toril) -> None:
    """A parent in `waiting-children` whose last child was deleted by hand."""
    await node.queue("q").call("add", "n", {"who": "parent"}, {"jobId": "parent"})
    await node.redis("LREM", "bull:q:wait", 0, "parent")
    await node.redis("ZADD", "bull:q:waiting-children", 1, "parent")
    await node.redis("SADD", "bull:q:parent:dependencies", "bull:q:child")
    store = connect(toril.url)
    await store.open()
    doctor = Doctor(store, SYSTEM, between=0.05)

    (finding,) = [each for each in await doctor.findings() if each.fault is not None]
    (repaired,) = await doctor.repair([finding])
    await store.close()
    worker = await node.worker("q", {"n": [{"echo": True}]})
    (done,) = await worker.until("completed", times=1)
    await worker.close()

    assert (finding.code, repaired.outcome) == ("stuck_parent", RepairOutcome.REPAIRED)
    assert done["result"] == {"who": "parent"}
