"""Every name of Toril's API that a page mentions exists."""

import builtins
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from toril.app import App
from toril.context import JobContext
from toril.job import Job
from toril.queue import Queue
from toril.task import Task
from toril.testing.memory import Memory

ROOT = Path(__file__).parents[2]
LISTS = {"capabilities.md", "cli.md", "performance.md", "reliability.md"}  # generated, or not about names
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in LISTS)]
FENCE = re.compile(r"^```\w*\n.*?^```$", re.MULTILINE | re.DOTALL)
SOURCE = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
CLASSES = set(re.findall(r"^ *class (\w+)", SOURCE, re.MULTILINE))
OWNERS = {"app": App, "queue": Queue, "job": Job, "task": Task, "ctx": JobContext, "test": Memory}
ATTRIBUTES = {
    name: set(re.findall(r"self\.(\w+)", inspect.getsource(owner))) | set(dir(owner)) for name, owner in OWNERS.items()
}

# Words in the form of a class: of BullMQ, other queues, libraries, HTTP, systemd and JSON.
FOREIGN = {
    "AsyncConnection", "AsyncResult", "AsyncSession", "CancelledError", "ConcurrentRateLimiter", "CronScheduler",
    "DelayedError", "Duration", "Enter", "FlowProducer", "Forwarded", "Infinity", "ModelRetry", "Outside",
    "QueueEvents", "RateLimitError", "Session", "StubBroker", "TimeoutStopSec", "ToolFailed", "UnrecoverableError",
    "ValidationError", "Via", "WindowRateLimiter",
}  # fmt: skip


def complaints(text: str, *, of_others: bool = False) -> Iterator[str]:
    """The names in a page's sentences, between backticks, that are nowhere."""
    for span in re.findall(r"`([^`\n]+)`", FENCE.sub("", text)):
        for name in re.findall(r"(?<![\w-])([A-Z][a-z]+[A-Za-z]*[a-z])(?=$|[(.\[])", span):
            if name not in CLASSES | FOREIGN and not hasattr(builtins, name):
                yield f"{name} in `{span}`"
        for owner, name in re.findall(r"(?<![\w./])(app|queue|job|task|ctx|test)\.([a-z_]+)\b(?!…)", span):
            if name not in ATTRIBUTES[owner] and not of_others:
                yield f"{owner}.{name} in `{span}`"
        for name in re.findall(r"(?<![\w/])(toril(?:\.\w+)+)(?![\w.])", span):
            if name != "toril.db" and not is_importable(name) and f'"{name}"' not in SOURCE:
                yield f"{name} in `{span}`"


def is_importable(name: str) -> bool:
    above, _, last = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(above), last) or bool(importlib.import_module(name))
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_names_that_a_page_mentions_exist(page: Path) -> None:
    assert list(complaints(page.read_text("utf-8"), of_others=page.name.startswith("from-"))) == []


@pytest.mark.parametrize(
    "text",
    ["Use `Asked(decide)`.", "Call `await queue.rescue(id)`.", "Import `toril.webhook.Webhook`.", "`LetterFilter`"],
)
def test_a_name_that_does_not_exist_is_found(text: str) -> None:
    assert len(list(complaints(text))) == 1
