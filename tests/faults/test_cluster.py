"""A cluster of three nodes: all keys of an app lie on one of them, and it may become another one."""

import asyncio
from collections.abc import Iterator

import pytest
from redis.crc import key_slot

from tests.groups import Cluster, running_cluster
from tests.servers import RedisServer
from toril import App, EngineRefused, EngineUnavailable, EngineUnusable, JobContext
from toril.engines.redis import connect
from toril.model import NewJob

PREFIX = "{bull}"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = running_cluster()
    cluster.empty()
    yield cluster
    cluster.empty()  # who has keys of a slot does not give it away
    give_slot(cluster, cluster.owner(PREFIX))


def give_slot(cluster: Cluster, node: RedisServer) -> None:
    """Have all nodes agree on who has the slot."""
    name = node.text("CLUSTER MYID")
    for each in cluster.nodes:
        each.tell("CLUSTER", "SETSLOT", str(key_slot(PREFIX.encode())), "NODE", name)


@pytest.mark.covers("F74")
@pytest.mark.parametrize("form", ["redis+cluster://", "redis://"])
async def test_a_prefix_that_is_no_tag_is_refused_with_the_one_to_use(cluster: Cluster, form: str) -> None:
    url = cluster.url if form == "redis+cluster://" else cluster.nodes[0].url

    with pytest.raises(EngineUnusable) as refused:
        await App(url).open()

    assert "is a cluster, where all keys of an app must share a hash slot" in str(refused.value)
    assert "use App(prefix='{bull}')" in str(refused.value)


@pytest.mark.covers("F74")
async def test_whichever_node_is_named_the_one_with_the_keys_is_found(cluster: Cluster) -> None:
    for node in cluster.nodes:
        engine = connect(node.url, prefix=PREFIX)
        await engine.open()
        await engine.add("q", [NewJob(name="n")])
        await engine.close()

    held = [node.tell("EXISTS", "{bull}:q:wait") for node in cluster.nodes]
    assert held.count(b":1") == 1
    assert cluster.owner(PREFIX).tell("LLEN", "{bull}:q:wait") == b":3"


@pytest.mark.covers("F74", "F58")
async def test_a_slot_that_moves_to_another_node_is_followed(cluster: Cluster) -> None:
    """While it moves no step is made on the half that is here; then all go on where it is."""
    app, ran, done = App(cluster.url, prefix=PREFIX), set[int](), asyncio.Event()

    async def handler(ctx: JobContext[int]) -> None:
        ran.add(ctx.data)
        if len(ran) == 40:
            done.set()

    queue = app.queue("q", {"n": handler}, concurrency=5)
    async with app:
        working = asyncio.create_task(app.run())
        await queue.add_many([("n", number) for number in range(20)])
        moving = asyncio.get_running_loop().run_in_executor(None, move_slot, cluster)
        for number in range(20, 40):
            await queue.add("n", number)
        await moving
        async with asyncio.timeout(60):
            await done.wait()
        app.stop()
        assert await working == 0
        counts = await queue.counts()

    assert ran == set(range(40))
    assert counts.waiting + counts.active == 0


def move_slot(cluster: Cluster) -> None:
    """As an administrator does: key by key, from one node to another, while it is in use."""
    slot, source = str(key_slot(PREFIX.encode())), cluster.owner(PREFIX)
    target = next(node for node in cluster.nodes if node is not source)
    target.tell("CLUSTER", "SETSLOT", slot, "IMPORTING", source.text("CLUSTER MYID"))
    source.tell("CLUSTER", "SETSLOT", slot, "MIGRATING", target.text("CLUSTER MYID"))
    while keys := keys_in(source, slot):
        assert source.tell("MIGRATE", "127.0.0.1", str(target.port), "", "0", "5000", "KEYS", *keys) == b"+OK"
    give_slot(cluster, target)


def keys_in(node: RedisServer, slot: str) -> list[str]:
    lines = node.lines("CLUSTER", "GETKEYSINSLOT", slot, "100")
    return [line for line in lines if not line.startswith(("*", "$"))]


async def test_a_server_outside_a_cluster_is_named_as_such() -> None:
    server = RedisServer().start()
    try:
        with pytest.raises(EngineRefused, match="is not part of a cluster; use redis://"):
            await connect(server.url.replace("redis://", "redis+cluster://"), prefix=PREFIX).open()
    finally:
        server.stop()


async def test_a_cluster_of_which_nobody_answers_is_named() -> None:
    with pytest.raises(EngineUnavailable, match=r"cannot reach redis\+cluster://127.0.0.1:1,127.0.0.1:2"):
        await connect("redis+cluster://127.0.0.1:1,127.0.0.1:2?timeout=0.2", prefix=PREFIX).open()
