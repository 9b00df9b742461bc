"""Tasks as a project has them, and the settings that they need. Importing this sets Django up for the test process."""

import atexit
import tempfile
import threading
from typing import Any

import django
from django.conf import settings
from django.db import connection, connections

_folder = tempfile.TemporaryDirectory(prefix="toril-django-")  # in memory, a connection is never closed
atexit.register(_folder.cleanup)
settings.configure(
    USE_TZ=True,
    TIME_ZONE="UTC",
    LOGGING_CONFIG=None,  # else Django closes the handlers of all others
    INSTALLED_APPS=["django_tasks", "toril.integrations.django"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{_folder.name}/shop.db"}},
    TASKS={"default": {"BACKEND": "toril.integrations.django.backend.TorilBackend", "QUEUES": ["default", "mail"]}},
)
django.setup()

from django_tasks import task  # noqa: E402 - it needs the settings

used: list[Any] = []  # the database connections of handlers


def query() -> int:
    """Uses the connection of the thread that it runs in."""
    used.append(connections["default"])
    with connection.cursor() as cursor:
        cursor.execute("SELECT 7")
        return int(cursor.fetchone()[0])


@task
def double(number: int, *, plus: int = 0) -> int:
    return number * 2 + plus


@task(queue_name="mail")
async def send(to: str) -> dict[str, str]:
    return {"sent": to}


@task(takes_context=True)
def which(context: Any) -> list[Any]:
    return [context.attempt, context.task_result.id, threading.current_thread().name.startswith("toril-")]


@task
def fail(times: int) -> None:
    raise LookupError(f"password=hunter2, {times}")


@task
def look() -> int:
    return query()


def plain(number: int) -> int:
    """Not a task, whoever asks for it."""
    return number
