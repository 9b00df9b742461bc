"""`toril groups`: how the groups of a queue stand, and what holds for them."""

import pytest

from tests.cli.conftest import Toril, documents, on
from toril import App


@pytest.fixture
def queue(url: str) -> str:
    async def fill(app: App) -> None:
        queue = app.queue("email")
        await queue.add_many([("n", None, {"group": group}) for group in ("tenant:1", "tenant:1", "tenant:2")])

    on(url, fill)
    return "email"


def test_groups_are_listed_paused_and_limited(toril: Toril, queue: str) -> None:
    told = toril("groups", "set", queue, "--concurrency", "1", "--rate", "10/1m", "--max-waiting", "9").stdout
    own = toril("groups", "set", queue, "tenant:1", "--weight", "3", "--concurrency", "2").stdout
    paused = toril("groups", "pause", queue, "tenant:2").stdout
    first, second = documents(toril("groups", queue, "--json").stdout)
    table = toril("groups", queue).stdout
    resumed = toril("groups", "resume", queue, "tenant:2").stdout
    (back,) = documents(toril("groups", "set", queue, "--rate", "none", "--json").stdout)

    assert told == "Default group limits for email: 1 at once, 10 per 60 s, at most 9 waiting.\n"
    assert own.startswith(
        "Group tenant:1: 2 waiting, 0 running; limits: 2 at once, 10 per 60 s, at most 9 waiting, weight 3"
    )
    assert paused.startswith("Paused group tenant:2: 1 waiting")
    assert (first["group"], first["waiting"], first["concurrency"], first["weight"]) == ("tenant:1", 2, 2, 3)
    assert (second["group"], second["paused"], second["concurrency"], second["weight"]) == ("tenant:2", True, 1, 1)
    assert "tenant:2" in table
    assert "paused" in table
    assert resumed.startswith("Resumed group tenant:2")
    assert (back["concurrency"], back["rate_max"], back["max_waiting"]) == (1, None, 9)


@pytest.mark.parametrize("words", [("--rate", "fast"), ("--concurrency", "many"), ("--weight", "x")])
def test_what_is_no_limit_of_a_group_is_refused(toril: Toril, queue: str, words: tuple[str, str]) -> None:
    assert "expected " in toril("groups", "set", queue, "tenant:1", *words, code=2).stderr
