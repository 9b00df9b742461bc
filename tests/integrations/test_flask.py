"""Flask, whose code blocks: `flask run`, and gunicorn that makes the app before it forks."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integrations.programs import EXAMPLES, answer, started, until
from tests.servers import running
from toril import App

FOLDER = EXAMPLES / "flask_shop"

# The app has been used by the parent when it forks, and is used by it again when its children are gone.
FORKED = """
import os, time
from flask import Flask
from toril import App

app = App()
orders = app.queue("orders")
first = orders.sync.add("of the parent", os.getpid())
web = Flask(__name__)

@web.post("/orders")
def order():
    time.sleep(0.02)  # so that one worker cannot answer all
    return {"pid": os.getpid(), "job": orders.sync.add("of a child", os.getpid()).id}
"""
SETTINGS = """
def on_exit(server):
    import forked
    forked.orders.sync.add("of the parent", 0)
"""


@pytest.mark.covers("R170")
def test_the_example_takes_an_order_and_a_worker_packs_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    site_log, worker_log = tmp_path / "web.log", tmp_path / "worker.log"
    with (
        started(FOLDER, site_log, "flask", "--app", "shop:web", "run", "--port", "0", TORIL_URL=url) as site,
        started(FOLDER, worker_log, "toril", "run", "shop:app", "--no-http", TORIL_URL=url) as worker,
    ):
        base = site.said(r"Running on (http://\S+)")
        taken = answer("POST", f"{base}/orders/17")
        until(
            lambda: answer("GET", f"{base}/orders/17").json() == {"state": "completed"} or None, lambda: worker.output
        )
        missing = answer("GET", f"{base}/orders/18")

    assert (taken.status_code, taken.json()) == (202, {"job": "order-17"})
    assert missing.status_code == 404


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_what_was_opened_before_the_fork_works_in_every_process(kind: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}" if kind == "sqlite" else running("redis").url
    prefix = f"forks-{tmp_path.name}"
    (tmp_path / "forked.py").write_text(FORKED.replace("App()", f"App(prefix={prefix!r})"), "utf-8")
    (tmp_path / "settings.py").write_text(SETTINGS, "utf-8")
    words = ("gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:0", "--config", "settings.py")

    with started(tmp_path, tmp_path / "web.log", *words, "forked:web", TORIL_URL=url) as site:
        base = site.said(r"Listening at: (http://\S+)")
        told: list[dict[str, int | str]] = []
        with ThreadPoolExecutor(4) as clients:

            def both() -> bool | None:
                asked = [clients.submit(answer, "POST", f"{base}/orders") for _ in range(8)]
                told.extend(each.result().json() for each in asked)
                return True if len({each["pid"] for each in told}) == 2 else None

            until(both, lambda: site.output)
        assert site.end(signal.SIGTERM) == 0, site.output

    async with App(url, prefix=prefix) as app:
        counts = await app.queue("orders").counts()
        await app.queue("orders").obliterate()
    assert len({each["job"] for each in told}) == len(told)
    assert counts.waiting == len(told) + 2, site.output
