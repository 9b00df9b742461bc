"""The PostgreSQL server that these tests have to themselves."""

import socket
from collections.abc import Iterator

import pytest

from tests import postgres as module
from tests.postgres import Postgres
from tests.servers import free_port


@pytest.fixture
def server() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.remove()


def test_it_takes_another_port_if_its_own_is_gone_and_ends_with_us(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ports = [free_port(), taken.getsockname()[1]]
        monkeypatch.setattr(module, "free_port", lambda: ports.pop() if ports else free_port())
        server.start()
        assert server.port != taken.getsockname()[1]
    assert server.database() != server.database()

    process, watcher = server._process, server._watcher
    assert process is not None
    assert watcher is not None
    assert watcher.stdin is not None
    watcher.stdin.close()  # as it is when this process is killed
    assert process.wait(timeout=120) is not None
