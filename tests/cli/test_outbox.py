"""`toril outbox`: the outbox of an application, from the shell."""

import sqlite3
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Fresh, Toril, documents, on
from toril import App

OUTBOX = "sqlite:///shop.db"


@pytest.fixture
def outbox(toril: Toril, folder: Path) -> Path:
    """One job waits, and a row that is none."""
    assert toril("outbox", "create", OUTBOX).stdout == "The outbox in sqlite:///shop.db is ready.\n"
    connection = sqlite3.connect("shop.db")
    app = App("memory://")
    app.queue("mail")
    app.outbox(connection).add("confirm", {"order": 7}, job_id="good")
    connection.execute("INSERT INTO toril_outbox (queue, job_id, request) VALUES ('mail', 'bad', '{')")
    connection.commit()
    connection.close()
    return folder


def test_what_waits_is_listed_handed_over_and_what_cannot_be_is_shown(toril: Toril, url: str, outbox: Path) -> None:
    before = documents(toril("outbox", "list", OUTBOX, "--json").stdout)
    told = toril("outbox", "relay", OUTBOX, "--once", "--log-level", "error").stdout
    (left,) = documents(toril("outbox", "list", OUTBOX, "--refused", "--json").stdout)
    job = on(url, lambda app: app.queue("mail").job("good"))

    assert [(row["job_id"], row["state"]) for row in before] == [("good", "waiting"), ("bad", "waiting")]
    assert told == "Relayed 1 job.\n"
    assert (left["job_id"], left["state"], left["queue"]) == ("bad", "refused", "mail")
    assert "cannot read the stored job" in left["error"]
    assert job is not None
    assert job.data == {"order": 7}


def test_what_was_refused_is_tried_again_when_asked(toril: Toril, url: str, outbox: Path) -> None:
    toril("outbox", "relay", OUTBOX, "--once", "--log-level", "error")
    with sqlite3.connect("shop.db") as connection:
        connection.execute("""UPDATE toril_outbox SET request = '{"name": "n", "id": "mended"}'""")
    connection.close()

    assert "refused" in toril("outbox", "list", OUTBOX).stdout
    assert toril("outbox", "retry", OUTBOX, "2").stdout == "1 row will be retried.\n"
    assert "there is no refused row 2" in toril("outbox", "retry", OUTBOX, "2", code=1).stderr
    assert toril("outbox", "relay", OUTBOX, "--once").stdout == "Relayed 1 job.\n"
    assert "The outbox is empty." in toril("outbox", "list", OUTBOX).stderr


def test_what_is_no_outbox_is_said_in_a_line(toril: Toril, folder: Path) -> None:
    assert "unable to open" in toril("outbox", "list", "sqlite:///none.db", code=1).stderr
    (folder / "empty.db").touch()
    assert "toril outbox create URL" in toril("outbox", "list", "sqlite:///empty.db", code=1).stderr
    assert "must be postgresql://" in toril("outbox", "list", "mysql://host/db", code=2).stderr
    assert not (folder / "none.db").exists()


def test_a_relay_is_a_process_that_ends_by_a_signal(toril: Toril, fresh: Fresh, url: str, outbox: Path) -> None:
    process = fresh("outbox", "relay", OUTBOX)
    try:
        until = time.monotonic() + 120
        while len(documents(toril("outbox", "list", OUTBOX, "--json").stdout)) != 1:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=120)

    assert process.returncode == 0, errors
    assert on(url, lambda app: app.queue("mail").job("good")) is not None
