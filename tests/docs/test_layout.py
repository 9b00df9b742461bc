"""The page on the layout: its queries are run as they stand, against a queue whose state is known."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psycopg
import pytest

from tests import servers
from tests.postgres import postgres
from toril.engines.postgres.dialect import migrations
from toril.model import Claim, Dedup, Failed, Failure, JobOptions, Keep, NewJob, Schedule, Settlement
from toril.store.engine import Store, connect

PAGE = (Path(__file__).parents[2] / "docs" / "layout.md").read_text("utf-8")
QUERIES = [line.split("  # ")[0].split(" # ")[0].strip() for line in PAGE.splitlines() if line.startswith("redis-cli ")]
MINUTE = 60_000


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """Queue `emails`: one job runs, two wait, one is prioritized, of two delayed one is due soon, one failed."""
    server = servers.running()
    server.tell("FLUSHALL")
    store = connect(server.url)
    await store.open()
    wanted = Claim(want=1, token="token", lease=30_000, worker="w1")
    await store.add("emails", [NewJob(name="bad", options=JobOptions(keep_failed=Keep()))])
    (failed,) = (await store.exchange("emails", [], wanted)).jobs
    await store.exchange(
        "emails", [Settlement(failed.lease, Failed(Failure("no")))], Claim(want=0, token="t", lease=1, worker="w1")
    )
    await store.add("emails", [NewJob(name="welcome", id="welcome-1", data='{"userId":"1001"}')])
    await store.exchange("emails", [], wanted)
    await store.add("emails", [
        NewJob(name="a", id="first"), NewJob(name="b", id="second", dedup=Dedup("user-7")),
        NewJob(name="v", id="vip", priority=1),
        NewJob(name="soon", id="soon", delay=MINUTE // 2), NewJob(name="late", id="late", delay=60 * MINUTE),
    ])  # fmt: skip
    at = (await store.health()).now + 60 * MINUTE
    await store.schedules.put(
        "emails", Schedule(id="nightly", job=NewJob(name="n"), every=60 * MINUTE), at, expects=None
    )
    yield store
    await store.close()


def asked(query: str) -> list[str]:
    """What the command prints, as a shell runs it."""
    tool = shutil.which("redis-cli")
    assert tool is not None, "redis-cli is missing; it comes with redis-server"
    command = query.replace("redis-cli", f"{tool} -p {servers.running().port}", 1)
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True, env=os.environ, timeout=30
    )
    return done.stdout.rstrip("\n").split("\n")


def soon(answer: list[str]) -> bool:
    """One job, and its score is a time within the next minute."""
    due = float(answer[1]) / 4096 / 1000
    return len(answer) == 2 and answer[0] == "soon" and 0 < due - time.time() < 31


def welcome(answer: list[str]) -> bool:
    job = dict(zip(answer[::2], answer[1::2], strict=True))
    return (job["name"], job["data"], job["pb"], job["ats"]) == ("welcome", '{"userId":"1001"}', "w1", "1")


def last_events(answer: list[str]) -> bool:
    entries = [line for line in answer if re.fullmatch(r"\d{13}-\d+", line)]
    return len(entries) == 10 and answer[1:5] == ["event", "delayed", "jobId", answer[4]] and "nightly" in answer[4]


# By what they ask for: the answer, or what it must be like.
ANSWERS: dict[str, list[str] | Callable[[list[str]], bool]] = {
    "LLEN bull:emails:wait": ["2"],
    "LLEN bull:emails:active": ["1"],
    "LRANGE bull:emails:active": ["welcome-1"],
    "HGETALL bull:emails:welcome-1": welcome,
    "ZRANGEBYSCORE bull:emails:delayed": soon,
    "ZCARD bull:emails:failed": ["1"],
    "XREVRANGE bull:emails:events": last_events,
    "ZRANGE bull:emails:prioritized": ["vip"],
    "PTTL bull:emails:welcome-1:lock": lambda answer: 0 < int(answer[0]) <= 30_000,
    "ZRANGE bull:emails:toril:deadlines": lambda answer: answer[0] == "welcome-1" and len(answer) == 2,
    "ZRANGE bull:emails:repeat": ["nightly"],
    "GET bull:emails:de:user-7": ["second"],
    "HGET bull:emails:meta": [""],
    "ZRANGE bull:emails:marker": lambda answer: answer[:2] == ["0", "0"] and answer[2] == "1",
}


@pytest.mark.covers("R187", "R188", "R189", "R190")
@pytest.mark.usefixtures("store")
async def test_the_queries_of_the_page_answer_what_is_so() -> None:
    assert [" ".join(query.split()[1:3]) for query in QUERIES] == list(ANSWERS)

    wrong = {}
    for query, expected in zip(QUERIES, ANSWERS.values(), strict=True):
        answer = asked(query)
        if not (expected(answer) if callable(expected) else answer == expected):
            wrong[query] = answer

    assert wrong == {}


def test_the_settings_of_the_page_are_taken_by_a_server() -> None:
    page = (Path(__file__).parents[2] / "docs" / "production.md").read_text("utf-8")
    settings = [line.split()[3:] for line in page.splitlines() if line.startswith("redis-cli CONFIG SET")]
    server = servers.RedisServer().start()
    try:
        answers = [server.tell("CONFIG", "SET", *words) for words in settings]
    finally:
        server.kill()
        server.stop()

    assert answers == [b"+OK"] * 4
    assert "## A queue, or a stream?" in page


def test_every_table_of_a_schema_in_postgresql_is_on_the_page() -> None:
    section = PAGE.partition("\n## PostgreSQL\n")[2]
    created = {name for text in migrations() for name in re.findall(r"CREATE (?:TABLE|VIEW) toril\.(\w+)", text)}

    assert created - set(re.findall(r"`(\w+)`", section)) == set()


async def test_the_query_of_the_page_counts_the_jobs_of_a_queue() -> None:
    url = postgres().database()
    database = connect(url)
    await database.open()
    await database.add("emails", [NewJob(name="a"), NewJob(name="b", delay=MINUTE)])
    await database.close()
    (query,) = re.findall(r"^```sql\n(.*?)^```$", PAGE.partition("\n## PostgreSQL\n")[2], re.MULTILINE | re.DOTALL)

    with psycopg.connect(url) as connection:
        assert connection.execute(str(query).encode()).fetchall() == [("emails", 0, 1, 0, 1)]
