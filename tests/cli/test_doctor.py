"""`toril doctor`: what it says, asks and answers, on a file and on a server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Toril, documents, on
from tests.servers import RedisServer
from toril import App


@pytest.fixture(scope="module")
def sound() -> Iterator[RedisServer]:
    """A server as one should have in production."""
    server = RedisServer("--appendonly", "yes", "--save", "").start()
    yield server
    server.kill()  # asked politely it may refuse: it writes its first log
    server.stop()


@pytest.fixture
def server(sound: RedisServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> RedisServer:
    sound.tell("FLUSHALL")
    monkeypatch.setenv("TORIL_URL", sound.url)
    return sound


async def add(app: App) -> None:
    await app.queue("mail").add("send", {})


def plant(server: RedisServer) -> None:
    on(server.url, add)
    server.tell("LPUSH", "bull:mail:wait", "ghost")
    server.tell("SET", "bull:mail:9:lock", "token")


def test_a_sound_store_is_told_so(toril: Toril, url: str) -> None:
    on(url, add)

    assert "No problems found." in toril("doctor").output
    assert toril("doctor", "--json").stdout == ""


def test_a_sound_server_is_told_so(toril: Toril, server: RedisServer) -> None:
    on(server.url, add)

    assert "No problems found." in toril("doctor").output


def test_findings_end_with_one_and_name_the_place_and_the_fix(toril: Toril, server: RedisServer) -> None:
    plant(server)

    shown = toril("doctor", code=1).output
    found = documents(toril("doctor", "-q", "mail", "--json", code=1).stdout)

    assert "where: bull:mail:wait" in shown
    assert "fix:   toril doctor --repair" in shown
    assert {each["code"] for each in found} == {"ghost", "stray_lock"}
    assert found[0].keys() == {"severity", "code", "finding", "where", "fix", "queue", "subject", "repairable"}
    assert "there is no queue 'mial'" in toril("doctor", "-q", "mial", code=1).output


def test_a_repair_is_shown_then_asked_for_then_done(toril: Toril, server: RedisServer) -> None:
    plant(server)

    refused = toril("doctor", "--repair", code=3).output
    assert "Would repair: queue 'mail': 'ghost'" in refused
    assert "pass --yes" in refused
    assert server.tell("LLEN", "bull:mail:wait") == b":2"

    foretold = documents(toril("doctor", "--repair", "--dry-run", "--json", code=1).stdout)
    assert {each["code"] for each in foretold} == {"ghost", "stray_lock"}
    assert "Would repair: queue 'mail': 'ghost'" in toril("doctor", "--repair", "--dry-run", "--yes", code=1).output
    assert server.tell("LLEN", "bull:mail:wait") == b":2"
    assert "--dry-run needs --repair" in toril("doctor", "--dry-run", code=2).output

    done = [json.loads(line) for line in toril("doctor", "--repair", "--yes", "--json").stdout.splitlines()]
    assert {(each["code"], each["outcome"]) for each in done} == {("ghost", "repaired"), ("stray_lock", "repaired")}
    assert server.tell("LLEN", "bull:mail:wait") == b":1"
    assert "nothing to repair" in toril("doctor", "--repair").output


def test_settings_are_told_of_and_left_to_people(toril: Toril, server: RedisServer) -> None:
    on(server.url, add)
    server.tell("CONFIG", "SET", "appendonly", "no")
    try:
        found = documents(toril("doctor", "--json", code=1).stdout)
        told = toril("doctor", "--repair", "--yes", code=1).output
        as_json = toril("doctor", "--repair", "--yes", "--json", code=1).stdout
    finally:
        server.tell("CONFIG", "SET", "appendonly", "yes")

    assert [(each["code"], each["severity"], each["repairable"]) for each in found] == [("persistence", "error", False)]
    assert "Not repairable: the server writes nothing to disk" in told
    assert documents(as_json) == found


@pytest.mark.covers("F100")
def test_a_store_that_cannot_be_opened_is_a_finding_too(toril: Toril, url: str, folder: Path) -> None:
    (folder / "jobs.db").write_bytes(b"this is no database at all" * 100)

    (found,) = documents(toril("doctor", "--json", code=1).stdout)

    assert (found["code"], found["severity"]) == ("unusable", "error")
    assert "jobs.db" in found["finding"]
