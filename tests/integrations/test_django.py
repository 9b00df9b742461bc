"""Django: a project as a user starts it, tasks as jobs, and transactions and connections as Django has them."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connections, transaction
from django.test import override_settings
from django.utils import timezone
from django_tasks import default_task_backend
from django_tasks.base import TaskResultStatus
from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
from django_tasks.signals import task_enqueued, task_finished, task_started

from tests.integrations import tasks
from tests.integrations.programs import EXAMPLES, answer, started, until
from toril import App, Fixed, JobContext, Queue, Retry, State, SyncJobContext
from toril.integrations.django import get_app, on_commit
from toril.integrations.django.backend import priority_of
from toril.integrations.django.tasks import serve

FOLDER = EXAMPLES / "django_shop"
TASKS = {"BACKEND": "toril.integrations.django.backend.TorilBackend", "QUEUES": ["default", "mail"]}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """The app of this test's settings."""
    with override_settings(TORIL={"URL": f"sqlite:///{tmp_path / 'jobs.db'}"}):
        app = get_app()
        app.queue("default", retry=Retry(2, Fixed(0)))
        yield app
        app.portal().close()
        connections.close_all()
        tasks.used.clear()


def worked(app: App) -> None:
    """Everything that is due, in a worker of this process."""
    asyncio.run(serve(app).run(burst=True))


# the project


def managed(folder: Path, log: str, *words: str) -> Any:
    return started(FOLDER, folder / log, "python", "manage.py", *words, SHOP_FOLDER=str(folder))


@pytest.mark.covers("R170")
def test_the_example_takes_orders_and_a_worker_packs_them(tmp_path: Path) -> None:
    with managed(tmp_path, "migrate.log", "migrate") as migrate:
        migrate.said(r"Applying (shop.0001_initial)... OK")
        assert migrate.wait() == 0
    with (
        managed(tmp_path, "web.log", "runserver", "--noreload", "127.0.0.1:0") as site,
        managed(tmp_path, "worker.log", "toril", "run", "--no-http") as worker,
    ):
        base = site.said(r"development server at (http://\S+?)/\s")
        refused = answer("POST", f"{base}/orders/13/")
        taken = answer("POST", f"{base}/orders/17/")
        until(lambda: answer("GET", f"{base}/orders/17/").json()["packed"] or None, lambda: worker.output)
        result = answer("POST", f"{base}/orders/17/receipt/").json()["result"]

        def written() -> Any:
            told = answer("GET", f"{base}/receipts/{result}/").json()
            return told if told["text"] else None

        receipt = until(written, lambda: worker.output)
        unknown = answer("GET", f"{base}/receipts/default:none/")
        without = answer("POST", f"{base}/orders/99/receipt/").json()["result"]

        def refused_too() -> Any:
            told = answer("GET", f"{base}/receipts/{without}/")
            return told if told.status_code != 200 else None

        failed = until(refused_too, lambda: worker.output)
    store = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    figures = store.queue("orders").sync.metrics()
    store.portal().close()

    assert (refused.status_code, taken.status_code) == (400, 202)
    assert receipt == {"status": "SUCCESSFUL", "text": "order 17: packed"}
    assert (unknown.status_code, unknown.json()) == (404, {"error": "there is no such receipt"})
    assert (failed.status_code, failed.json()) == (409, {"status": "FAILED", "text": None})
    assert (figures.completed, figures.failed) == (1, 0), "the order that was refused has no job"


# settings and command


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"APP": "tests.integrations.nowhere.app"}, "cannot be imported"),
        ({"APP": "tests.integrations.tasks.double"}, "must be a toril.App"),
        ({"APP": "shop.jobs.app", "URL": "memory://"}, "has its own store"),
        ({"STORE": "memory://"}, "must be a mapping with the keys APP, PREFIX, URL"),
        ("memory://", "must be a mapping with the keys APP, PREFIX, URL"),
    ],
)
def test_settings_that_make_no_sense_are_told_of(given: Any, told: str) -> None:
    with override_settings(TORIL=given), pytest.raises(ImproperlyConfigured, match=told):
        get_app()


def test_the_command_works_on_the_store_of_the_settings(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TORIL_APP", "TORIL_URL", "TORIL_PREFIX", "PYTHONPATH"):
        monkeypatch.setenv(name, "")  # what the command sets ends with the test
    with override_settings(TORIL={"URL": f"sqlite:///{tmp_path / 'jobs.db'}", "PREFIX": "mine"}):
        get_app().queue("mail").sync.add("send")
        get_app().portal().close()

        call_command("toril", "queues")
        with pytest.raises(SystemExit) as ended:
            call_command("toril", "jobs", "nothing")

    said = capfd.readouterr()
    assert "mail" in said.out
    assert "there is no queue 'nothing'" in said.err
    assert ended.value.code == 1


# transactions


def greet(ctx: SyncJobContext[str]) -> str:
    return f"hello {ctx.data}"


@pytest.fixture
def greetings(app: App) -> Queue:
    return app.queue("greetings", [greet])


def test_a_job_is_added_when_its_transaction_commits(greetings: Queue) -> None:
    with transaction.atomic():
        on_commit(greetings, greet, "ada")
        within = greetings.sync.counts().waiting

    assert (within, greetings.sync.counts().waiting) == (0, 1)


def test_a_job_is_dropped_with_its_transaction(greetings: Queue) -> None:
    with transaction.atomic():
        on_commit(greetings, greet, "ada")
        transaction.set_rollback(True)
    on_commit(greetings, greet, "bob")  # there is no transaction: at once

    assert [job.data for job in greetings.sync.jobs("waiting")] == ["bob"]


def test_a_job_that_cannot_be_added_is_refused_within_the_transaction(greetings: Queue) -> None:
    with transaction.atomic(), pytest.raises(TypeError, match="'prioriti' is not a job option"):
        on_commit(greetings, greet, "ada", prioriti=1)  # type: ignore[call-arg]


# tasks


def test_a_task_runs_and_its_result_is_found(app: App) -> None:
    result = tasks.double.enqueue(4, plus=1)
    before = result.status
    worked(app)
    result.refresh()

    assert (before, result.status, result.return_value, result.attempts) == ("READY", "SUCCESSFUL", 9, 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert (result.args, result.kwargs, result.task.func) == ([4], {"plus": 1}, tasks.double.func)
    with pytest.raises(TaskResultMismatch):
        tasks.look.get_result(result.id)


def test_a_coroutine_runs_too_and_is_enqueued_from_coroutines(app: App) -> None:
    result = asyncio.run(tasks.send.aenqueue("ada"))
    worked(app)

    assert asyncio.run(tasks.send.aget_result(result.id)).return_value == {"sent": "ada"}


def test_a_task_is_told_who_it_is(app: App) -> None:
    result = tasks.which.enqueue()
    worked(app)
    result.refresh()

    assert result.return_value == [1, result.id, True]


def test_a_task_that_fails_tells_each_of_its_errors(app: App) -> None:
    result, heard = tasks.fail.enqueue(3), list[Any]()

    def ended(task_result: Any, **_: Any) -> None:
        heard.append((task_result.id, task_result.status))

    task_finished.connect(ended)
    try:
        worked(app)
    finally:
        task_finished.disconnect(ended)
    result.refresh()

    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 2)
    assert [error.exception_class for error in result.errors] == [LookupError, LookupError]
    assert "password=***, 3" in result.errors[0].traceback
    assert heard == [(result.id, TaskResultStatus.FAILED)], "once, when it was final"
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_the_signals_of_a_task_come_in_their_order(app: App) -> None:
    heard: list[str] = []
    listeners: dict[Any, Callable[..., None]] = {
        signal: lambda task_result, **_: heard.append(task_result.status)
        for signal in (task_enqueued, task_started, task_finished)
    }
    for signal, listener in listeners.items():
        signal.connect(listener)
    try:
        tasks.double.enqueue(1)
        worked(app)
    finally:
        for signal, listener in listeners.items():
            signal.disconnect(listener)

    assert heard == ["READY", "RUNNING", "SUCCESSFUL"]


def test_a_higher_priority_goes_first_whatever_its_sign(app: App) -> None:
    results = [tasks.double.using(priority=priority).enqueue(priority) for priority in (-100, 0, 100, 1, -1)]
    waiting = [job.data["args"][0] for job in app.queue("default").sync.jobs("prioritized")]
    worked(app)
    for result in results:
        result.refresh()

    assert waiting == [100, 1, 0, -1, -100]
    ran = sorted(results, key=lambda result: (result.started_at, -result.task.priority))
    assert [default_task_backend.get_result(result.id).task.priority for result in ran] == waiting
    assert [priority_of(each) for each in (100, 0, -100)] == [1, 101, 201]


def test_a_task_waits_for_its_time(app: App) -> None:
    due = timezone.now() + timedelta(hours=1)
    result = tasks.double.using(run_after=due).enqueue(1)
    worked(app)
    result.refresh()
    (job,) = app.queue("default").sync.jobs("delayed")

    assert (result.status, result.attempts, result.task.run_after) == ("READY", 0, due)
    assert job.record is not None
    assert job.record.due is not None
    assert abs(job.record.due - due) < timedelta(milliseconds=1)


def test_a_task_waits_for_its_commit_if_the_settings_say_so(app: App) -> None:
    with override_settings(TASKS={"default": {**TASKS, "OPTIONS": {"ON_COMMIT": True, "ATTEMPTS": 5}}}):
        with transaction.atomic():
            result = tasks.double.enqueue(2)
            with pytest.raises(TaskResultDoesNotExist):
                default_task_backend.get_result(result.id)
        with transaction.atomic():
            tasks.double.enqueue(3)
            transaction.set_rollback(True)
        default_task_backend.get_result(result.id)

    (job,) = app.queue("default").sync.jobs(State.PRIORITIZED)
    assert job.record is not None
    assert (job.data["args"], job.record.max_attempts) == ([2], 5)


@pytest.mark.parametrize("asked", ["default:none", "elsewhere:none", "none", "", "a b:\n"])
def test_a_result_that_is_not_there_is_told_so(app: App, asked: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(asked)


@pytest.mark.parametrize("name", ["tests.integrations.tasks.plain", "tests.integrations.tasks.nothing", "os.system"])
def test_only_what_is_declared_as_a_task_is_run(app: App, name: str) -> None:
    job = app.queue("default").sync.add(name, {"args": [1], "kwargs": {}}, keep_failed=True)
    worked(app)

    assert job.state() is State.FAILED
    assert (job.refresh().error or "").startswith(("there is no task", f"{name!r} is not a task"))


def test_a_queue_of_tasks_runs_its_own_handlers_too(app: App) -> None:
    mail = app.queue("mail", [greet])
    own, result = mail.sync.add(greet, "ada", result_ttl=60), tasks.send.enqueue("bob")
    worked(app)
    result.refresh()

    assert (own.result(60), result.return_value) == ("hello ada", {"sent": "bob"})


# connections


def test_connections_are_closed_around_each_job_in_the_thread_that_used_them(app: App) -> None:
    def blocking(ctx: SyncJobContext[None]) -> int:
        return tasks.query()

    async def on_the_loop(ctx: JobContext[None]) -> int:
        return await sync_to_async(tasks.query)()

    mixed = app.queue("mixed", [blocking, on_the_loop])
    kept = [mixed.sync.add(each, result_ttl=60) for each in (blocking, on_the_loop)]
    result = tasks.look.enqueue()
    worked(app)
    result.refresh()

    assert [job.result(60) for job in kept] == [7, 7]
    assert result.return_value == 7
    assert len({id(each) for each in tasks.used}) == 3, "one each"
    assert [each.connection for each in tasks.used] == [None, None, None]
