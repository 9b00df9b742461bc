"""A flow of many jobs while those who run it are killed: no parent runs before its children have ended, or twice."""

import os
import random
from pathlib import Path

import pytest

from tests.faults.flowing import QUEUES
from tests.faults.ledger import noted
from tests.faults.nursery import Child, Children, until
from tests.servers import running
from toril import App, Flow
from toril.store.engine import connect

CHILDREN = int(os.environ.get("TORIL_FLOW_CHILDREN", "300"))
KILLS = 20 if CHILDREN >= 10_000 else 6
WIDTH = 100 if CHILDREN >= 10_000 else 10  # inner parents


@pytest.mark.covers("F10", "I12")
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_a_flow_ends_once_whoever_is_killed(kind: str, children: Children, database: Path, logs: Path) -> None:
    url = f"sqlite:///{database}"
    if kind == "redis":
        server = running()
        assert server.tell("FLUSHALL") == b"+OK"
        url = server.url
    each = (CHILDREN - WIDTH) // WIDTH
    await _added(url, each)
    chance, started = random.Random(kind), 0

    def begin() -> Child:
        nonlocal started
        started += 1
        return children.start("tend", url=url, log=logs / f"{started}.log", name=f"w{started}", lease=300)

    workers = [begin() for _ in range(3)]
    for kill in range(1, KILLS + 1):
        target = kill * CHILDREN // (KILLS + 2)
        until(lambda target=target: sum(noted(logs, "start-leaf").values()) >= target, f"{target} have begun")
        place = chance.randrange(3)
        assert workers[place].kill() == -9
        workers[place] = begin()
    assert [worker.ended() for worker in workers] == [0, 0, 0]

    knew = noted(logs, "knows")
    assert set(knew) == {f"middle {each}/{each}", f"top {WIDTH}/{WIDTH}"}, "no parent ran early"
    ended = await _ended(url)
    print(f"{kind}: {ended} ended, {KILLS} killed, {sum(noted(logs, 'start-leaf').values())} starts of leaves")
    assert ended == {"leaf": each * WIDTH, "middle": WIDTH, "top": 1}


async def _added(url: str, each: int) -> None:
    app = App(url)
    leaf, middle, top = (app.queue(name) for name in QUEUES)
    inner = [Flow(middle.new("n"), [leaf.new("n") for _ in range(each)]) for _ in range(WIDTH)]
    async with app:
        await app.flow(top.new("n", job_id="root"), inner)


async def _ended(url: str) -> dict[str, int]:
    """How many have completed; none is left in any other state."""
    engine = connect(url)
    await engine.open()
    views = [await engine.queue(name) for name in QUEUES]
    await engine.close()
    assert [sum(view.counts.values()) + view.failed_total for view in views] == [0, 0, 0]
    return {view.name: view.completed_total for view in views}
