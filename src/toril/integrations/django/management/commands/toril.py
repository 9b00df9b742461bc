"""`manage.py toril COMMAND …`: every command of `toril`, on the app and the store of the settings."""

import os
import sys
from argparse import REMAINDER, ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from toril.cli.main import toril
from toril.integrations.django.settings import get_app

__all__ = ["Command"]


class Command(BaseCommand):
    """Passes its arguments to `toril`, with the app and store in the environment."""

    help = "Run any `toril` command on the app of settings.TORIL."
    requires_system_checks: list[str] = []  # noqa: RUF012 - so Django declares it

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "arguments", nargs=REMAINDER, metavar="COMMAND", help="a toril command, such as run, queues or dashboard"
        )

    def handle(self, *_: Any, arguments: list[str], **__: Any) -> None:
        app = get_app()
        os.environ |= {
            "TORIL_APP": "toril.integrations.django.worker:app",
            "TORIL_URL": app.url,
            "TORIL_PREFIX": app.prefix,
            # Worker processes import from the same places: the folder of manage.py need not be the current one.
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        try:
            toril.main(arguments, prog_name="manage.py toril")
        except SystemExit as ended:
            if ended.code:
                raise
