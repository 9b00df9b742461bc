"""`toril add`: add jobs from the command line."""

import json
import sys
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import click

from toril import App, Job, UsageError
from toril.cli.completion import job_names, queue_argument
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.exit import say
from toril.cli.store_option import StoreOption, declared, on_store, store_options
from toril.cli.terminal import duration, json_option
from toril.client.options import as_workers_declare
from toril.queue import is_unhandled, meant_name

__all__ = ["add"]

_MOST: Final = 4 * 1024 * 1024  # bytes that are read; the payload itself has its own, lower limit


@click.command()
@queue_argument
@click.argument("job", shell_complete=job_names)
@click.argument("data", required=False, metavar="[JSON|-|@FILE]")
@click.option("--delay", type=duration, help="Do not start it before so long from now: 90, 10m, 2h.")
@click.option(
    "--priority",
    type=int,
    help="From 1, the most urgent. Jobs without one run first, unless the queue has priority_first=True.",
)
@click.option("--lifo", is_flag=True, help="Put it in front of the others.")
@click.option("--job-id", help="An id of your own; if there is one of that id, nothing is added.")
@click.option("--attempts", type=int, help="How often it is tried.")
@click.option("--timeout", type=duration, help="How long an attempt may take.")
@click.option("--expires", type=duration, help="Do not start it after so long from now.")
@click.option("--result-ttl", type=duration, help="How long its result is kept.")
@click.option("--keep-completed", type=int, help="How many completed jobs the queue keeps.")
@click.option("--keep-failed", type=int, help="How many failed jobs the queue keeps.")
@click.option("--any-name", is_flag=True, help="Add it even if its name looks like a slip of the pen.")
@click.option("--create", is_flag=True, help="Make the queue, and the store, if there is none of that name yet.")
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
    """Add JOB to QUEUE, with its payload as JSON; `-` reads it from the input, `@FILE` from a file.

    The queue has to be in the store, or a living worker has to serve it: a slip of the pen would make one that nobody
    works. `--create` makes it. Nor is a job added for which no living worker has a handler, and whose name is almost
    that of one that they have. What is not said, such as --attempts, is as the living workers of the queue declare it.
    """
    payload = _payload(data)
    given = {name: value for name, value in options.items() if value is not None and value is not False}

    async def put(app: App) -> tuple[Job[Any], int | None, bool]:
        found = app.queue(queue) if create else await declared(app, queue, hint=" (--create makes it)")
        near = None if any_name else await meant_name(app.store, queue, job)
        if near is not None:
            raise UsageError(
                f"no living worker has a handler for {job!r} in queue {queue!r}; did you mean {near!r}? "
                "(--any-name adds it all the same)"
            )
        known = await as_workers_declare(found)
        supposed = found.options.retry.attempts if known is None and "attempts" not in given else None
        unhandled = await is_unhandled(app.store, queue, job)
        return await (known or found).add(job, payload, **given), supposed, unhandled

    missing: Literal["refuse", "create"] = "refuse" if place.app is None and not create else "create"
    added, supposed, unhandled = on_store(place, put, missing=missing, hint=" (--create makes it)")
    if as_json:
        click.echo(on_a_line({"queue": queue, "id": added.id, "name": added.name, "added": added.added}))
    elif added.added:
        click.echo(plain(f"Added job {added.id} ({added.name}) to {queue}."))
    else:
        click.echo(plain(f"Job {added.id} was in {queue} already; nothing was added."))
    if added.added and supposed is not None:
        say(f"No living worker declares {queue}: the job has {supposed} attempts; --attempts would say otherwise.")
    if added.added and unhandled:
        say(plain(f"No living worker has a handler for {job!r} in queue {queue!r}."))


def _payload(given: str | None) -> Any:
    if given is None:
        return None
    text = _text(given)
    try:
        return json.loads(text)
    except RecursionError:
        raise click.BadParameter("the payload nests too deeply", param_hint="JSON") from None
    except ValueError as error:
        raise click.BadParameter(f"the payload is not JSON: {error}", param_hint="JSON") from None


def _text(given: str) -> str | bytes:
    if given == "-":
        return _bounded(sys.stdin.buffer, "the input")
    if given.startswith("@"):
        try:
            with Path(given[1:]).open("rb") as file:
                return _bounded(file, given[1:])
        except (OSError, ValueError) as error:  # a name with a NUL in it is a ValueError
            raise click.BadParameter(f"{given[1:]!r} cannot be read: {error}", param_hint="JSON") from None
    return given


def _bounded(file: BinaryIO, name: str) -> str:
    read = file.read(_MOST + 1)
    if len(read) > _MOST:
        raise click.BadParameter(f"{name!r} has more than {_MOST // 1024**2} MiB", param_hint="JSON")
    try:
        return read.decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{name!r} is not UTF-8: {error}", param_hint="JSON") from None
