"""Flows: a job that waits for others, reads what they returned, and learns of those that failed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.fundamentals.apps import drained, unchanged
from tests.worker import handlers_for_processes as in_processes
from toril import (
    App,
    ChildrenFailed,
    Closed,
    DeadLetterFilter,
    FailedChild,
    Flow,
    InvalidOption,
    JobContext,
    NotFound,
    PermanentError,
    PreparedJob,
    SyncJobContext,
    UsageError,
    WrongState,
    chain,
    gather,
    handler,
)
from toril.flow import Policy
from toril.model import ChildState, SetMaxWaiting
from toril.model.states import State
from toril.testing import context, memory, sync_context


class Shop:
    """Three queues, and what their handlers have done."""

    def __init__(self, app: App) -> None:
        self.ran: list[str] = []
        self.values: dict[str, Any] = {}
        self.failed: dict[str, str] = {}
        self.has_children = False
        self.app = app
        self.work = app.queue("work", {"double": self.double, "fail": self.fail}, concurrency=4)
        self.sums = app.queue("sums", {"total": self.total, "plain_total": self.plain_total})

    async def double(self, ctx: JobContext[int]) -> int:
        self.ran.append(f"double {ctx.data}")
        assert not await ctx.has_children()
        return 2 * ctx.data

    async def fail(self, ctx: JobContext[None]) -> None:
        raise LookupError(f"no such user{ctx.data or ''}")

    async def total(self, ctx: JobContext[None]) -> int:
        self.ran.append("total")
        self.values, self.failed = await ctx.children_values(), await ctx.failed_children()
        self.has_children = await ctx.has_children()
        return sum(self.values.values())

    def plain_total(self, ctx: SyncJobContext[None]) -> int:
        assert ctx.has_children()
        assert ctx.failed_children() == {}
        return sum(ctx.children_values().values())


@pytest.fixture
async def shop() -> Any:
    app = App("memory://")
    made = Shop(app)
    async with app:
        yield made


@pytest.mark.covers("R220", "R221", "R222")
async def test_a_job_runs_when_its_children_have_ended_and_reads_what_they_returned(shop: Shop) -> None:
    parent = await shop.app.flow(
        shop.sums.new("total", result_ttl=60), children=[shop.work.new("double", n, job_id=f"n{n}") for n in range(3)]
    )

    assert parent.added
    assert await parent.state() is State.WAITING_CHILDREN
    await drained(shop.app)
    assert shop.ran[-1] == "total"
    assert shop.ran.count("total") == 1
    assert shop.values == {"n0": 0, "n1": 2, "n2": 4}
    assert shop.has_children
    assert await parent.result(timeout=60) == 6


async def test_plain_functions_read_them_too(shop: Shop) -> None:
    children = [shop.work.new("double", 4), shop.work.new("double", 5)]
    parent = await shop.app.flow(shop.sums.new("plain_total", result_ttl=60), children)

    await drained(shop.app)

    assert await parent.result(timeout=60) == 18


@pytest.mark.covers("X19")
async def test_flows_are_nested_and_added_by_the_many(shop: Shop) -> None:
    inner = Flow(shop.sums.new("total", result_ttl=60), [shop.work.new("double", 1), shop.work.new("double", 2)])
    tops = await shop.app.flows([Flow(shop.sums.new("total", result_ttl=60), [inner, shop.work.new("double", 5)])])

    await drained(shop.app)

    assert await tops[0].result(timeout=60) == 16


@pytest.mark.covers("R224")
async def test_children_run_beside_each_other() -> None:
    app = App("memory://")
    meeting = asyncio.Barrier(3)

    async def meet(ctx: JobContext[None]) -> None:
        await meeting.wait()

    async def after(ctx: JobContext[None]) -> None: ...

    queue = app.queue("q", {"meet": meet, "after": after}, concurrency=3)
    async with app:
        await app.flow(queue.new("after"), [queue.new("meet") for _ in range(3)])

        await drained(app)


async def test_by_default_a_childs_failure_is_its_parents(shop: Shop) -> None:
    parent = await shop.app.flow(
        shop.sums.new("total"), [shop.work.new("fail", job_id="bad", attempts=1), shop.work.new("double", 1)]
    )

    await drained(shop.app)

    assert "total" not in shop.ran
    letters = {letter.job_id: letter.failure.reason for letter in (await shop.app.store.dead_letters.page()).items}
    assert letters == {"bad": "no such user", parent.id: "child work:bad failed: no such user"}


@pytest.mark.parametrize("kept", ["parent", "both"])
async def test_a_failed_flow_that_is_retried_has_the_result_of_all_its_children(kept: str) -> None:
    down = True
    app = App("memory://")

    async def number(ctx: JobContext[int]) -> int:
        if down and ctx.data == 2:
            raise LookupError("no such number")
        return ctx.data

    async def total(ctx: JobContext[None]) -> int:
        assert await ctx.failed_children() == {}
        return sum((await ctx.children_values()).values())

    numbers = app.queue("numbers", [number], concurrency=1, keep_failed=kept == "both")
    totals = app.queue("totals", [total], keep_failed=True)
    async with app:
        top = await app.flow(totals.new(total, result_ttl=60), [numbers.new(number, n, attempts=1) for n in range(4)])
        await drained(app)
        assert await top.state() == "failed"
        down = False

        await top.retry()

        assert await top.state() == "waiting_children"
        await drained(app)
        assert await top.result(timeout=5) == 6
        assert await app.dead_letters.count() == 0


@pytest.mark.parametrize("which", ["all", "the parent's"])
async def test_a_failed_flow_that_is_replayed_has_the_result_of_all_its_children(which: str) -> None:
    down = True
    app = App("memory://")

    async def number(ctx: JobContext[int]) -> int:
        if down and ctx.data == 2:
            raise LookupError("no such number")
        return ctx.data

    async def total(ctx: JobContext[None]) -> int:
        assert await ctx.failed_children() == {}
        return sum((await ctx.children_values()).values())

    numbers = app.queue("numbers", [number], concurrency=1)
    totals = app.queue("totals", [total])
    async with app:
        top = await app.flow(totals.new(total, result_ttl=60), [numbers.new(number, n, attempts=1) for n in range(4)])
        await drained(app)
        assert {letter.queue for letter in await app.dead_letters.page()} == {"numbers", "totals"}
        down = False

        meant = DeadLetterFilter() if which == "all" else f"totals/{top.id}"
        done = await app.dead_letters.replay(meant)

        assert (done.count, done.refused) == (2, ())
        await drained(app)
        assert await top.result(timeout=5) == 6
        assert await app.dead_letters.count() == 0


@pytest.mark.parametrize("policy", ["ignore", "continue", "remove"])
async def test_a_parent_can_go_on_without_a_child_that_failed(shop: Shop, policy: Policy) -> None:
    bad = shop.work.new("fail", job_id="bad", attempts=1)
    await shop.app.flow(shop.sums.new("total"), [bad], on_failure=policy)

    await drained(shop.app)

    assert shop.ran == ["total"]
    assert shop.failed == ({} if policy == "remove" else {"bad": "no such user"})
    assert shop.has_children is (policy != "remove")


async def test_a_chain_hands_on_what_each_returned() -> None:
    app = App("memory://")

    async def add_one(ctx: JobContext[int]) -> int:
        return ctx.data + sum(map(int, (await ctx.children_values()).values()))

    queue = app.queue("q", {"add": add_one})
    async with app:
        last = await app.flow(chain(queue.new("add", 1), queue.new("add", 10), queue.new("add", 100, result_ttl=60)))

        await drained(app)

        assert await last.result(timeout=60) == 111


async def test_gather_is_many_and_then_one(shop: Shop) -> None:
    flow = gather([shop.work.new("double", n) for n in range(4)], then=shop.sums.new("total", result_ttl=60))
    last = await shop.app.flow(flow)
    nothing = await shop.app.flow(gather([], then=shop.work.new("double", 7, result_ttl=60)))

    await drained(shop.app)

    assert await last.result(timeout=60) == 12
    assert await nothing.result(timeout=60) == 14


async def test_a_handler_adds_children_and_rests_until_they_have_ended() -> None:
    app = App("memory://")
    began: list[int] = []
    parked: list[str] = []

    async def double(ctx: JobContext[int]) -> int:
        return 2 * ctx.data

    async def plan(ctx: JobContext[int]) -> int:
        began.append(ctx.attempt)
        await ctx.add_children([queue.new("double", 100)])
        await ctx.wait_for_children([queue.new("double", n) for n in range(ctx.data)])
        first = sum((await ctx.children_values()).values())
        await ctx.wait_for_children([queue.new("double", first)])
        return sum((await ctx.children_values()).values())

    queue = app.queue("q", {"double": double, "plan": plan})
    app.on("parked", lambda event: parked.append(event.job_name))
    async with app:
        job = await queue.add("plan", 3, result_ttl=60)

        await drained(app)

        assert await job.result(timeout=60) == 206 + 412
        assert began == [1, 1, 1], "no attempt was spent by resting"
        assert parked == ["plan", "plan"]
        assert (await queue.counts())["waiting"] == 0


async def test_a_handler_can_only_lose_its_children_with_its_lease() -> None:
    ctx = context(3, children={"a": 1})
    app = App("memory://")
    queue = app.queue("q")

    await ctx.add_children([queue.new("n")])

    assert await ctx.children_values() == {"a": 1}
    assert await ctx.has_children()
    assert [node.job.name for node in ctx.recorded.added] == ["n"]


@pytest.mark.covers("B72", "F118")
async def test_impossible_flows_are_refused_before_anything_is_stored(shop: Shop) -> None:
    app, new = shop.app, shop.work.new
    deep = Flow(new("double", 0))
    for _ in range(100):
        deep = Flow(new("double", 1), [deep])
    ring: list[Any] = []
    ring.append(Flow(new("double", 0), ring))

    async with unchanged(app):
        for wrong, words in (
            (deep, "at most 100 levels deep"), (ring[0], "at most 100 levels deep"),
            (Flow(new("double", 1, job_id="a"), [new("double", 2, job_id="a")]), "occurs twice in the flow"),
        ):  # fmt: skip
            with pytest.raises(InvalidOption, match=words):
                await app.flow(wrong)
        with pytest.raises(InvalidOption, match="children must be a list of jobs"):
            await app.flow(new("double", 1), children="many")  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match=r"queue\.new"):
            await app.flow(new("double", 1), children=[("double", 1)])  # type: ignore[list-item]
        with pytest.raises(InvalidOption, match="on_failure must be one of fail, continue"):
            await app.flow(new("double", 1), [new("double", 1)], on_failure="explode")  # type: ignore[arg-type]


@pytest.mark.covers("B52")
async def test_a_flow_can_be_put_under_a_job_that_still_waits(shop: Shop) -> None:
    parent = await shop.app.flow(shop.sums.new("total"), [shop.work.new("double", 1, delay=60)])
    await shop.app.flow(shop.work.new("double", 2, job_id="more"), parent=parent)
    assert (await shop.app.tree(parent)).family.open == 2
    plain = await shop.work.add("double", 3)

    async with unchanged(shop.app):
        with pytest.raises(WrongState, match=f"work:{plain.id} is waiting"):
            await shop.app.flow(shop.work.new("double", 2), parent=plain)
    await plain.remove()
    with pytest.raises(NotFound, match="there is no such job"):
        await shop.app.flow(shop.work.new("double", 2), parent=plain)


@pytest.mark.covers("B72")
async def test_a_large_flow_is_added_in_parts_and_runs_once(shop: Shop) -> None:
    children = [Flow(shop.work.new("double", 0), [shop.work.new("double", 1)]) for _ in range(3)]
    many = [shop.work.new("double", 1) for _ in range(2_500)]
    parent = await shop.app.flow(shop.sums.new("total", result_ttl=60, job_id="large"), [*children, *many])

    assert (await shop.app.tree(parent, width=1)).family.open == 2_503
    again = await shop.app.flow(shop.sums.new("total", job_id="large"), many)
    assert not again.added
    assert (await shop.work.counts())["waiting"] == 2_503


@pytest.mark.covers("F11", "R251")
async def test_a_large_flow_that_is_refused_half_way_is_taken_back() -> None:
    app = App("memory://")
    queue, bounded = app.queue("q"), app.queue("bounded", max_waiting=1)
    async with app:
        await app.store.configure("bounded", [SetMaxWaiting(1)])
        children = [*(queue.new("n") for _ in range(1_500)), *(bounded.new("n") for _ in range(2))]

        with pytest.raises(Exception, match="has 0 of at most 1 waiting") as refused:
            await app.flow(queue.new("n"), children)

        assert "are removed again" in refused.value.__notes__[0]
        for _ in range(2):
            await app.store.prune("q")
        assert sum((await queue.counts()).values()) == 0


async def test_the_tree_tells_how_a_flow_stands(shop: Shop) -> None:
    inner = Flow(shop.sums.new("total", job_id="inner"), [shop.work.new("double", 1, job_id="leaf")])
    done = shop.work.new("double", 5, job_id="done")
    await shop.app.flow(shop.sums.new("total", job_id="top"), [inner, done])
    await shop.work.pause()
    leaf = await shop.work.job("leaf")
    assert leaf is not None

    tree = await shop.app.tree(leaf)

    assert (tree.id, tree.state, [child.id for child in tree.children]) == (
        "top", State.WAITING_CHILDREN, ["inner", "done"],
    )  # fmt: skip
    assert tree.children[0].children[0].known is ChildState.OPEN
    assert (await shop.app.tree(leaf, whole=False)).family.total == 0


async def test_why_names_the_children_that_are_waited_for(shop: Shop) -> None:
    children = [shop.work.new("double", n, job_id=f"n{n}") for n in range(5)]
    parent = await shop.app.flow(shop.sums.new("total"), children)
    for n in range(3):
        await (await shop.work.job(f"n{n}")).remove()  # type: ignore[union-attr]

    answer = await shop.sums.why(parent.id)

    assert answer.sentence == "It is waiting for 2 of 2 children: work:n3, work:n4."
    assert answer.facts["waiting_for"] == ["work:n3", "work:n4"]


async def test_functions_in_processes_of_their_own_read_their_children() -> None:
    app = App("memory://")

    async def double(ctx: JobContext[int]) -> int:
        return 2 * ctx.data

    queue = app.queue("q", {"double": double, "total": handler(in_processes.total, executor="process")})
    async with app:
        job = await app.flow(queue.new("total", result_ttl=60), [queue.new("double", n) for n in (1, 2)])

        await drained(app)

        assert await job.result(timeout=60) == [True, [2, 4], {}]


@pytest.mark.parametrize("way", ["except", "group", "thread"])
async def test_a_rest_is_no_error_that_a_handler_catches(way: str) -> None:
    app = App("memory://")
    caught: list[BaseException] = []

    async def double(ctx: JobContext[int]) -> int:
        return 2 * ctx.data

    async def catches(ctx: JobContext[None]) -> bool:
        try:
            await ctx.wait_for_children([queue.new("double", 1)])
        except Exception as error:
            caught.append(error)
        return await ctx.has_children()

    async def groups(ctx: JobContext[None]) -> bool:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.wait_for_children([queue.new("double", 1)]))
        return await ctx.has_children()

    def blocks(ctx: SyncJobContext[None]) -> bool:
        try:
            ctx.wait_for_children([queue.new("double", 1)])
        except Exception as error:
            caught.append(error)
        return ctx.has_children()

    ways: dict[str, Any] = {"except": catches, "group": groups, "thread": blocks}
    queue = app.queue("q", {"double": double, "plan": ways[way]})
    rested: list[str] = []
    app.on("parked", lambda event: rested.append(event.job_name))
    async with app:
        job = await queue.add("plan", result_ttl=60)

        await drained(app)

        assert await job.result(timeout=60) is True
        assert rested == ["plan"]
        assert caught == []


@pytest.mark.covers("R223")
async def test_a_function_in_a_process_of_its_own_rests_until_its_children_have_ended() -> None:
    app, rested = App("memory://"), asyncio.Event()

    async def fail(_: JobContext[None]) -> None:
        raise PermanentError("no")

    async def slow(_: JobContext[None]) -> None:
        await rested.wait()

    plan = handler(in_processes.waits, executor="process")
    queue = app.queue("q", {"fail": fail, "slow": slow, "plan": plan})
    app.on("parked", lambda _: rested.set())
    async with app:
        children = [queue.new("fail"), queue.new("slow")]
        job = await app.flow(queue.new("plan", result_ttl=60), children, on_failure="continue")

        await drained(app)

        assert await job.result(timeout=60) is True
        assert rested.is_set()


async def test_flows_can_be_added_until_the_queues_are_closed_after_the_workers() -> None:
    app = App("memory://")
    told: list[str] = []

    async def nothing(ctx: JobContext[None]) -> None: ...

    queue = app.queue("q", {"n": nothing})

    @app.on_flush
    async def flush() -> None:
        job = await app.flow(queue.new("n"), [queue.new("n")])
        told.append(str(await job.state()))

    @app.on_stop
    async def stop() -> None:
        with pytest.raises(Closed):
            await app.flow(queue.new("n"), [queue.new("n")])
        told.append("closed")

    await drained(app)

    assert told == ["waiting_children", "closed"]


async def embed(ctx: JobContext[int]) -> int:
    if ctx.data < 0:
        raise LookupError(f"no page {ctx.data}")
    return ctx.data * 10


async def title(ctx: JobContext[str]) -> str:
    return ctx.data.title()


class Reading:
    """An app whose parent reads its children as a test wants it to."""

    def __init__(self, read: Callable[[JobContext[None]], Awaitable[Any]]) -> None:
        self.app = App("memory://")
        self.pages = self.app.queue("pages", {"embed": handler(embed, aliases=["old"]), "title": title}, concurrency=4)
        self.embedding, self.titling = self.pages.task(embed), self.pages.task(title)
        self.read = read
        self.found: list[Any] = []
        self.documents = self.app.queue("documents", [self.finish])

    async def finish(self, ctx: JobContext[None]) -> None:
        self.found.append(await self.read(ctx))

    def top(self) -> PreparedJob[None]:
        return self.documents.new(self.finish, attempts=1)


async def test_what_children_returned_comes_in_the_order_of_adding_by_their_handler() -> None:
    async def read(ctx: JobContext[None]) -> Any:
        return await ctx.children(embed), await ctx.children(title), await ctx.children(reading.embedding)

    reading = Reading(read)
    numbers = [7, 3, 9, 1, 5]
    children = [reading.embedding.new(n, delay=n) for n in numbers]
    children.insert(2, reading.pages.new("old", 100))
    async with memory(reading.app) as test:
        await reading.app.flow(reading.top(), [*children[:3], reading.titling.new("a"), *children[3:]])
        await test.after("1m")

    assert reading.found == [([70, 30, 1000, 90, 10, 50], ["A"], [70, 30, 1000, 90, 10, 50])]


async def test_children_that_failed_are_raised_or_stand_in_the_place_of_their_results() -> None:
    async def read(ctx: JobContext[None]) -> Any:
        with pytest.raises(ChildrenFailed, match="2 of 4 children failed: pages:bad: no page -1; ") as caught:
            await ctx.children(embed)
        return caught.value.failed, await ctx.children(embed, failed="include"), await ctx.children(title)

    reading = Reading(read)
    new = reading.embedding.new
    async with memory(reading.app) as test:
        children = [new(1), new(-1, job_id="bad", attempts=1), new(2), new(-2, job_id="worse", attempts=1)]
        await reading.app.flow(reading.top(), [*children, reading.titling.new("a")], on_failure="ignore")
        await test.drain()

    bad = FailedChild(queue="pages", id="bad", name="embed", reason="no page -1")
    worse = FailedChild(queue="pages", id="worse", name="embed", reason="no page -2")
    assert reading.found == [((bad, worse), [10, bad, 20, worse], ["A"])]


async def test_a_parent_that_leaves_failed_children_to_chance_becomes_a_dead_letter_at_once() -> None:
    async def read(ctx: JobContext[None]) -> Any:
        return await ctx.children(embed)

    reading = Reading(read)
    async with memory(reading.app) as test:
        top = reading.documents.new(reading.finish, attempts=5)
        await reading.app.flow(top, [reading.embedding.new(-1, attempts=1)], on_failure="ignore")
        await test.drain()
        letters = {letter.name: letter for letter in await reading.app.dead_letters.page()}

    assert (letters["finish"].failure.kind, letters["finish"].attempts_made) == ("ChildrenFailed", 1)


async def test_a_child_that_has_not_ended_has_no_result() -> None:
    refused: list[str] = []

    async def read(ctx: JobContext[None]) -> Any:
        await ctx.add_children([reading.embedding.new(1, delay="1h", job_id="late")])
        try:
            await ctx.children(embed)
        except WrongState as error:
            refused.append(str(error))
        await ctx.wait_for_children()
        return await ctx.children(embed)

    reading = Reading(read)
    async with memory(reading.app) as test:
        await reading.documents.add(reading.finish)
        await test.after("2h")

    assert refused == ["child pages:late has not ended; call `await ctx.wait_for_children()` first"]
    assert reading.found == [[10]]


async def test_children_are_asked_for_by_a_handler_of_the_app_or_by_a_task() -> None:
    async def stranger(ctx: JobContext[None]) -> None: ...

    async def read(ctx: JobContext[None]) -> Any:
        wrong: Any = "embed"
        with pytest.raises(UsageError, match=r"no queue of this app has the handler .*; pass a task of its queue"):
            await ctx.children(stranger)
        with pytest.raises(InvalidOption, match="expected the children's handler or task, not 'embed'"):
            await ctx.children(wrong)
        wrong = "skip"
        with pytest.raises(InvalidOption, match="failed must be 'raise' or 'include', not 'skip'"):
            await ctx.children(embed, failed=wrong)
        return await ctx.children(embed)

    reading = Reading(read)
    async with memory(reading.app) as test:
        await reading.documents.add(reading.finish)
        await test.drain()

    assert reading.found == [[]]


async def test_a_context_of_a_test_has_the_children_that_it_was_given() -> None:
    tasks = App("memory://").queue("pages", [embed])

    assert await context(None, children={"b": 2, "a": 1}).children(embed) == [2, 1]
    assert await context(None, children={"b": 2, "a": 1}).children(tasks.task(embed)) == [2, 1]
    assert sync_context(None, children={"b": 2, "a": 1}).children(embed) == [2, 1]


async def test_a_handler_in_a_process_of_its_own_asks_for_children_by_a_task() -> None:
    app = App("memory://")
    talks = app.queue("talks", {"talk": in_processes.talk})
    sums = app.queue("sums", {"in_order": handler(in_processes.in_order, executor="process")})
    async with app:
        job = await app.flow(sums.new("in_order", result_ttl=60), [talks.new("talk", text) for text in "cab"])
        await drained(app)
        found = await job.result(30)

    assert found == ["C", "A", "B", "a handler that runs in its own process must name child jobs by task: "
                     "queue.task(handler)"]  # fmt: skip
