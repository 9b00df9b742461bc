"""Databases with an outbox in them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outbox.places import Place
from tests.postgres import postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty outbox in each kind of database."""
    url = f"sqlite:///{tmp_path / 'app.db'}" if request.param == "sqlite" else postgres().database()
    place = Place(url)
    place.create()
    yield place
    place.close()
