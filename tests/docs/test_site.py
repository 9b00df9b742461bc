"""The documentation as a site: it builds without a warning, fetches nothing, and its reference is what the code is."""

import inspect
import os
import re
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
import yaml  # type: ignore[import-untyped]
from tools import assistants, commands

import toril
from toril import Breaker, Dedup, Exponential, GroupLimits, RateLimit, Retry, State, handler
from toril.alerts import AlertRules
from toril.app import App
from toril.cli.main import Commands
from toril.client.options import AddOptions
from toril.schedule import Timing

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_site_builds_strictly_and_fetches_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]

    fetched = re.compile(
        r"<(?:script|img|iframe)[^>]+src=[\"']?https?:|<link[^>]+rel=[\"']?(?:stylesheet|preconnect)[^>]+https?:"
    )
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    assert [page.name for page in pages if fetched.search(page.read_text("utf-8"))] == []
    reference = re.sub(r"<[^>]+>", "", (tmp_path / "api.html").read_text("utf-8"))
    assert "Takes the options of add and raises what Job.result raises." in reference
    assert re.search(r"App\(\s*url: str \| None = None", reference), "constructors are shown"
    assert "Wait this long before starting the job." in reference, "and what each option is for"
    assert not re.search(r"Bases:|\bFailing\b|\bFlowing\b", reference), "and no private bases"
    linked = re.findall(r"\]\((\S+)\)", (tmp_path / "llms.txt").read_text("utf-8"))
    assert len(linked) > 40
    assert [file for file in linked if not (tmp_path / file).exists()] == []
    assert (tmp_path / "llms-full.txt").read_text("utf-8") == assistants.full()


def test_assistants_find_every_page_but_evidence_in_one_file() -> None:
    listed = {file for pages in assistants.sections().values() for _, file in pages}
    whole = assistants.full()

    left_out = {"performance.md", "reliability.md", "capabilities.md", "architecture.md", "vocabulary.md"}
    assert {page.name for page in DOCS.glob("*.md")} - listed == left_out
    indexed = re.findall(r"^- \[[^\]]+\]\((\S+\.md)\)", assistants.index(), re.MULTILINE)
    assert re.findall(r"^<!-- (\S+\.md) -->$", whole, re.MULTILINE) == indexed
    assert "#### `add_many(jobs: " in whole, "the reference is there"
    assert "Values: `waiting`, `prioritized`, `active`" in whole, "with the values of its enumerations"
    assert ":::" not in whole, "and nothing of it is left for the site to fill in"


def test_the_reference_has_every_name_that_can_be_imported() -> None:
    page = (DOCS / "api.md").read_text("utf-8")
    shown = set(re.findall(r"^::: [\w.]*?(\w+)$", page, re.MULTILINE))
    for module, members in re.findall(r"^::: ([\w.]+)\n    options:\n      members: \[([^\]]+)\]", page, re.MULTILINE):
        names = members.split(", ")
        assert [name for name in names if not hasattr(import_module(module), name)] == [], module
        shown.update(names)
    said = {"Duration", "SyncJob", "SyncQueue", "SyncTask"}

    assert all(f"`{name}`" in page for name in said)
    assert set(toril.__all__) - shown - said == {"__version__"}


def test_the_page_of_commands_is_what_the_commands_are() -> None:
    assert commands.PAGE.read_text("utf-8") == commands.page(), "run  make reference"


def snippet(page: str, language: str, having: str) -> str:
    found: list[str] = re.findall(
        rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    return next(each for each in found if having in each)


@pytest.mark.covers("R253")
def test_the_concurrency_map_of_the_guide_is_what_its_queues_reach() -> None:
    ran: dict[str, Any] = {"__name__": "guide"}

    exec(compile(snippet("workers.md", "python", "CONCURRENCY ="), "workers.md", "exec"), ran)  # noqa: S102 - ours

    assert Counter(ran["CONCURRENCY"].values()) == {1: 9, 2: 1, 3: 1, 5: 4, 10: 4}
    assert dict(ran["most"]) == ran["CONCURRENCY"]


@pytest.mark.covers("R259")
def test_the_fleet_of_the_guide_is_made_of_commands_that_are_there() -> None:
    services = yaml.safe_load(snippet("production.md", "yaml", "services:"))["services"]

    assert services["redis"]["image"] == "redis:7"
    assert [services[name]["deploy"]["replicas"] for name in ("worker", "reaper")] == [3, 2]
    calls = [
        services["worker"]["command"],
        services["reaper"]["command"],
        " ".join(services["worker"]["healthcheck"]["test"][1:]),
    ]
    pods = yaml.safe_load(snippet("production.md", "yaml", "kind: Deployment"))["spec"]["template"]["spec"]
    calls.append(" ".join(pods["containers"][0]["args"]))
    calls.append(snippet("production.md", "ini", "ExecStart").partition("bin/")[2].partition("\n")[0])
    group = Commands(name="toril")
    for call in calls:
        tool, name, *arguments = call.split()
        found = group.get_command(click.Context(group), name)
        assert (tool, found is not None) == ("toril", True), call
        assert found is not None
        found.make_context(name, arguments)  # refuses what it does not know


def test_the_drawing_has_every_state() -> None:
    texts = {node.text for node in ElementTree.parse(DOCS / "states.svg").iter("{http://www.w3.org/2000/svg}text")}

    assert {str(state) for state in State} <= texts


def table(heading: str) -> dict[str, str]:
    """Of a section of the settings: each option, with its default."""
    text = (DOCS / "settings.md").read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]
    return {name.strip("` "): row[1].strip("`") for row in rows for name in row[0].split(",")}


def defaults(signed: Any, *, without: tuple[str, ...] = ()) -> dict[str, str]:
    return {
        name: repr(parameter.default)
        for name, parameter in inspect.signature(signed).parameters.items()
        if name not in {"self", *without}
    }


@pytest.mark.covers("R266")
@pytest.mark.parametrize(
    ("heading", "signed", "without"),
    [
        ("Queue", App.queue, ("name", "retry")),
        ("Handler", handler, ("fn",)),
        ("A worker in a program", App.run, ()),
        ("A reaper", App.reap, ()),
        ("App", App.__init__, ("clock",)),
    ],
)
def test_the_settings_have_every_option_with_its_default(heading: str, signed: Any, without: tuple[str, ...]) -> None:
    stated = {name: value for name, value in table(heading).items() if name not in without}

    assert stated == defaults(signed, without=without)


def test_the_settings_have_every_option_of_a_job_and_of_a_schedule() -> None:
    timing = set(Timing.__annotations__) - set(AddOptions.__annotations__)

    assert set(table("Job")) == set(AddOptions.__annotations__)
    assert set(table("Schedule")) == timing


@pytest.mark.parametrize(
    ("heading", "kinds"),
    [
        ("Retry and backoff", [Retry, Exponential]),
        ("Limits, circuits, alerts", [RateLimit, GroupLimits, Dedup, Breaker, AlertRules]),
    ],
)
def test_the_settings_have_every_option_of_what_is_given_as_one(heading: str, kinds: list[Any]) -> None:
    stated = table(heading)
    said = {"Exponential(1)": repr(Exponential(1))}
    actual = {
        f"{kind.__name__}.{name}": value
        for kind in kinds
        for name, value in defaults(kind, without=("max", "seconds", "key", "kinds")).items()
    }

    assert {name: said.get(value, value) for name, value in stated.items()} == actual
