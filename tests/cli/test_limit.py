"""`toril limit`: how fast a queue may go, set from the shell."""

import pytest

from tests.cli.conftest import Toril, documents, on
from tests.declared import declared
from toril import App, RateLimit
from toril.model import Heartbeat


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

    assert told == "email: at most 1 at once, at most 100 per 10 s (sliding).\nNo live worker serves it.\n"
    assert (settings.rate, settings.concurrency) == (RateLimit(100, 10), 1)
    assert (shown["rate_max"], shown["rate_per_ms"], shown["concurrency"]) == (100, 10_000, 1)
    assert after == "email: no concurrency limit, no rate limit.\nNo live worker serves it.\n"


def test_what_the_code_declares_is_shown_beside_what_is_set(toril: Toril, url: str, queue: str) -> None:
    said = declared("n", concurrency=10, rate=RateLimit(50, per=1))

    async def at_work(app: App) -> None:
        for worker, what in (("w1", said), ("w2", said)):
            beat = Heartbeat(worker=worker, queues=["email"], slots=1, running=0, declares={"email": what})
            await app.store.heartbeat(beat, ttl=600_000)

    async def deploy(app: App) -> None:
        newer = Heartbeat(worker="w3", queues=["email"], slots=1, running=0, declares={"email": declared("n")})
        await app.store.heartbeat(newer, ttl=600_000, now=(await app.store.health()).now + 1)

    on(url, at_work)
    plainly = toril("limit", queue).stdout
    heads, values = (line.split() for line in toril("queues").stdout.splitlines())
    shown = dict(zip(heads, values, strict=False))
    replaced = toril("limit", queue, "--rate", "5/10s", "--concurrency", "4").stdout
    (found,) = documents(toril("queues", "--json").stdout)
    heads, values = (line.split() for line in toril("queues").stdout.replace(" of ", "/").splitlines())
    limited = dict(zip(heads, values, strict=False))
    on(url, deploy)
    deployed = toril("limit", queue).stdout

    assert plainly == (
        "email: no concurrency limit, no rate limit.\n"
        "The code declares 10 at once in each of its 2 workers (20 slots), at most 50 per 1 s (sliding).\n"
    )
    assert replaced == (
        "email: at most 4 at once, at most 5 per 10 s (sliding).\n"
        "The code declares 10 at once in each of its 2 workers (20 slots), at most 50 per 1 s (sliding), "
        "which the limit set here overrides.\n"
    )
    assert (shown["slots"], shown["rate"], limited["slots"], limited["rate"]) == ("20", "50/1s", "4/20", "5/10s")
    assert (found["declared"]["concurrency"], found["rate"]["max"], found["concurrency"]) == (10, 5, 4)
    assert deployed.splitlines()[1:] == [
        "The code declares 1 at once in each of its 3 workers (21 slots), no rate limit.",
        "Its workers declare different values for concurrency, rate; these are the newest.",
    ]


@pytest.mark.parametrize("words", [("--rate", "fast"), ("--rate", "5/x"), ("--concurrency", "many")])
def test_what_is_no_limit_is_refused(toril: Toril, queue: str, words: tuple[str, str]) -> None:
    assert "expected " in toril("limit", queue, *words, code=2).stderr


def test_a_job_is_explained_in_a_sentence_and_in_facts(toril: Toril, url: str, queue: str) -> None:
    assert toril("job", "why", "1").stdout == "No Toril worker serves queue email.\n"
    toril("pause", queue)
    (found,) = documents(toril("job", "why", queue, "1", "--json").stdout)

    assert (found["reason"], found["sentence"], found["facts"]) == (
        "paused", "Queue email is paused.", {"queue": "email"},
    )  # fmt: skip
    assert "there is no job '9'" in toril("job", "why", queue, "9", code=1).stderr
