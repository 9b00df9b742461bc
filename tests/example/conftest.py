"""A helpdesk whose database is empty, and whose outside world does what the test says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpdesk import database, mailboxes
from helpdesk.fake_api import FakeApi


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """The outside world, well behaved until told otherwise."""
    with FakeApi() as served:
        monkeypatch.setenv("HELPDESK_API", served.url)
        monkeypatch.setenv("HELPDESK_DATABASE", str(tmp_path / "helpdesk.db"))
        monkeypatch.delenv("HELPDESK_MODE", raising=False)
        for pause in ("COOL_DOWN", "INTERVAL"):  # these go by the system's clock: a slow machine must not reach them
            monkeypatch.setattr(mailboxes, pause, 86_400)
        database.prepare()
        yield served
