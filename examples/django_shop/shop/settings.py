"""The minimum settings for the shop."""

import os
from pathlib import Path

FOLDER = Path(os.environ.get("SHOP_FOLDER", Path(__file__).parents[1]))

SECRET_KEY = "only for this example"  # noqa: S105 - it protects nothing
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
TIME_ZONE = "UTC"
INSTALLED_APPS = ["shop", "django_tasks", "toril.integrations.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "shop.db"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TORIL = {"APP": "shop.jobs.app"}
TASKS = {"default": {"BACKEND": "toril.integrations.django.backend.TorilBackend", "QUEUES": ["default"]}}
