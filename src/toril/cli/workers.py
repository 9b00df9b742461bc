"""`toril workers`: list workers and their jobs, quiet them or stop them."""

from functools import partial
from typing import Any, Final

import click

from toril import App
from toril.cli.completion import worker_names
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.store_option import StoreOption, on_store, refuse_early_options, store_options
from toril.cli.terminal import Column, Lines, age, json_option, show
from toril.operate.documents import of_job, of_worker

__all__ = ["workers"]

_COLUMNS: Final = [
    Column("worker"),
    Column("host", 6),
    Column("pid", 4, numbers=True),
    Column("running", 1),
    Column("command", 1),
    Column("started", 5),
    Column("seen", 2),
    Column("version", 7),
    Column("queues", 3),
]
_JOB_COLUMNS: Final = [Column("queue"), Column("id"), Column("name", 1), Column("started", 2)]


@click.group(invoke_without_command=True)
@store_options
@json_option
@click.pass_context
def workers(ctx: click.Context, *, place: StoreOption, as_json: bool) -> None:
    """List live workers; list the jobs of one, quiet it or stop it."""
    if ctx.invoked_subcommand is not None:
        refuse_early_options(ctx)
        return
    found = on_store(place, _documents)
    show(Lines(found, _COLUMNS, _row, "No live workers. Start one with: toril run MODULE:APP"), as_json=as_json)


@workers.command()
@click.argument("name", shell_complete=worker_names)
@store_options
@json_option
def jobs(*, name: str, place: StoreOption, as_json: bool) -> None:
    """List the jobs that worker NAME is running, or was running when it died."""
    running = on_store(place, partial(_jobs, worker=name))
    show(Lines(running, _JOB_COLUMNS, _job_row, f"{name} has no running jobs."), as_json=as_json)


@workers.command()
@click.argument("name", shell_complete=worker_names)
@store_options
@json_option
def quiet(*, name: str, place: StoreOption, as_json: bool) -> None:
    """Stop worker NAME taking new jobs; running jobs finish."""
    on_store(place, partial(App.quiet_worker, worker=name))
    _tell(name, "quiet", "was asked to claim no more jobs", as_json=as_json)


@workers.command()
@click.argument("name", shell_complete=worker_names)
@store_options
@json_option
def stop(*, name: str, place: StoreOption, as_json: bool) -> None:
    """Stop worker NAME once its running jobs finish; its supervisor does not restart it."""
    on_store(place, partial(App.stop_worker, worker=name))
    _tell(name, "stop", "was asked to finish its jobs and stop", as_json=as_json)


def _tell(name: str, order: str, what: str, *, as_json: bool) -> None:
    click.echo(on_a_line({"worker": name, "told": order}) if as_json else plain(f"{name} {what}."))


async def _documents(app: App) -> list[dict[str, Any]]:
    return [of_worker(each) for each in await app.workers()]


async def _jobs(app: App, worker: str) -> list[dict[str, Any]]:
    return [of_job(job) for job in await app.running_jobs(worker)]


def _job_row(job: dict[str, Any]) -> list[object]:
    return [job["queue"], job["id"], job["name"], age(job["started_at"])]


def _row(worker: dict[str, Any]) -> list[object]:
    running = f"{worker['running']} of {worker['slots']}"
    seen, started = age(worker["seen_at"]), age(worker["started_at"])
    names = ", ".join(worker["queues"])
    what = "stop" if "stop" in worker["orders"] else ", ".join(worker["orders"])
    return [worker["worker"], worker["host"], worker["pid"], running, what, started, seen, worker["version"], names]
