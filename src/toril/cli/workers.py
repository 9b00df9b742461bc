"""`toril workers`"""

from functools import partial
from typing import Any, Final

import click

from toril import App
from toril.cli.output import Column, Lines, json_option, show
from toril.cli.place import Place, on_store, store_options
from toril.cli.times import age
from toril.documents import of_job, of_worker

__all__ = ["workers"]

_COLUMNS: Final = [
    Column("worker", 5),
    Column("host", 6),
    Column("pid", 0, numbers=True),
    Column("running", 1),
    Column("started", 4),
    Column("seen", 2),
    Column("version", 7),
    Column("queues", 3),
]
_JOB_COLUMNS: Final = [Column("queue"), Column("id"), Column("name", 1), Column("started", 2)]


@click.command()
@store_options
@json_option
@click.option("--jobs", metavar="WORKER", help="List the jobs that this worker runs, or ran when it died.")
@click.option("--quiet", metavar="WORKER", help="Have this worker claim nothing more; what it runs goes on.")
@click.option("--stop", metavar="WORKER", help="Have this worker drain and end; it is not started anew.")
def workers(*, place: Place, as_json: bool, jobs: str | None, quiet: str | None, stop: str | None) -> None:
    """List the workers that are alive, or the jobs of one; or tell one of them to be quiet or to stop."""
    if jobs is not None:
        running = on_store(place, partial(_jobs, worker=jobs))
        show(Lines(running, _JOB_COLUMNS, _job_row, f"{jobs} runs no jobs."), as_json=as_json)
        return
    if quiet is not None:
        on_store(place, partial(App.quiet_worker, worker=quiet))
    if stop is not None:
        on_store(place, partial(App.stop_worker, worker=stop))
    if quiet is not None or stop is not None:
        return
    found = on_store(place, _documents)
    show(Lines(found, _COLUMNS, _row, "No worker is alive. Start one with: toril run MODULE:APP"), as_json=as_json)


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
    return [worker["worker"], worker["host"], worker["pid"], running, started, seen, worker["version"], names]
