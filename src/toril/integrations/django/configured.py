"""The app that `TORIL` in the settings names, or says how to make."""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from toril.app import App
from toril.errors import shown

__all__ = ["get_app"]

_KNOWN: Final = {"APP", "URL", "PREFIX"}


@cache
def get_app() -> App:
    """The app of this project: `TORIL = {"APP": "shop.jobs.app"}`, or one on the store of `{"URL": "redis://…"}`, else
    on that of `$TORIL_URL`."""
    given = getattr(settings, "TORIL", {})
    if not isinstance(given, Mapping) or not set(given) <= _KNOWN:
        raise ImproperlyConfigured(f"TORIL is a mapping with {', '.join(sorted(_KNOWN))}, and not {shown(given)}")
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
        raise ImproperlyConfigured(f"TORIL's APP {path!r} is not a toril.App but {shown(found)}")
    return found


def _changed(*, setting: str, **_: Any) -> None:
    """A test has other settings for a while."""
    if setting == "TORIL":
        get_app.cache_clear()


setting_changed.connect(_changed)
