"""`toril limit`: how fast a queue may go, set from the shell."""

import pytest

from tests.cli.conftest import Toril, documents, on
from toril import App, RateLimit


@pytest.fixture
def queue(url: str) -> str:
    async def fill(app: App) -> None:
        await app.queue("email").add("n")

    on(url, fill)
    return "email"


def test_a_rate_and_a_concurrency_are_set_shown_and_taken_back(toril: Toril, url: str, queue: str) -> None:
    told = toril("limit", queue, "--rate", "100/10s", "--concurrency", "1").stdout
    settings = on(url, lambda app: app.queue("email").settings())
    (shown,) = documents(toril("limit", queue, "--json").stdout)
    after = toril("limit", queue, "--rate", "none", "--concurrency", "none").stdout

    assert told == "email: at most 1 at once, at most 100 in 10 s (sliding).\n"
    assert (settings.rate, settings.concurrency) == (RateLimit(100, 10), 1)
    assert (shown["rate_max"], shown["rate_per_ms"], shown["concurrency"]) == (100, 10_000, 1)
    assert after == "email: no bound on how many run at once, no rate set.\n"


@pytest.mark.parametrize("words", [("--rate", "fast"), ("--rate", "5/x"), ("--concurrency", "many")])
def test_what_is_no_limit_is_refused(toril: Toril, queue: str, words: tuple[str, str]) -> None:
    assert "is not a" in toril("limit", queue, *words, code=2).stderr


def test_a_job_is_explained_in_a_sentence_and_in_facts(toril: Toril, url: str, queue: str) -> None:
    assert toril("job", "why", "1").stdout == "No worker of Toril serves queue email.\n"
    toril("pause", queue)
    (found,) = documents(toril("job", "why", queue, "1", "--json").stdout)

    assert (found["reason"], found["sentence"], found["facts"]) == (
        "paused", "Queue email is paused.", {"queue": "email"},
    )  # fmt: skip
    assert "there is no job '9'" in toril("job", "why", queue, "9", code=1).stderr
