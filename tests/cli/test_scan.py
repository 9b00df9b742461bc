"""`toril scan` runs a scanner as a worker would: with its store and what the app's lifespan brings."""

from pathlib import Path

import pytest

from tests.cli.conftest import Toril, on

APP = """
from contextlib import asynccontextmanager
from toril import App

rows = None

@asynccontextmanager
async def lifespan(app):
    global rows
    rows = ["one", "two"]
    yield rows
    rows = None

app = App(lifespan=lifespan)
queue = app.queue("again")

def find(before):
    return rows

async def reset(row):
    await queue.add("row", row)

async def fail(row):
    raise ConnectionError("away")

app.scanner("stale", every=900, find=find, reset=reset)
app.scanner("broken", every=900, find=find, reset=fail)
"""


@pytest.mark.covers("R124")
def test_a_scanner_run_by_hand_has_the_store_and_the_lifespan(toril: Toril, url: str, folder: Path) -> None:
    (folder / "scanned.py").write_text(APP)

    told = toril("scan", "scanned:app", "stale")

    assert "2 found, 2 reset" in told.stdout
    assert on(url, lambda app: app.queue("again").counts()).waiting == 2


def test_the_app_of_a_scanner_is_named_as_for_other_commands(
    toril: Toril, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "scanned.py").write_text(APP)

    nobody = toril("scan", "stale", code=2).stderr
    twice = toril("scan", "scanned:app", "stale", "-A", "scanned:app", code=2).stderr
    by_option = toril("scan", "stale", "--dry-run", "-A", "scanned:app").stdout
    monkeypatch.setenv("TORIL_APP", "scanned:app")
    by_variable = toril("scan", "stale", "--dry-run").stdout
    monkeypatch.setenv("TORIL_APP", "other:app")
    by_argument = toril("scan", "scanned:app", "stale", "--dry-run").stdout

    assert "no app is given: put MODULE:APP" in nobody
    assert "the app is given twice" in twice
    assert by_option == by_variable == by_argument
    assert by_option == "2 would be reset (dry run)\n"


def test_a_scanner_run_by_hand_says_by_its_code_that_some_failed(toril: Toril, url: str, folder: Path) -> None:
    (folder / "scanned.py").write_text(APP)

    told = toril("scan", "scanned:app", "broken", code=1)

    assert "2 found, 2 failed" in told.stdout
    assert "'one': ConnectionError: away" in told.stderr
    toril("scan", "scanned:app", "broken", "--dry-run")
