"""`toril workers`: who is alive, by names that other commands take, and what one of them is told."""

import pytest

from tests.cli.conftest import Toril, documents, on
from toril import App
from toril.model import Heartbeat

NAME = "worker-ip-10-0-12-117-4711-8a40fe"


@pytest.fixture
def alive(url: str) -> str:
    """A worker with a name and a host of the usual length, and more queues than have room."""
    queues = [f"queue-{number}" for number in range(9)]
    beat = Heartbeat(worker=NAME, queues=queues, slots=20, running=3, host="ip-10-0-12-117", pid=4711, version="0.1.0")
    on(url, lambda app: app.store.heartbeat(beat, ttl=600_000))
    return url


def orders(url: str) -> tuple[str, ...]:
    async def look(app: App) -> tuple[str, ...]:
        (worker,) = await app.store.workers()
        return worker.orders

    return on(url, look)


@pytest.mark.parametrize(("words", "order"), [("stop", "stop"), ("quiet", "quiet")])
def test_a_worker_is_told_by_its_name(toril: Toril, alive: str, words: str, order: str) -> None:
    said = toril("workers", words, NAME).stdout
    (document,) = documents(toril("workers", words, NAME, "--json").stdout)

    assert said.startswith(f"{NAME} was asked to ")
    assert document == {"worker": NAME, "told": order}
    assert orders(alive) == (order,)


def test_a_worker_that_is_not_there_is_told_nothing(toril: Toril, alive: str) -> None:
    assert "there is no live worker 'nobody'" in toril("workers", "stop", "nobody", code=1).stderr
    assert "there is no live worker 'nobody'" in toril("workers", "quiet", "nobody", code=1).stderr
    assert orders(alive) == ()


def test_what_a_worker_was_told_stands_beside_it(toril: Toril, alive: str) -> None:
    before = toril("workers").stdout
    toril("workers", "quiet", NAME)
    quieted = toril("workers").stdout
    toril("workers", "stop", NAME)
    stopped = toril("workers").stdout

    heading = before.splitlines()[0].split()
    assert heading[:5] == ["worker", "host", "pid", "running", "command"]
    assert "3 of 20  quiet" in quieted
    assert "3 of 20  stop" in stopped


def test_the_name_of_a_worker_is_shown_whole_at_80_columns(
    toril: Toril, alive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("NO_COLOR", "1")

    shown = toril("workers").stdout

    assert NAME in shown
    assert "3 of 20" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("group", [["workers", "stop", NAME], ["breakers", "trip", "mail"]], ids=lambda words: words[0])
def test_an_option_before_the_subcommand_is_not_dropped(toril: Toril, alive: str, group: list[str]) -> None:
    """It would be told to the default store, and not to the one that was named."""
    name, *words = group

    assert f"put --url after '{words[0]}'" in toril(name, "--url", "sqlite:///other.db", *words, code=2).stderr
    assert orders(alive) == ()
    toril(name, *words, "--url", alive)
