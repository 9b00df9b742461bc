"""Flask, whose code blocks, by `flask run`."""

from pathlib import Path

import pytest

from tests.integrations.programs import EXAMPLES, answer, started, until

FOLDER = EXAMPLES / "flask_shop"


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
