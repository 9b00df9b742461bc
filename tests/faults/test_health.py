"""What an orchestrator is told: alive, ready, and the details; by HTTP and by `toril ping`."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.fleet import SLOW, Fleet, fleet
from tests.faults.nursery import until
from tests.faults.test_supervisor import add
from tests.servers import RedisServer

WEB = {"TORIL_NO_HTTP": "0"}


@pytest.fixture
def url(database: Path) -> str:
    return f"sqlite:///{database}"


def port_of(run: Fleet) -> int:
    until(lambda: run.said("HTTP on") or run.process.poll() is not None, "HTTP is served", timeout=SLOW)
    found = re.search(r"HTTP on \S+:(\d+):", run.log.read_text())
    assert found is not None, run.log.read_text()
    return int(found[1])


def get(port: int, path: str, method: str = "GET") -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SLOW)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def silence(port: int) -> float:
    """Seconds since the worker's loop last ticked."""
    return float(json.loads(get(port, "/health")[1])["workers"][0]["silent_seconds"])


def ping(port: int, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "toril", "ping", "--http", f"127.0.0.1:{port}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SLOW)


@pytest.mark.covers("R242", "R244", "R004", "R264")
def test_a_worker_tells_how_it_is(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--http", "127.0.0.1:0", "--http-origin", "https://status.example", **WEB) as run:
        port = port_of(run)

        assert get(port, "/livez")[:2] == (200, "alive\n")
        assert get(port, "/readyz")[:2] == (200, "ready\n")
        code, text, headers = get(port, "/health")
        document: dict[str, Any] = json.loads(text)
        assert code == 200
        assert headers["access-control-allow-origin"] == "https://status.example"
        assert "access-control-allow-origin" not in get(port, "/readyz")[2]
        assert (document["status"], document["pollers"], document["store"]["ok"]) == ("OK", "disabled", True)
        assert document["queues"] == {"q": 2}
        assert [worker["ready"] for worker in document["workers"]] == [True]
        assert [get(port, "/nothing-here")[0], get(port, "/livez", "POST")[0]] == [404, 405]
        assert "<title>Overview" in get(port, "/")[1], "the pages need no other process"
        assert ping(port).returncode == 0
        assert run.stop() == 0
        assert ping(port).returncode == 1


@pytest.mark.covers("R242", "R004")
def test_a_poller_that_has_died_is_told_and_that_it_runs_again(url: str, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.touch()

    def health() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(get(port, "/health")[1])
        return found

    with fleet(url, tmp_path, "--http", "127.0.0.1:0", ALIVE_POLLER=str(cut), **WEB) as run:
        port = port_of(run)
        until(lambda: health()["pollers"] == "restarting", "it has died", timeout=SLOW)
        until(lambda: "poller inbox" in health()["message"], "it is told", timeout=SLOW)
        died = health()
        ready = get(port, "/readyz")[0]
        cut.unlink()
        until(lambda: health()["pollers"] == "running", "it runs again", timeout=SLOW)
        well = health()
        assert run.stop() == 0

    (inbox,) = died["workers"][0]["pollers"]
    assert (inbox["name"], inbox["error"]) == ("inbox", "OSError: the line is cut")
    assert ready == 200
    assert (well["status"], well["workers"][0]["pollers"][0]["state"]) == ("OK", "running")
    assert well["workers"][0]["pollers"][0]["restarts"] >= 1


@pytest.mark.covers("F129", "R242")
def test_strangers_who_connect_and_say_nothing_do_not_make_a_worker_look_dead(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--http", "127.0.0.1:0", **WEB) as run:
        port = port_of(run)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(160)]
        try:
            answers = [status(port, "/livez") for _ in range(20)]
        finally:
            for each in silent:
                each.close()

    assert answers == [200] * 20


def status(port: int, path: str) -> int:
    """0 if the connection was cut off."""
    try:
        return get(port, path)[0]
    except (OSError, http.client.HTTPException):
        return 0


@pytest.mark.covers("R243", "F41", "R003")
def test_readiness_ends_with_the_signal_and_life_with_the_process(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--http", "127.0.0.1:0", "--grace", "60", **WEB) as run:
        port = port_of(run)
        assert run.said("ready: ")  # it was not served before
        (job,) = add(url, "hold", 10)
        run.until_noted(job, "start")

        run.send(signal.SIGTERM)
        began = time.monotonic()
        until(lambda: get(port, "/readyz")[0] == 503, "it is not ready", timeout=5)
        took = time.monotonic() - began

        assert get(port, "/livez")[0] == 200
        assert ping(port).returncode == 1
        assert ping(port, "--live").returncode == 0
        assert run.ended() == 0
        run.until_noted(job, "end")
    print(f"not ready {took * 1000:.0f} ms after the signal")


@pytest.mark.covers("F23", "F41")
def test_probes_answer_while_a_handler_blocks_its_loop(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--http", "127.0.0.1:0", "--grace", "1", **WEB) as run:
        port = port_of(run)
        (job,) = add(url, "busy", 600)
        run.until_noted(job, "start")
        took = []
        for _ in range(20):
            began = time.monotonic()
            assert get(port, "/livez")[0] == 200
            took.append(time.monotonic() - began)
        until(lambda: silence(port) > 0.6, "it is seen", timeout=SLOW)
        run.send(signal.SIGTERM)
        began = time.monotonic()
        until(lambda: get(port, "/readyz")[0] == 503, "it is not ready", timeout=5)
        unready = time.monotonic() - began
        assert run.ended() == 1
    print(f"a blocked loop: /livez within {max(took) * 1000:.0f} ms, /readyz 503 after {unready * 1000:.0f} ms")


@pytest.mark.covers("R002", "F127")
def test_an_address_that_was_asked_for_must_be_had(url: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with fleet(url, tmp_path, "--http", f"127.0.0.1:{taken.getsockname()[1]}", **WEB) as run:
            assert run.ended() == 1
    assert "cannot serve HTTP on 127.0.0.1" in run.log.read_text()


def test_off_loopback_only_the_probes_answer(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--http", "0.0.0.0:0", **WEB) as run:
        port = port_of(run)

        assert [get(port, path)[0] for path in ("/livez", "/readyz", "/health")] == [200, 200, 403]


@pytest.mark.covers("R243")
def test_readiness_follows_the_store(tmp_path: Path) -> None:
    server = RedisServer().start()
    try:
        with fleet(server.url, tmp_path, "--http", "127.0.0.1:0", "--unready-after", "1", **WEB) as run:
            port = port_of(run)
            assert get(port, "/readyz")[0] == 200
            server.kill()
            until(lambda: get(port, "/readyz")[0] == 503, "it is not ready", timeout=SLOW)
            assert get(port, "/livez")[0] == 200
            server.start()
            until(lambda: get(port, "/readyz")[0] == 200, "it is ready again", timeout=SLOW)
            (job,) = add(server.url, "hold", 0)
            run.until_noted(job, "end")
            assert run.stop() == 0
    finally:
        server.stop()
