"""Django: the app that the settings name, its commands below `manage.py toril`, jobs that wait for a commit, and a
backend for django-tasks. It needs Django, with `toril.integrations.django` among the INSTALLED_APPS."""

from toril.integrations.django.commits import on_commit
from toril.integrations.django.configured import get_app

__all__ = ["get_app", "on_commit"]
