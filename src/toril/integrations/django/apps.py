"""The Django application, with one command and no models."""

from django.apps import AppConfig

__all__ = ["TorilConfig"]


class TorilConfig(AppConfig):
    """`INSTALLED_APPS = ["toril.integrations.django"]`."""

    name = "toril.integrations.django"
    label = "toril"
    verbose_name = "Toril"
