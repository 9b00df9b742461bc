"""The commands find jobs, and show of them what the app's own rule lets be seen."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Toril, on
from toril import App

RULE = """
def rule(value, sight):
    return {**value, "iban": "(an account)"} if sight.part == "data" else value
"""


def test_a_rule_that_is_named_in_the_environment_is_kept(
    toril: Toril, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "rules.py").write_text(RULE)
    monkeypatch.setenv("TORIL_REDACT", "rules:rule")

    async def work(app: App) -> Any:
        queue = app.queue("pay")
        await queue.add("other", {"iban": "DE12"})
        return await queue.add("pay", {"iban": "DE89", "shop": 7})

    job = on(url, work)
    listed = toril("jobs", "pay", "--key", "shop=7").output
    shown = toril("job", "show", "pay", job.id, "--json").output
    found = toril("jobs", "pay", "--search", "DE89", "--json").output

    assert "(an account)" in listed
    assert len(listed.splitlines()) == 2
    assert "(an account)" in shown
    assert "DE89" not in listed + shown
    assert '"id"' not in found


def test_a_rule_that_cannot_be_had_shows_nothing(toril: Toril, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORIL_REDACT", "nowhere:rule")

    async def work(app: App) -> Any:
        return await app.queue("pay").add("pay", {"iban": "DE89"})

    job = on(url, work)

    assert "DE89" not in toril("job", "show", "pay", job.id, "--json").output
