"""Django: the project's app, `manage.py toril`, jobs that wait for a commit, and a backend for django-tasks.

It needs Django, with `toril.integrations.django` in INSTALLED_APPS.
"""

from toril.integrations.django.settings import get_app, on_commit

__all__ = ["get_app", "on_commit"]
