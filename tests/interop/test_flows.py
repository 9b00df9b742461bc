"""Flows that both sides share: added by one, their children run by the other, the parent by either."""

from typing import Any, Literal

import pytest

from tests.interop.node import Node, NodeEvents, Script
from tests.interop.side import KEPT, Toril, running
from toril import App, Flow, JobContext
from toril.flow import Policy
from toril.model.states import State

Side = Literal["node", "toril"]
SIDES: tuple[Side, ...] = ("node", "toril")
FLAGS = {
    "fail": "failParentOnFailure", "continue": "continueParentOnFailure", "ignore": "ignoreDependencyOnFailure",
    "remove": "removeDependencyOnFailure", "wait": None,
}  # fmt: skip
SCRIPT: Script = {"fail": [{"fail": "no such bull"}], "total": [{"children": True}], "*": [{"echo": True}]}


class Both:
    """Two queues that either side can work: children in `c`, the parent in `p`."""

    def __init__(self, node: Node, toril: Toril) -> None:
        self.node = node
        self.app = App(toril.url)
        self.ran: list[str] = []
        self._heard: dict[str, NodeEvents] = {}
        self.children = self.app.queue("c", **KEPT)
        self.parents = self.app.queue("p", **KEPT)

    async def echo(self, ctx: JobContext[Any]) -> Any:
        return ctx.data

    async def fail(self, ctx: JobContext[Any]) -> Any:
        raise LookupError(f"no such bull{ctx.data or ''}")

    async def total(self, ctx: JobContext[Any]) -> Any:
        self.ran.append(ctx.job_id)
        return {f"bull:c:{name}": value for name, value in (await ctx.children_values()).items()}

    def work(self, queue: str, by: Side) -> Any:
        """Have one side work one of the queues."""
        if by == "node":
            return _Awaited(self.node.worker(queue, SCRIPT, concurrency=4))
        other = App(self.app.url)
        other.queue(queue, {"echo": self.echo, "fail": self.fail, "total": self.total}, concurrency=4, **KEPT)
        return running(other)

    async def add(self, by: Side, *names: str, policy: Policy = "fail") -> str:
        """A flow of these children; the parent's id."""
        if by == "toril":
            children = [
                Flow(self.children.new(name, {"n": n}, job_id=f"{name}{n}", attempts=1), on_failure=policy)
                for n, name in enumerate(names)
            ]
            return (await self.app.flow(self.parents.new("total", job_id="top"), children)).id
        flag = FLAGS[policy]
        given = [
            {"name": name, "queueName": "c", "data": {"n": n},
             "opts": {"jobId": f"{name}{n}", **({} if flag is None else {flag: True})}}
            for n, name in enumerate(names)
        ]  # fmt: skip
        await self.node.flow(name="total", queueName="p", data={}, opts={"jobId": "top"}, children=given)
        return "top"

    async def state(self, job: str, queue: str = "p") -> str:
        return await self.node.queue(queue).state(job)

    async def happens(self, event: str, job: str = "top", queue: str = "p") -> None:
        """Wait until the queue's stream, from its beginning, tells this of the job."""
        if queue not in self._heard:
            self._heard[queue] = await self.node.events(queue)
        await self._heard[queue].until(event, jobId=job)


class _Awaited:
    def __init__(self, making: Any) -> None:
        self._making = making

    async def __aenter__(self) -> Any:
        self._made = await self._making

    async def __aexit__(self, *_: object) -> None:
        await self._made.close()


@pytest.fixture
async def both(node: Node, toril: Toril) -> Any:
    made = Both(node, toril)
    async with made.app:
        yield made


@pytest.mark.parametrize("parent", SIDES)
@pytest.mark.parametrize("child", SIDES)
@pytest.mark.parametrize("adds", SIDES)
async def test_a_flow_runs_whoever_adds_it_and_runs_its_parts(
    both: Both, adds: Side, child: Side, parent: Side
) -> None:
    async with both.work("p", parent), both.work("c", child):
        await both.add(adds, "echo", "echo", "echo")

        await both.happens("completed")

    job = await both.parents.job("top")
    assert job is not None
    assert job.record is not None
    assert job.record.result is not None
    values = (await both.node.queue("p").job("top"))["returnvalue"]
    assert values == {f"bull:c:echo{n}": {"n": n} for n in range(3)}
    assert job.attempts_made == 1


@pytest.mark.parametrize("policy", list(FLAGS))
@pytest.mark.parametrize(("adds", "child", "parent"), [("node", "toril", "node"), ("toril", "node", "toril")])
async def test_every_policy_means_the_same_to_both(
    both: Both, adds: Side, child: Side, parent: Side, policy: Policy
) -> None:
    await both.add(adds, "fail", policy=policy)
    async with both.work("c", child):
        await both.happens("failed", "fail0", "c")

    if policy == "wait":
        assert await both.state("top") == "waiting-children"
        return
    await both.happens("waiting")
    async with both.work("p", parent):
        await both.happens("failed" if policy == "fail" else "completed")
    job = await both.parents.job("top")
    assert job is not None
    assert (job.error or "").startswith("child ") is (policy == "fail")


async def test_a_parent_that_nodes_child_dooms_is_failed_by_toril(both: Both) -> None:
    await both.add("toril", "fail")
    async with both.work("c", "node"):
        await both.happens("waiting")
    async with both.work("p", "toril"):
        await both.happens("failed")

    assert both.ran == []
    job = await both.parents.job("top")
    assert job is not None
    assert str(job.error).startswith("child bull:c:fail0 failed")


@pytest.mark.parametrize("remover", SIDES)
async def test_a_child_removed_by_either_is_waited_for_no_longer(both: Both, remover: Side) -> None:
    await both.add("node" if remover == "toril" else "toril", "echo")

    if remover == "node":
        await both.node.queue("c").of_job("echo0", "remove")
    else:
        await (await both.children.job("echo0")).remove()  # type: ignore[union-attr]

    assert await both.state("top") == "waiting"


async def test_node_reads_our_flow_as_its_own(both: Both) -> None:
    await both.add("toril", "echo", "echo")
    queue = both.node.queue("p")

    counts = await queue.of_job("top", "getDependenciesCount")
    assert counts == {"processed": 0, "unprocessed": 2, "ignored": 0, "failed": 0}
    async with both.work("c", "toril"):
        await both.happens("waiting")
    assert await queue.of_job("top", "getChildrenValues") == {f"bull:c:echo{n}": {"n": n} for n in range(2)}
    assert (await both.node.queue("c").job("echo0"))["opts"]["parent"] == {"id": "top", "queue": "bull:p"}


async def test_bull_board_draws_our_flow(both: Both) -> None:
    inner = Flow(both.children.new("echo", job_id="inner"), [both.children.new("echo", job_id="leaf")])
    await both.app.flow(both.parents.new("total", job_id="top"), [inner, both.children.new("echo", job_id="other")])

    route = "/api/queues/:queueName/:jobId/flow"
    answer = await both.node.board("c", route, others=["p"], params={"queueName": "c", "jobId": "leaf"})

    root = answer["flowRoot"]
    assert (answer["isFlowNode"], root["id"], root["queueName"], root["state"]) == (
        True,
        "top",
        "p",
        "waiting-children",
    )
    drawn = {child["id"]: [each["id"] for each in child.get("children", [])] for child in root["children"]}
    assert drawn == {"inner": ["leaf"], "other": []}


@pytest.mark.covers("F118")
async def test_the_faults_of_bullmqs_flows_do_not_occur_among_torils_jobs(both: Both) -> None:
    """A live child of another parent, and a plain child that fails, leave nobody stuck (`bullmq-wire.md` 18: 3, 6)."""
    await both.add("toril", "fail")
    with pytest.raises(Exception, match="is already a child of p:top"):
        await both.app.flow(both.parents.new("total", job_id="second"), [both.children.new("fail", job_id="fail0")])
    assert await both.parents.job("second") is None

    async with both.work("c", "toril"), both.work("p", "toril"):
        await both.happens("failed")


async def test_parents_that_node_left_stuck_are_found(both: Both) -> None:
    await both.add("node", "echo")
    again = {"name": "echo", "queueName": "c", "data": {}, "opts": {"jobId": "echo0"}}
    await both.node.flow(name="total", queueName="p", data={}, opts={"jobId": "stuck"}, children=[again])
    assert (await both.parents.counts())["waiting_children"] == 2

    await both.app.store.prune("p")

    stuck = await both.parents.job("stuck")
    assert stuck is not None
    assert await stuck.state() is State.WAITING
    assert await both.state("top") == "waiting-children"


@pytest.mark.parametrize("adds", SIDES)
async def test_results_come_in_the_order_of_adding_or_by_id_where_node_added_the_flow(both: Both, adds: Side) -> None:
    read: list[Any] = []
    other = App(both.app.url)

    async def echo(ctx: JobContext[Any]) -> Any:
        return ctx.data

    async def total(ctx: JobContext[Any]) -> None:
        read.append([each["n"] for each in await ctx.children(echo)])

    other.queue("c", [echo], concurrency=4, **KEPT)
    other.queue("p", [total], **KEPT)
    async with running(other):
        await both.add(adds, *["echo"] * 12)
        await both.happens("completed")

    assert read == [list(range(12)) if adds == "toril" else sorted(range(12), key=lambda n: f"echo{n}")]
