"""The API beside real workers: on loopback all may look, and act by link or token; elsewhere by token only."""

import http.client
import json
import re
from pathlib import Path

import pytest

from tests import servers
from tests.faults.fleet import SLOW, fleet
from tests.faults.nursery import until
from tests.faults.test_health import WEB, port_of
from tests.faults.test_supervisor import add

TOKEN = "0123456789abcdef0123456789abcdef"


def ask(
    port: int, path: str, host: str = "127.0.0.1", token: str | None = None, *, method: str = "GET", **headers: str
) -> tuple[int, str]:  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SLOW)
    try:
        known = {} if token is None else {"authorization": f"Bearer {token}"}
        connection.request(method, path, headers={"host": host, **known, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_running_worker_serves_the_api_on_loopback(database: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{database}"
    with fleet(url, tmp_path, "--http", "127.0.0.1:0", **WEB) as run:
        port = port_of(run)
        (job,) = add(url, "hold", 30)
        run.until_noted(job, "start")
        status, text = ask(port, f"/api/v1/queues/q/jobs/{job}")
        workers = json.loads(ask(port, "/api/v1/workers")[1])["items"]

    assert (status, json.loads(text)["state"]) == (200, "active")
    assert len(workers) == 1


def test_a_running_worker_shows_the_dead_letters_of_the_queue_that_the_app_names(tmp_path: Path) -> None:
    server = servers.running()
    server.tell("FLUSHALL")
    with fleet(server.url, tmp_path, "--http", "127.0.0.1:0", ALIVE_LETTERS="failed-jobs", **WEB) as run:
        port = port_of(run)
        (job,) = add(server.url, "hold", "no number of seconds", keep_failed=False)
        until(lambda: server.tell("LLEN", "bull:failed-jobs:wait") == b":1", "it is a dead letter", timeout=SLOW)
        letters = json.loads(ask(port, "/api/v1/dead-letters")[1])["items"]

    assert [letter["id"] for letter in letters] == [f"q/{job}"]


@pytest.mark.parametrize("durability", ["", "replicated"])
def test_what_is_done_over_http_is_as_durable_as_the_app_says(durability: str, tmp_path: Path) -> None:
    """Without a replica that could confirm it."""
    settings = {"ALIVE_DURABILITY": durability} if durability else {}
    server = servers.running()
    server.tell("FLUSHALL")
    with fleet(server.url, tmp_path, "--http", "127.0.0.1:0", **settings, **WEB, TORIL_HTTP_TOKEN=TOKEN) as run:
        status, text = ask(port_of(run), "/api/v1/queues/q/pause", token=TOKEN, method="POST")

    assert ("replica" in text, status) == ((True, 503) if durability else (False, 200)), text


@pytest.mark.covers("B77", "R238")
def test_on_loopback_strangers_look_and_only_the_printed_link_lets_them_act(database: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{database}"
    with fleet(url, tmp_path, "--http", "127.0.0.1:0", **WEB) as run:
        port = port_of(run)
        drain = "/api/v1/queues/q/drain"
        looked, refused = ask(port, "/api/v1/queues")[0], ask(port, drain, method="POST")
        assert (looked, refused[0]) == (200, 403)
        assert "open the sign-in link" in json.loads(refused[1])["error"]["message"]
        until(lambda: run.said("/sign-in?code="), "a link is printed", timeout=SLOW)
        code = re.search(r"http://127.0.0.1:(\d+)(/sign-in\?code=\w+)", run.log.read_text())
        assert code is not None
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SLOW)
        connection.request("GET", code[2])
        cookie = str(connection.getresponse().getheader("set-cookie")).partition(";")[0]
        connection.close()
        signed_in = {"cookie": cookie, "sec-fetch-site": "same-origin"}
        acted = ask(port, drain, method="POST", **signed_in)

    assert (acted[0], int(code[1])) == (200, port)


@pytest.mark.covers("B77")
def test_the_sign_in_link_is_printed_at_any_log_level(database: Path, tmp_path: Path) -> None:
    quiet = ("--http", "127.0.0.1:0", "--log-level", "error")
    with fleet(f"sqlite:///{database}", tmp_path, *quiet, **WEB) as run:
        until(lambda: run.said("/sign-in?code="), "a link is printed", timeout=SLOW)
        printed = [line for line in run.log.read_text().splitlines() if "/sign-in?code=" in line]

    assert [line.partition(",")[0] for line in printed] == ["To sign in to the dashboard"]


def test_a_token_lets_programs_on_the_same_machine_act(database: Path, tmp_path: Path) -> None:
    with fleet(f"sqlite:///{database}", tmp_path, "--http", "127.0.0.1:0", **WEB, TORIL_HTTP_TOKEN=TOKEN) as run:
        port = port_of(run)
        pause = "/api/v1/queues/q/pause"
        known, stranger = (ask(port, pause, token=token, method="POST")[0] for token in (TOKEN, None))
        said = run.said("sign-in")

    assert (known, stranger, said) == (200, 401, False)


@pytest.mark.covers("B77")
def test_off_loopback_it_answers_to_tokens_only(database: Path, tmp_path: Path) -> None:
    words = ("--http", "0.0.0.0:0", "--http-host", "jobs.example.org")
    with fleet(f"sqlite:///{database}", tmp_path, *words, **WEB, TORIL_HTTP_TOKEN=TOKEN) as run:
        port = port_of(run)
        probes = [ask(port, path)[0] for path in ("/livez", "/readyz")]
        without = [ask(port, path)[0] for path in ("/health", "/api/v1/queues")]
        named = ask(port, "/health", "jobs.example.org:8484", TOKEN)[0]
        foreign = [ask(port, path, "10.1.2.3:8484", TOKEN)[0] for path in ("/livez", "/api/v1/queues")]
    with fleet(f"sqlite:///{database}", tmp_path, "--http", "0.0.0.0:0", **WEB) as run:
        port = port_of(run)
        unarranged = [ask(port, path)[0] for path in ("/livez", "/readyz", "/health", "/api/v1/queues")]

    assert (probes, without, named, foreign) == ([200, 200], [401, 401], 200, [200, 200])
    assert unarranged == [200, 200, 403, 403]
