"""The project's app from the setting `TORIL`, and adding jobs on commit."""

import os
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, Final, Unpack

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import transaction
from django.utils.module_loading import import_string

from toril.app import App
from toril.client.options import AddOptions
from toril.errors import preview
from toril.queue import PreparedJob, Queue

__all__ = ["add", "get_app", "on_commit"]


def on_commit(
    queue: Queue, job: Any, data: Any = None, *, using: str | None = None, **options: Unpack[AddOptions]
) -> None:
    """Add a job once the transaction of the database `using` has committed; at once if there is none.

    The job is checked at once. If the process dies between the commit and the add, the job is lost; use the outbox if
    it must not be.
    """
    transaction.on_commit(partial(add, queue.new(job, data, **options)), using=using)


def add(planned: PreparedJob[Any]) -> None:
    planned.queue.sync.add_many([planned])


_KNOWN: Final = {"APP", "URL", "PREFIX"}


@cache
def get_app() -> App:
    """The app of this project: that of `TORIL = {"APP": "shop.jobs.app"}`, or one on the store of `{"URL":
    "redis://…"}` or `$TORIL_URL`."""
    given = getattr(settings, "TORIL", {})
    if not isinstance(given, Mapping) or not set(given) <= _KNOWN:
        raise ImproperlyConfigured(
            f"the setting TORIL must be a mapping with the keys {', '.join(sorted(_KNOWN))}, not {preview(given)}"
        )
    if "APP" not in given:
        project = os.environ.get("DJANGO_SETTINGS_MODULE", "django").partition(".")[0]
        return App(given.get("URL"), prefix=given.get("PREFIX", "bull"), name=project)
    if len(given) > 1:
        raise ImproperlyConfigured("the setting TORIL has an APP, which has its own store; remove URL and PREFIX")
    return _imported(given["APP"])


def _imported(path: str) -> App:
    try:
        found = import_string(path.replace(":", "."))
    except ImportError as error:
        raise ImproperlyConfigured(f"TORIL['APP'] {path!r} cannot be imported: {error}") from error
    if not isinstance(found, App):
        raise ImproperlyConfigured(f"TORIL['APP'] {path!r} must be a toril.App, not {preview(found)}")
    return found


def _changed(*, setting: str, **_: Any) -> None:
    """Tests may change the settings for a while."""
    if setting == "TORIL":
        get_app.cache_clear()


setting_changed.connect(_changed)
