"""A Redis, a Node beside it, and Toril on the same queues."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.node import Driver, Node
from tests.interop.side import Toril
from tests.servers import RedisServer

ALL = bool(os.environ.get("TORIL_INTEROP_ALL"))
NEWEST = pytest.param(6, id="bullmq6")
BEFORE = pytest.param(5, id="bullmq5", marks=pytest.mark.thorough)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test runs against both majors; a module whose jobs are written by hand says `ONE_MAJOR`, and runs against
    the second one only with TORIL_INTEROP_ALL=1."""
    if "major" in metafunc.fixturenames:
        only_one = hasattr(metafunc.module, "ONE_MAJOR") and not ALL
        metafunc.parametrize("major", [NEWEST] if only_one else [NEWEST, BEFORE])


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    """One server for all of them, and no other tests; each leaves it empty."""
    started = RedisServer().start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def drivers(server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Driver]]:
    """One Node process a major for all: it takes a second to start."""
    log, started = tmp_path_factory.mktemp("node") / "driver.log", dict[int, Driver]()

    def of(major: int) -> Driver:
        if major not in started:
            started[major] = Driver(server, log, major)
        return started[major]

    yield of
    for one in started.values():
        one.kill()


@pytest.fixture
def driver(drivers: Callable[[int], Driver], major: int) -> Driver:
    return drivers(major)


@pytest.fixture
async def node(driver: Driver) -> AsyncIterator[Node]:
    """Node with nothing open on an empty server."""
    await driver.do("redis", args=["FLUSHALL"])
    yield Node(driver)
    await driver.do("reset")
    await driver.do("redis", args=["FLUSHALL"])


@pytest.fixture
def another_node(node: Node, server: RedisServer, tmp_path: Path) -> Iterator[Callable[[], Driver]]:
    """Makes Node processes that a test may kill."""
    made: list[Driver] = []

    def start() -> Driver:
        made.append(Driver(server, tmp_path / "another.log", node.major))
        return made[-1]

    yield start
    for one in made:
        one.kill()


@pytest.fixture
def toril(node: Node, server: RedisServer) -> Toril:
    """Toril on the same server."""
    return Toril(server.url)
