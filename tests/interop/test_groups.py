"""Groups on a queue that workers of Node serve as well: they never break unseen."""

from collections import Counter

from tests.interop.node import Node
from tests.interop.side import Toril
from toril import GroupLimits

ONE = GroupLimits(concurrency=1)


async def test_no_two_of_a_group_run_at_once_whoever_runs_them(node: Node, toril: Toril) -> None:
    """By the stream of events, which both sides write in the step that starts and that ends a job."""
    events = await node.events("q")
    async with toril.working("q", concurrency=2, groups=ONE) as queue:
        await node.worker("q", {"echo": [{"echo": True}]}, concurrency=2)
        jobs = await queue.add_many([("echo", n, {"group": f"g{n % 4}"}) for n in range(16)])
        await events.until("completed", times=16)
        group_of = {job.id: f"g{n % 4}" for n, job in enumerate(jobs)}
        order = {job.id: n for n, job in enumerate(jobs)}
        seen = [entry for entry in await events.seen() if entry["event"] in {"active", "completed"}]

    running: Counter[str] = Counter()
    last: dict[str, int] = {}
    for entry in seen:
        group = group_of[entry["jobId"]]
        running[group] += 1 if entry["event"] == "active" else -1
        assert running[group] <= 1, f"two of {group} run at {entry}"
        if entry["event"] == "active":
            assert last.get(group, -1) < order[entry["jobId"]]
            last[group] = order[entry["jobId"]]
    assert len(seen) == 32


async def test_what_node_removes_frees_its_place(node: Node, toril: Toril) -> None:
    async with toril.queue("q", groups=ONE) as queue:
        let_in, parked, third = await queue.add_many([("echo", n, {"group": "g"}) for n in range(3)])
        for job in (let_in, parked):
            await node.queue("q").call("remove", job.id)
        async with toril.working("q", groups=ONE) as working:
            found = await working.job(third.id)
            assert found is not None
            assert await found.result(30) == 2


async def test_what_node_drains_lets_the_rest_in(node: Node, toril: Toril) -> None:
    async with toril.queue("q", groups=ONE) as queue:
        await queue.add_many([("echo", n, {"group": "g"}) for n in range(2)])
        await node.queue("q").call("drain")
        async with toril.working("q", groups=ONE) as working:
            last = await working.job("2")
            assert last is not None
            assert await last.result(30) == 1
