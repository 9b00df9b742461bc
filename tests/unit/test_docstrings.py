"""An editor's hover explains each option: the docstrings of calls with many options have all of them, and no others."""

import inspect
import re
from typing import Any

import pytest

from toril import (
    AddOptions,
    App,
    Breaker,
    Dedup,
    Exponential,
    Fixed,
    Flow,
    GroupLimits,
    Keep,
    Queue,
    RateLimit,
    Retry,
    Strategy,
    SyncQueue,
    SyncTask,
    Task,
    handler,
)
from toril.alerts import AlertRules
from toril.operate.dead_letters import DeadLetters
from toril.schedule import Timing

JOB = list(AddOptions.__annotations__)
TIMES = [name for name in Timing.__annotations__ if name not in JOB]
EXPLAINED: dict[str, tuple[Any, list[str]]] = {
    "App": (App, []), "App.queue": (App.queue, []), "App.run": (App.run, []), "App.reap": (App.reap, []),
    "App.poller": (App.poller, []), "App.flow": (App.flow, []), "App.scanner": (App.scanner, []),
    "AppDeadLetters.replay": (DeadLetters.replay, []), "handler": (handler, []),
    "Queue.add": (Queue.add, JOB), "Task.add": (Task.add, JOB), "SyncQueue.add": (SyncQueue.add, JOB),
    "SyncTask.add": (SyncTask.add, JOB), "Queue.schedule": (Queue.schedule, [*TIMES, "options"]),
    "Task.schedule": (Task.schedule, [*TIMES, "options"]),
    **{kind.__name__: (kind, []) for kind in (
        Retry, Fixed, Exponential, Strategy, Breaker, RateLimit, GroupLimits, Dedup, Keep, AlertRules, Flow,
    )},
}  # fmt: skip


def explained(called: Any) -> dict[str, str]:
    """The names in the section `Args` of a docstring, each with what is said of it."""
    text = inspect.getdoc(called) or ""
    _, found, section = text.partition("\nArgs:\n")
    assert found, f"{called} has no Args"
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: " ".join(said.split()) for name, said in entries}


@pytest.mark.parametrize("name", EXPLAINED)
def test_every_option_is_explained(name: str) -> None:
    called, options = EXPLAINED[name]
    parameters = [
        each.name
        for each in inspect.signature(called).parameters.values()
        if each.name != "self" and each.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    found = explained(called)

    assert sorted(found) == sorted([*parameters, *options])
    for option, said in found.items():
        assert said.endswith("."), f"{option}: {said}"


def test_an_option_is_explained_in_the_same_words_wherever_it_can_be_given() -> None:
    of_queue, of_task = explained(Queue.add), explained(Task.add)
    assert {name: of_queue[name] for name in JOB} == {name: of_task[name] for name in JOB}
    of_queue, of_task = explained(Queue.schedule), explained(Task.schedule)
    assert {name: of_queue[name] for name in TIMES} == {name: of_task[name] for name in TIMES}


def test_the_text_at_job_id_says_how_far_it_protects() -> None:
    assert "While a job of that id exists" in explained(Task.add)["job_id"]
