"""`toril bench` measures a store, and leaves nothing in it."""

import signal
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Fresh, Toril, documents, on
from tests.servers import RedisServer, running

FEW = ("--jobs", "60", "--light", "3", "--concurrency", "10")
WAITS = 60


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "redis":
        server: RedisServer = running()
        server.tell("FLUSHALL")
        monkeypatch.setenv("TORIL_URL", server.url)
        url = server.url
    yield url
    if request.param == "redis":
        assert not [line for line in running().lines("KEYS *") if "bench-" in line]


def test_it_tells_rates_and_waits_and_removes_its_queue(store: str, fresh: Fresh) -> None:
    process = fresh("bench", *FEW, "--json")
    shown, told = process.communicate(timeout=WAITS)

    assert process.returncode == 0, told
    found = documents(shown)
    assert [figure["unit"] for figure in found] == ["jobs/s"] * 3 + ["ms"] * 3
    assert all(figure["value"] > 0 for figure in found)
    assert on(store, lambda app: app.store.queues()) == []


def test_interrupted_it_removes_its_queue_too(url: str, fresh: Fresh) -> None:
    process = fresh("bench", "--jobs", "60", "--light", "100000")
    assert process.stderr is not None
    while "one at a time" not in process.stderr.readline():
        assert process.poll() is None

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAITS)

    assert process.returncode == 130
    assert on(url, lambda app: app.store.queues()) == []


def test_a_store_that_no_worker_could_reach_is_refused(toril: Toril) -> None:
    assert "private to one process" in toril("bench", "--url", "memory://", code=2).stderr
