"""`toril add`: add jobs from the command line."""

from typing import Any, Literal

import click

from toril import App, Job, UsageError
from toril.cli.arguments import json_given
from toril.cli.completion import job_names, queue_argument
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.exit import say
from toril.cli.store_option import StoreOption, declared, on_store, store_options
from toril.cli.terminal import duration, json_option
from toril.client.options import as_workers_declare
from toril.queue import is_unhandled, meant_name

__all__ = ["add"]


@click.command()
@queue_argument
@click.argument("job", shell_complete=job_names)
@click.argument("data", required=False, metavar="[JSON|-|@FILE]")
@click.option("--delay", type=duration, help="How long to wait before it may start: 90, 10m, 2h.")
@click.option(
    "--priority",
    type=int,
    help="1 is the most urgent. Jobs without a priority run first, unless the queue has priority_first=True.",
)
@click.option("--lifo", is_flag=True, help="Add it to the front of the queue.")
@click.option("--job-id", help="Your own job id. If a job with this id exists, nothing is added.")
@click.option("--attempts", type=int, help="Maximum number of attempts.")
@click.option("--timeout", type=duration, help="Time limit for each attempt.")
@click.option("--expires", type=duration, help="How long it may wait to start before it expires.")
@click.option("--result-ttl", type=duration, help="How long to keep its result.")
@click.option("--keep-completed", type=int, help="How many completed jobs the queue keeps.")
@click.option("--keep-failed", type=int, help="How many failed jobs the queue keeps.")
@click.option("--any-name", is_flag=True, help="Add it even if its name looks like a typo.")
@click.option("--create", is_flag=True, help="Create the queue and the store if they do not exist.")
@store_options
@json_option
def add(
    *,
    queue: str,
    job: str,
    data: str | None,
    any_name: bool,
    create: bool,
    place: StoreOption,
    as_json: bool,
    **options: Any,
) -> None:
    """Add JOB to QUEUE with a JSON payload; `-` reads it from stdin, `@FILE` from a file.

    To catch typos, the queue must exist in the store or be served by a live worker (or use `--create`), and a job name
    is refused if no live worker handles it but one handles a similar name. Options that you leave out, such as
    --attempts, default to what the queue's live workers declare.
    """
    payload = None if data is None else json_given(data)
    given = {name: value for name, value in options.items() if value is not None and value is not False}

    async def put(app: App) -> tuple[Job[Any], int | None, bool]:
        found = app.queue(queue) if create else await declared(app, queue, hint=" (use --create to create it)")
        near = None if any_name else await meant_name(app.store, queue, job)
        if near is not None:
            raise UsageError(
                f"no live worker has a handler for {job!r} in queue {queue!r}; did you mean {near!r}? "
                "(use --any-name to add it anyway)"
            )
        known = await as_workers_declare(found)
        supposed = found.options.retry.attempts if known is None and "attempts" not in given else None
        unhandled = await is_unhandled(app.store, queue, job)
        return await (known or found).add(job, payload, **given), supposed, unhandled

    missing: Literal["refuse", "create"] = "refuse" if place.app is None and not create else "create"
    added, supposed, unhandled = on_store(place, put, missing=missing, hint=" (use --create to create it)")
    if as_json:
        click.echo(on_a_line({"queue": queue, "id": added.id, "name": added.name, "added": added.added}))
    elif added.added:
        click.echo(plain(f"Added job {added.id} ({added.name}) to {queue}."))
    else:
        click.echo(plain(f"Job {added.id} already exists in {queue}; nothing was added."))
    if added.added and supposed is not None:
        say(f"No live worker declares {queue}: the job gets {supposed} attempts; set --attempts to change that.")
    if added.added and unhandled:
        say(plain(f"No live worker has a handler for {job!r} in queue {queue!r}."))
