"""`toril dashboard` as the files in deploy/ start it: it is ready when its store is, and asks who one is."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml  # type: ignore[import-untyped]

DEPLOY = Path(__file__).parents[2] / "deploy"
TOKEN = "0123456789abcdef0123"


def commands() -> dict[str, list[str]]:
    """As each file has it."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["dashboard"]["command"]
    found = {"compose.yaml": shlex.split(compose)}
    for thing in yaml.safe_load_all((DEPLOY / "kubernetes" / "toril.yaml").read_text()):
        if thing["kind"] == "Deployment" and thing["metadata"]["name"] == "toril-dashboard":
            container: dict[str, Any] = thing["spec"]["template"]["spec"]["containers"][0]
            assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
            found["toril.yaml"] = container["command"]
    return found


@contextmanager
def started(words: list[str], url: str) -> Iterator[str]:
    """The address at which it is, on a free port."""
    env = {**os.environ, "TORIL_URL": url, "TORIL_HTTP_TOKEN": TOKEN, "PYTHONUNBUFFERED": "1"}
    line = [sys.executable, "-m", *(word.replace(":8484", ":0") for word in words)]
    with subprocess.Popen(line, cwd=DEPLOY, env=env, stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            said = run.stdout.readline()
            port = re.search(r":(\d+)/", said)
            assert port is not None, said
            yield f"http://127.0.0.1:{port[1]}"
        finally:
            run.terminate()


def ready(base: str) -> int:
    """What the probe says, once it has looked at the store."""
    until = time.monotonic() + 60
    while (status := httpx.get(base + "/readyz").status_code) != 200 and time.monotonic() < until:
        time.sleep(0.1)
    return status


@pytest.mark.parametrize("file", ["compose.yaml", "toril.yaml"])
def test_it_starts_with_the_command_of_the_file(file: str, tmp_path: Path) -> None:
    words = commands()[file]
    with started(words, f"sqlite:///{tmp_path / 'jobs.db'}") as base:
        names = [name for flag, name in pairwise(words) if flag == "--http-host"] or ["127.0.0.1"]
        probe, alive = ready(base), httpx.get(base + "/livez").status_code
        stranger = httpx.get(base, headers={"accept": "text/html", "host": names[0]})
        page = httpx.get(base, headers={"authorization": f"Bearer {TOKEN}", "host": names[0]})

    assert (probe, alive, stranger.status_code, page.status_code) == (200, 200, 401, 200)


def manifests(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / file).read_text()))


def test_in_a_cluster_it_answers_to_the_names_by_which_it_is_asked(tmp_path: Path) -> None:
    (scaled,) = [thing for thing in manifests("autoscaling.yaml") if thing["kind"] == "ScaledObject"]
    asked = [urlsplit(trigger["metadata"]["url"]) for trigger in scaled["spec"]["triggers"]]
    (service,) = [thing["metadata"]["name"] for thing in manifests("toril.yaml") if thing["kind"] == "Service"]
    token = {"authorization": f"Bearer {TOKEN}"}
    with started(commands()["toril.yaml"], f"sqlite:///{tmp_path / 'jobs.db'}") as base:
        assert ready(base) == 200
        keda = [httpx.get(base + url.path, headers={**token, "host": url.netloc}) for url in asked]
        prometheus = httpx.get(base + "/metrics", headers={**token, "host": "10.244.1.17:8484"})
        stranger = httpx.get(base + "/metrics", headers={"host": "10.244.1.17:8484"})

    assert [url.netloc.split(".")[0] for url in asked] == [service]
    assert all(len(url.netloc.split(".")) > 2 for url in asked), "a name that resolves in KEDA's own namespace too"
    assert [(found.status_code, "depth" in found.json()) for found in keda] == [(200, True)]
    assert (prometheus.status_code, stranger.status_code) == (200, 421)
    assert "toril_jobs_total" in prometheus.text


def test_all_that_serves_http_in_a_cluster_has_three_probes() -> None:
    containers = [
        thing["spec"]["template"]["spec"]["containers"][0]
        for thing in manifests("toril.yaml")
        if thing["kind"] == "Deployment"
    ]
    probed = {
        each["name"]: {probe: each[probe]["httpGet"]["path"] for probe in each if probe.endswith("Probe")}
        for each in containers
        if "ports" in each
    }
    paths = {"startupProbe": "/livez", "readinessProbe": "/readyz", "livenessProbe": "/livez"}

    assert probed == {"worker": paths, "dashboard": paths}


def test_the_health_check_of_the_image_asks_what_runs_in_it(tmp_path: Path) -> None:
    image = (DEPLOY / "Dockerfile").read_text()
    check = re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", image, re.MULTILINE)
    assert check is not None
    words = [sys.executable, "-m", *json.loads(check[1])]
    with started(commands()["compose.yaml"], f"sqlite:///{tmp_path / 'jobs.db'}") as base:
        env = {**os.environ, "TORIL_HTTP": urlsplit(base).netloc}
        assert ready(base) == 200
        healthy = subprocess.run(words, env=env, capture_output=True, check=False)
    gone = subprocess.run(words, env=env, capture_output=True, check=False)

    assert (healthy.returncode, gone.returncode) == (0, 1)
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    silent = [name for name, each in services.items() if "reaper" in each["command"] or "--no-http" in each["command"]]
    assert all(services[name]["healthcheck"] == {"disable": True} for name in silent)


@pytest.mark.parametrize("unit", ["toril-worker@.service", "toril-reaper.service"])
def test_systemd_makes_the_folder_of_a_store_in_a_file(unit: str) -> None:
    lines = (DEPLOY / "systemd" / unit).read_text().splitlines()

    assert "StateDirectory=toril" in lines
    assert not any(line.startswith("ReadWritePaths=") for line in lines)


def test_on_loopback_it_prints_a_link_with_which_one_may_act(tmp_path: Path) -> None:
    env = {name: text for name, text in os.environ.items() if name != "TORIL_HTTP_TOKEN"} | {"PYTHONUNBUFFERED": "1"}
    words = ["dashboard", "--http", "127.0.0.1:0", "--url", f"sqlite:///{tmp_path / 'jobs.db'}"]
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-m", "toril", *words], env=env, stdout=pipe, stderr=pipe, text=True) as run:
        try:
            assert run.stdout is not None
            assert run.stderr is not None
            said = run.stdout.readline()
            assert f"for sqlite:///{tmp_path / 'jobs.db'}: http" in said, "which store it shows"
            base = re.search(r"http://127\.0\.0\.1:\d+", said)
            assert base is not None
            repair, ours = f"{base[0]}/api/v1/doctor/repair", {"sec-fetch-site": "same-origin"}
            assert httpx.post(repair, headers=ours).status_code == 403
            link = re.search(r"http://\S+/sign-in\?code=\w+", run.stderr.readline())
            assert link is not None
            with httpx.Client() as client:
                client.get(link[0])
                assert client.post(repair, headers=ours).status_code == 200
        finally:
            run.terminate()
