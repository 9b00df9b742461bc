"""`toril reaper`: recover the jobs of dead workers, in a process of its own."""

import asyncio
from typing import Any

import click

from toril import App
from toril.cli.arguments import queue_choice
from toril.cli.completion import queue_names
from toril.cli.store_option import StoreOption, on_store, store_options
from toril.cli.terminal import duration, write_logs

__all__ = ["reaper"]


@click.command(context_settings={"auto_envvar_prefix": "TORIL"})
@click.argument("target", metavar="[MODULE:APP]", required=False)
@store_options
@click.option(
    "-q",
    "--queue",
    "--queues",
    "chosen",
    type=queue_choice,
    multiple=True,
    metavar="NAME",
    envvar="TORIL_QUEUES",
    shell_complete=queue_names,
    help="Recover only this queue; repeatable. A concurrency, as in `toril run`, is ignored.",
)
@click.option("--stall-interval", type=duration, default="1", help="How often to look for stalled jobs. [default: 1s]")
@click.option("--no-election", is_flag=True, help="Run without electing a leader among several reapers.")
@click.option("--lease", type=duration, default="30", help="How long a leader leads without renewing. [default: 30s]")
@click.option("--renew", type=duration, help="How often the leader renews. [default: a third of the lease]")
@click.option(
    "--election-interval",
    type=duration,
    help="How often the others try to become leader. [default: a sixth of the lease]",
)
@click.option("--name", help="Its name in events and logs. [default: reaper-HOST-PID-…]")
@click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info")
def reaper(
    *,
    target: str | None,
    place: StoreOption,
    chosen: tuple[Any, ...],
    no_election: bool,
    log_level: str,
    **options: Any,
) -> None:
    """Return jobs held by dead or hung workers, on any machine, to their queues, in every queue of the store.

    Workers do this for their own queues. Two or three reapers on different machines cover queues whose workers are all
    gone; one of them leads while the others wait. With an app, as in `toril reaper jobs:app`, the reaper uses the app's
    store and calls its `app.on("stalled", …)` listeners.
    """
    place = place.of(target)
    write_logs(log_level)
    queues = [name for name, _ in chosen] or None

    async def reap(app: App) -> None:
        await app.reap(queues=queues, elected=not no_election, **options)

    if place.app is None:
        on_store(place, reap, missing="create")
    else:
        asyncio.run(reap(place.to_app()))
