"""`toril reaper`: recovery for the whole fleet, in a process of its own."""

from functools import partial
from typing import Any

import click

from toril import App
from toril.cli.choosing import queue_choice
from toril.cli.loglines import write_logs
from toril.cli.place import Place, on_store, store_options
from toril.cli.times import duration

__all__ = ["reaper"]


@click.command(context_settings={"auto_envvar_prefix": "TORIL"})
@store_options
@click.option(
    "-q", "--queue", "--queues", "chosen", type=queue_choice, multiple=True, metavar="NAME", envvar="TORIL_QUEUES",
    help="Look after this queue only; can be repeated. A concurrency, as `toril run` takes it, means nothing here.",
)  # fmt: skip
@click.option("--no-election", is_flag=True, help="Work beside other reapers instead of electing one.")
@click.option("--lease", type=duration, default="30", help="How long a leader leads without renewing. [default: 30s]")
@click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info")
def reaper(*, place: Place, chosen: tuple[Any, ...], no_election: bool, lease: float, log_level: str) -> None:
    """Give back the jobs of workers that died or hang, on any machine, in every queue of the store.

    Workers do the same for their own queues. Two or three reapers on different machines cover queues whose workers are
    all gone; one of them leads, the others wait.
    """
    write_logs(log_level)
    queues = [name for name, _ in chosen]
    reap = partial(App.reap, queues=queues or None, lease=lease, elected=not no_election)
    on_store(place, reap, missing="create")
