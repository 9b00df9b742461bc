"""The module that `manage.py toril run` loads in its worker processes."""

import django

django.setup()

from toril.integrations.django.settings import get_app  # noqa: E402 - settings come first
from toril.integrations.django.tasks import serve  # noqa: E402 - as above

__all__ = ["app"]

app = serve(get_app())
