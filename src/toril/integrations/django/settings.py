"""The app that `TORIL` names; add on commit."""

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
    """Add a job once the transaction of the database `using` has committed; at once where there is none. It is checked
    here and now. A process that dies between the commit and the add takes the job with it."""
    transaction.on_commit(partial(add, queue.new(job, data, **options)), using=using)


def add(planned: PreparedJob[Any]) -> None:
    planned.queue.sync.add_many([planned])


_KNOWN: Final = {"APP", "URL", "PREFIX"}


@cache
def get_app() -> App:
    """The app of this project: `TORIL = {"APP": "shop.jobs.app"}`, or one on the store of `{"URL": "redis://…"}`, else
    on that of `$TORIL_URL`."""
    given = getattr(settings, "TORIL", {})
    if not isinstance(given, Mapping) or not set(given) <= _KNOWN:
        raise ImproperlyConfigured(f"TORIL is a mapping with {', '.join(sorted(_KNOWN))}, and not {preview(given)}")
    if "APP" not in given:
        project = os.environ.get("DJANGO_SETTINGS_MODULE", "django").partition(".")[0]
        return App(given.get("URL"), prefix=given.get("PREFIX", "bull"), name=project)
    if len(given) > 1:
        raise ImproperlyConfigured("TORIL names an APP, which has its own store: say no URL and no PREFIX beside it")
    return _imported(given["APP"])


def _imported(path: str) -> App:
    try:
        found = import_string(path.replace(":", "."))
    except ImportError as error:
        raise ImproperlyConfigured(f"TORIL's APP {path!r} cannot be imported: {error}") from error
    if not isinstance(found, App):
        raise ImproperlyConfigured(f"TORIL's APP {path!r} is not a toril.App but {preview(found)}")
    return found


def _changed(*, setting: str, **_: Any) -> None:
    """A test has other settings for a while."""
    if setting == "TORIL":
        get_app.cache_clear()


setting_changed.connect(_changed)
