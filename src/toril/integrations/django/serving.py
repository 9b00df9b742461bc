"""An app made ready to work in a Django project: tasks are run, and database connections do not outlive their use."""

import os
import socket
from collections.abc import Awaitable, Callable
from functools import wraps
from importlib.util import find_spec
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import close_old_connections

from toril.app import App

__all__ = ["serve", "worker_id"]


def serve(app: App) -> App:
    """Have this process run the tasks of the project too, and close connections around each job, in the thread that has
    used them, as Django does around a request."""
    if find_spec("django_tasks") is not None and hasattr(settings, "TASKS"):
        from toril.integrations.django.tasks import run_tasks  # noqa: PLC0415 - it needs django-tasks

        run_tasks(app)
    for queue in app.queues.values():
        queue.handlers.around_threads(_closing)

    async def on_the_loop(ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """A coroutine's queries run in the one thread that asgiref has for them."""
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
