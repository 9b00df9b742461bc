"""`--app MODULE:APP` and `$TORIL_APP`: the commands on the store of an app, with what the app knows of it."""

import sys
from pathlib import Path

import pytest

from tests import servers
from tests.cli.conftest import Toril, documents, every_command, on
from toril import App

SHOP = """
from dataclasses import dataclass
from toril import App, JobContext, RateLimit

print("hello from the module")

def redact(value, sight):
    return "(hidden)" if sight.part == "data" else value

@dataclass
class Order:
    number: int

async def pack_order(ctx: JobContext[Order]) -> None: ...

app = App({url!r}, prefix={prefix!r}, redact=redact)
app.queue("shop", [pack_order], keep_failed=10, rate_limit=RateLimit(1, per=60))
"""


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, folder: Path) -> str:
    """The store that the app has in its code, and nothing else names."""
    if request.param == "sqlite":
        prefix, url = "bull", f"sqlite:///{folder / 'shop.db'}"
    else:
        prefix, server = "mine", servers.running()
        server.tell("FLUSHALL")
        url = server.url
    (folder / "shop.py").write_text(SHOP.format(url=url, prefix=prefix))
    return url


def test_an_app_with_its_store_in_the_code_needs_no_url(toril: Toril, url: str) -> None:
    """Commands that look twice, once to ask and once to act, too."""
    added = toril("add", "-A", "shop:app", "shop", "pack_order", '{"number": 7}').stdout
    assert added == "Added job 1 (pack_order) to shop.\n"
    toril("add", "--app", "shop:app", "shop", "pack_order", '{"number": 8}', "--delay", "1h")

    (queue,) = documents(toril("queues", "-A", "shop:app", "--json").stdout)
    assert (queue["queue"], queue["waiting"], queue["delayed"]) == ("shop", 1, 1)
    assert toril("drain", "shop", "-A", "shop:app", "--yes").stdout == "Removed 1 job.\n"
    assert "Job 2 (pack_order) in shop was removed." in toril("job", "remove", "2", "-A", "shop:app", "--yes").stdout
    assert "No live workers" in toril("workers", "-A", "shop:app").stderr


def test_the_app_is_taken_from_the_environment(toril: Toril, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORIL_APP", "shop:app")
    monkeypatch.setenv("TORIL_URL", "sqlite:///elsewhere.db")  # the app has its own

    toril("add", "shop", "pack_order", '{"number": 7}')

    assert "shop" in toril("queues").stdout


def test_what_the_app_knows_is_used(toril: Toril, url: str) -> None:
    assert "number" in toril("add", "-A", "shop:app", "shop", "pack_order", '{"number": "x"}', code=2).stderr
    assert "pack_order" in toril("add", "-A", "shop:app", "shop", "pack_ordr", '{"number": 1}', code=2).stderr
    toril("add", "-A", "shop:app", "shop", "pack_order", '{"number": 7}')

    shown = toril("job", "show", "shop", "1", "-A", "shop:app", "--json").stdout

    assert documents(shown)[0]["data"] == "(hidden)", "by its own `redact`; and its module prints nothing here"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_store_that_is_named_wins_over_the_environment(
    toril: Toril, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORIL_APP", "shop:app")
    other = f"sqlite:///{folder / 'other.db'}"
    on(other, lambda app: app.queue("other").add("n"))

    (queue,) = documents(toril("queues", "--url", other, "--json").stdout)

    assert queue["queue"] == "other"
    assert "not both" in toril("queues", "--url", other, "-A", "shop:app", code=2).stderr
    assert "not both" in toril("queues", "--prefix", "mine", "-A", "shop:app", code=2).stderr
    for command in ("reaper", "dashboard"):
        assert "not both" in toril(command, "shop:app", "--url", other, code=2).stderr
        assert "not both" in toril(command, "shop:app", "-A", "shop:app", code=2).stderr


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_an_app_that_cannot_be_had_is_one_line(toril: Toril, url: str, folder: Path) -> None:
    (folder / "held.py").write_text("from toril import App\napp = App('memory://')\n")

    assert "did you mean 'shop'?" in toril("queues", "-A", "shpo:app", code=2).stderr
    assert "did you mean shop:app?" in toril("queues", "-A", "shop:ap", code=2).stderr
    assert "there is no store at sqlite:///" in toril("queues", "-A", "shop:app", code=1).stderr
    assert "memory://" in toril("queues", "-A", "held:app", code=2).stderr


def test_without_any_store_the_ways_to_name_one_are_told(toril: Toril, folder: Path) -> None:
    assert "use --app MODULE:APP or --url URL" in toril("queues", code=2).stderr


def test_every_command_that_takes_a_store_takes_an_app() -> None:
    own = {"toril torture", "toril bench"}  # they make a store, or need an empty one
    found = {path: {param.name for param in command.params} for path, command in every_command()}

    assert [path for path, names in found.items() if "url" in names and "app" not in names and path not in own] == []
    assert sum("app" in names for names in found.values()) > 30


def test_the_app_itself_is_closed_after_each_command(toril: Toril, url: str) -> None:
    toril("add", "-A", "shop:app", "shop", "pack_order", '{"number": 7}')

    app = sys.modules["shop"].app
    assert isinstance(app, App)
    assert app.services.users == 0
