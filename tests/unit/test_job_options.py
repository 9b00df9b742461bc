"""The options of a job: every place that lists them has all of `JobOptions`, or says here which it leaves out."""

import inspect
import json
from collections.abc import Collection
from dataclasses import fields

import pytest

from tests.conformance.jobs import EVERY_OPTION
from toril import Queue
from toril.cli.add import add
from toril.client import options
from toril.client.options import AddOptions, WaitOptions
from toril.codec.new_jobs import dump_new_job, load_new_job, made, said
from toril.engines.redis.options import dump_options, load_options
from toril.engines.sql import options as sql
from toril.model import JobOptions, NewJob
from toril.model.durations import milliseconds
from toril.records import DeadLetter, JobRecord
from toril.task import Task
from toril.testing.memory import DURATIONS
from toril.testing.memory import OPTIONS as OF_ADDED_JOBS
from toril.web.api.jobs import AddForm
from toril.web.api.schedules import ScheduleForm

DECLARED = {field.name for field in fields(JobOptions)}
BULLMQ = "keep_logs"  # only BullMQ's producers set it
SHORT = {BULLMQ, "backoff", "keep_completed", "keep_failed", "result_ttl", "breaker", "subject"}

# Each place: what it lists, and what it leaves out on purpose. A new option that is in neither has been forgotten.
PLACES: dict[str, tuple[Collection[str], set[str]]] = {
    "AddOptions": (AddOptions.__annotations__, {BULLMQ}),
    "WaitOptions": (WaitOptions.__annotations__, {BULLMQ, "timeout"}),  # there, timeout is how long the caller waits
    "client/options.py: _READ": (options._READ, {BULLMQ, "backoff"}),  # backoff is read together with attempts
    "JobRecord": ([field.name for field in fields(JobRecord)], set()),
    "DeadLetter": ([field.name for field in fields(DeadLetter)], {"keep_failed"}),  # it is kept until it is replayed
    "testing.added": (OF_ADDED_JOBS, set()),
    "toril add": ([each.name or "" for each in add.params], {BULLMQ, "backoff", "breaker", "subject"}),
    "AddForm": (AddForm.model_fields, SHORT),
    "ScheduleForm": (ScheduleForm.model_fields, SHORT),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_lists_options_has_all_or_says_which_not(place: str) -> None:
    listed, left_out = PLACES[place]

    assert DECLARED - set(listed) == left_out


@pytest.mark.parametrize("function", [Queue.add, Task.add], ids=["Queue.add", "Task.add"])
def test_the_docstring_of_an_add_explains_every_option(function: object) -> None:
    text = inspect.getdoc(function) or ""

    assert [name for name in AddOptions.__annotations__ if f"\n    {name}: " not in text] == []


def test_an_option_that_is_read_as_a_time_is_a_time_in_test_memories() -> None:
    times = {name for name, read in options._READ.items() if getattr(read, "func", None) is milliseconds}

    assert times
    assert times <= set(DURATIONS)


def test_a_text_of_options_has_every_option() -> None:
    text = json.dumps(said(EVERY_OPTION))

    assert json.loads(text).keys() == DECLARED
    assert made(JobOptions, json.loads(text)) == EVERY_OPTION


def test_a_text_of_a_new_job_has_every_option() -> None:
    job = NewJob(name="n", data="1", options=EVERY_OPTION)

    assert json.loads(dump_new_job(job)).keys() >= DECLARED
    assert load_new_job(dump_new_job(job)) == job


def test_the_options_of_sql_have_every_option() -> None:
    text = sql.dump_options(sql.StoredOptions(options=EVERY_OPTION))

    assert sql.load_options(text).options == EVERY_OPTION


def test_the_options_of_redis_have_every_option() -> None:
    text = dump_options(NewJob(name="n", data="1", options=EVERY_OPTION))

    assert load_options(text).options == EVERY_OPTION
