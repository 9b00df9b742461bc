"""Runs django-tasks as jobs, and closes database connections around each job."""

import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial, wraps
from importlib.util import find_spec
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone
from django_tasks import DEFAULT_TASK_QUEUE_NAME, task_backends
from django_tasks.base import Task, TaskContext, TaskResult, TaskResultStatus
from django_tasks.exceptions import TaskResultDoesNotExist
from django_tasks.signals import task_finished, task_started
from django_tasks.utils import get_exception_traceback, get_module_path, normalize_json

from toril.app import App
from toril.context import SyncJobContext
from toril.errors import JobCancelled, LeaseLost, RateLimited, Resting, Snooze, TorilError
from toril.events import JobEvent
from toril.integrations.django.backend import TorilBackend, task_named
from toril.policy.redaction import redacted

__all__ = ["run_tasks", "serve", "worker_id"]


def serve(app: App) -> App:
    """Let this process run the project's tasks too, and close database connections around each job, in the thread that
    used them, as Django does around a request."""
    if find_spec("django_tasks") is not None and hasattr(settings, "TASKS"):
        run_tasks(app)
    for queue in app.queues.values():
        queue.handlers.around_threads(_closing)

    async def on_the_loop(ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Close connections around a coroutine's attempt; its queries run in asgiref's one thread."""
        entry = app.queues[ctx.queue_name].handlers.find(ctx.job_name)
        if entry is None or entry.handler.runs_in != "loop":
            return await call_next(ctx)
        await sync_to_async(close_old_connections)()
        try:
            return await call_next(ctx)
        finally:
            await sync_to_async(close_old_connections)()

    app.middleware(on_the_loop)
    return app


def worker_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


def _closing(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(fn)
    def called(ctx: Any) -> Any:
        close_old_connections()
        try:
            return fn(ctx)
        finally:
            close_old_connections()

    return called


_NAME: Final = "django-task"  # the handler's name; jobs have the names of their tasks
_NO_ERROR: Final = (Snooze, RateLimited, Resting, JobCancelled, LeaseLost)
_NOTED: Final = 10  # errors kept per task
_LONGEST: Final = 10_000  # characters kept of each error


def run_tasks(app: App) -> None:
    """Serve the queues of all Toril backends."""
    for backend in task_backends.all():
        if isinstance(backend, TorilBackend):
            # A backend without queues of its own accepts tasks for any queue.
            names = backend.queues or {DEFAULT_TASK_QUEUE_NAME, *app.queues}
            fresh = frozenset(name for name in names if _NAME not in app.queue(name).handlers)
            for name in fresh:
                app.queue(name).handlers.otherwise(_NAME, partial(_run, backend))
            app.on("failed", partial(_failed, app, backend, fresh))


def _run(backend: TorilBackend, ctx: SyncJobContext[Any]) -> Any:
    task = task_named(ctx.job_name)
    result = _running(backend, task, ctx)
    task_started.send(type(backend), task_result=result)
    first = [TaskContext(task_result=result)] if task.takes_context else []
    try:
        value = normalize_json(task.call(*first, *result.args, **result.kwargs))
    except BaseException as error:
        if not isinstance(error, _NO_ERROR):
            _note(ctx, error)
        raise
    ended = {"status": TaskResultStatus.SUCCESSFUL, "finished_at": timezone.now(), "_return_value": value}
    for name, known in ended.items():
        object.__setattr__(result, name, known)  # it is frozen for users
    task_finished.send(type(backend), task_result=result)
    return value


def _running(backend: TorilBackend, task: Task[Any, Any], ctx: SyncJobContext[Any]) -> TaskResult[Any]:
    now = timezone.now()
    return TaskResult(
        task=task.using(queue_name=ctx.queue_name),
        id=f"{ctx.queue_name}:{ctx.job_id}",
        backend=backend.alias,
        status=TaskResultStatus.RUNNING,
        enqueued_at=None,
        started_at=now,
        finished_at=None,
        last_attempted_at=now,
        args=ctx.data["args"],
        kwargs=ctx.data["kwargs"],
        errors=[],
        worker_ids=[worker_id()] * ctx.attempt,
    )


def _note(ctx: SyncJobContext[Any], error: BaseException) -> None:
    """Note an error where `get_result` finds it: the store keeps only its name, and tasks show its whole path."""
    trace = redacted(get_exception_traceback(error))[-_LONGEST:]
    with suppress(TorilError):
        ctx.checkpoint([*(ctx.last_checkpoint or []), (get_module_path(type(error)), trace)][-_NOTED:])


async def _failed(app: App, backend: TorilBackend, queues: frozenset[str], event: JobEvent) -> None:
    """Whether an error was the last one is known once the store has said so."""
    entry = app.queues[event.queue].handlers.find(event.job_name) if event.queue in queues else None
    if entry is not None and entry.name == _NAME:
        with suppress(TaskResultDoesNotExist):
            result = await backend.aget_result(f"{event.queue}:{event.job_id}")
            await sync_to_async(task_finished.send)(type(backend), task_result=result)
