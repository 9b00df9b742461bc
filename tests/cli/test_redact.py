"""The commands find jobs, and show of them what the app's own rule lets be seen."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Toril, documents, on
from toril import App, JobContext, PermanentError
from toril.operate.documents import of_letter
from toril.web.api.dead_letters import letter_document

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


SECRET = {"api_key": "sk-123", "deep": [{"password": "hunter2"}], "to": "ada"}


async def leaks(ctx: JobContext[Any]) -> Any:
    await ctx.log("login with password=hunter2")
    await ctx.update_progress({"token": "hunter2"})
    if ctx.job_id == "done":
        return {"secret": "hunter2", "sent": True}
    raise PermanentError("refused: password=hunter2")


def leaky(url: str) -> None:
    """Jobs that completed, that failed and are kept or not, one that waits, and a schedule: all with secrets."""

    async def work(app: App) -> None:
        queue = app.queue("pay", [leaks])
        await queue.add(leaks, SECRET, job_id="done", keep_completed=True)
        await queue.add(leaks, SECRET, job_id="kept", keep_failed=True)
        await queue.add(leaks, SECRET, job_id="dead")
        await app.run(burst=True)
        await queue.add(leaks, SECRET, job_id="next", metadata={"cookie": "hunter2"})
        await queue.schedules.put("daily", leaks, SECRET, cron="0 6 * * *")

    on(url, work)


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "pay"], ["jobs", "pay", "--runs"], ["jobs", "pay", "--state", "failed"],
        ["job", "show", "pay", "done"], ["job", "show", "pay", "kept"], ["job", "show", "pay", "dead"],
        ["job", "show", "pay", "next"],
        ["job", "why", "pay", "dead"], ["job", "why", "pay", "kept"], ["dlq", "list"], ["dlq", "show", "pay/dead"],
        ["events"], ["schedules", "show", "daily"], ["schedules", "list"],
    ],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("form", ["", "--json"])
def test_what_is_named_or_looks_like_a_secret_is_not_shown(toril: Toril, url: str, words: list[str], form: str) -> None:
    leaky(url)

    shown = toril(*words, *form.split()).output

    assert "hunter2" not in shown
    assert "sk-123" not in shown


def test_secrets_are_shown_when_they_are_asked_for(toril: Toril, url: str) -> None:
    leaky(url)

    (found,) = documents(toril("dlq", "show", "pay/dead", "--json", "--show-secrets").stdout)
    (listed,) = documents(toril("jobs", "pay", "--state", "waiting", "--json", "--show-secrets").stdout)

    assert found["data"] == listed["data"] == SECRET
    assert listed["metadata"] == {"cookie": "hunter2"}
    assert "hunter2" in toril("job", "show", "pay", "done", "--show-secrets").output


def test_a_dead_letter_is_shown_as_the_dashboard_shows_it(toril: Toril, url: str) -> None:
    leaky(url)

    async def as_the_dashboard(app: App) -> tuple[dict[str, Any], dict[str, Any]]:
        letter = await app.dead_letters.row("pay/dead")
        return letter_document(letter, app.redaction), of_letter(letter, app.redaction)

    expected, plain = on(url, as_the_dashboard)
    (shown,) = documents(toril("dlq", "show", "pay/dead", "--json").stdout)

    assert {name: shown[name] for name in ("data", "error", "metadata")} == {
        name: expected[name] for name in ("data", "error", "metadata")
    }
    assert plain["data"] == SECRET
    assert shown["data"] == {"api_key": "***", "deep": [{"password": "***"}], "to": "ada"}


def test_what_the_app_hides_stays_hidden_when_secrets_are_asked_for(
    toril: Toril, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "rules.py").write_text(RULE)
    monkeypatch.setenv("TORIL_REDACT", "rules:rule")
    job = on(url, lambda app: app.queue("pay").add("pay", {"iban": "DE89", "token": "t-1"}))

    (found,) = documents(toril("job", "show", "pay", job.id, "--json", "--show-secrets").stdout)

    assert found["data"] == {"iban": "(an account)", "token": "t-1"}
