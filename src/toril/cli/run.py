"""`toril run`: a worker process."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

import click

from toril import App, TorilError
from toril.cli.loading import load
from toril.cli.loglines import write_logs
from toril.cli.times import duration
from toril.engine import redacted

__all__ = ["run"]

_log: Final = logging.getLogger("toril")
_LEVELS: Final = ("debug", "info", "warning", "error")


def queue_choice(written: str) -> tuple[str, int | None]:
    """`name` or `name:concurrency`."""
    name, colon, slots = written.partition(":")
    if not colon:
        return name, None
    if not (slots.isascii() and slots.isdecimal() and 1 <= int(slots[:9]) <= 10_000):
        raise click.BadParameter(f"the concurrency of {name!r} is a whole number from 1 to 10,000, not {slots!r}")
    return name, int(slots)


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "-q", "--queue", "chosen", type=queue_choice, multiple=True, metavar="NAME[:CONCURRENCY]",
    help="Work only this queue, with so many jobs at once; can be given several times.",
)  # fmt: skip
@click.option("--grace", type=duration, default="10", help="How long running jobs get to end. [default: 10s]")
@click.option("--burst", is_flag=True, help="End when there is nothing left to do.")
@click.option("--log-level", type=click.Choice(_LEVELS, case_sensitive=False), default="info", show_default=True)
def run(*, target: str, chosen: tuple[tuple[str, int | None], ...], grace: float, burst: bool, log_level: str) -> int:
    """Work the queues of an app, as in `toril run jobs:app`, until a signal says stop.

    On SIGTERM or Ctrl-C it claims nothing more and lets running jobs end. What has not ended after the grace goes back
    to its queue, and the exit code is 1; a second signal does not wait.
    """
    write_logs(log_level)
    app = load(target)
    queues = _queues(app, chosen)
    _log.info("%s on %s: %s", target, redacted(app.url), ", ".join(f"{name} ({n})" for name, n in queues.items()))
    try:
        return asyncio.run(app.run(queues=queues, grace=grace, burst=burst))
    except* TorilError:
        raise
    except* Exception:
        _log.exception("the app could not be run")
    return 1


def _queues(app: App, chosen: tuple[tuple[str, int | None], ...]) -> Mapping[str, int]:
    """The queues to work, each with its concurrency."""
    if not chosen:
        found = {name: queue.options.concurrency for name, queue in app.queues.items() if queue.handlers.names}
        if not found:
            raise click.BadParameter("the app has no queue with a handler", param_hint="MODULE:APP")
        return found
    for name, _ in chosen:
        if name not in app.queues:
            known = ", ".join(app.queues) or "none"
            raise click.BadParameter(f"the app has no queue {name!r}; it has {known}", param_hint="-q")
    return {name: slots or app.queues[name].options.concurrency for name, slots in chosen}
