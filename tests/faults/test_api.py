"""The API beside real workers: open on loopback, by token elsewhere."""

import http.client
import json
from pathlib import Path

import pytest

from tests.faults.fleet import SLOW, fleet
from tests.faults.test_health import WEB, port_of
from tests.faults.test_supervisor import add

TOKEN = "0123456789abcdef0123456789abcdef"


def ask(port: int, path: str, host: str = "127.0.0.1", token: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SLOW)
    try:
        headers = {"host": host, **({} if token is None else {"authorization": f"Bearer {token}"})}
        connection.request("GET", path, headers=headers)
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

    assert (probes, without, named, foreign) == ([200, 200], [401, 401], 200, [200, 421])
    assert unarranged == [200, 200, 403, 403]
