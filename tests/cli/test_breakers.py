"""The commands for circuit breakers."""

import pytest

from tests.cli.conftest import Toril, documents, on
from toril import App


def made(url: str) -> None:
    async def make(app: App) -> None:
        await app.queue("q").add("n")

    on(url, make)


@pytest.mark.covers("R226")
def test_one_is_tripped_seen_and_reset(toril: Toril, url: str) -> None:
    made(url)
    assert toril("breakers").output == "All circuits are closed.\n"

    assert (
        "api.example.com is open; the next probe is due in"
        in toril("breakers", "trip", "api.example.com", "--for", "10m").output
    )
    assert "open" in toril("breakers").output
    (found,) = documents(toril("breakers", "--json").stdout)
    assert (found["key"], found["state"]) == ("api.example.com", "open")
    assert found["till"] - found["since"] == 600_000
    assert toril("breakers", "reset", "api.example.com").output == "api.example.com is closed.\n"
    assert toril("breakers", "reset", "api.example.com").output == "api.example.com was already closed.\n"


def test_an_odd_key_is_refused(toril: Toril, url: str) -> None:
    made(url)

    assert "key" in toril("breakers", "trip", "a\nb", code=2).output
