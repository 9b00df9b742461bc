"""`toril job show|why|stack|retry|cancel|promote|remove`"""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Final, TypeVar

import click

from toril import App, Explanation, Job, NotFound
from toril.cli.asking import agreed, yes_option
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.exit import Failure
from toril.cli.jobsheet import show_job, show_run
from toril.cli.naming import one
from toril.cli.place import Place, declared, on_store, secrets_option
from toril.model import Ending
from toril.operate.documents import of_children, of_errors, of_explanation, of_job, of_run
from toril.records import JobStack

__all__ = ["belongings", "found_job", "job"]

T = TypeVar("T")

_REMEMBERED: Final = 1000  # run records that are looked through for a job that is gone


@click.group()
def job() -> None:
    """Show, explain, retry, cancel, promote or remove one job.

    A job is named by its queue and its id. The queue can be left out where only one has a job of that id.
    """


@job.command()
@secrets_option
@one("job", "job_id")
def show(*, queue: str | None, job_id: str, place: Place, as_json: bool) -> None:
    """Show a job, or a dead letter, with its log and the errors of its attempts; of one that is gone the run record."""
    kind, found = on_store(place, lambda app: _shown(app, queue, job_id))
    if as_json:
        click.echo(on_a_line(found))
    else:
        (show_job if kind == "job" else show_run)(found)


@job.command()
@one("job", "job_id")
def why(*, queue: str | None, job_id: str, place: Place, as_json: bool) -> None:
    """Say why a job does not run, or what became of it."""

    async def ask(app: App) -> tuple[str, Explanation]:
        name = await _where(app, job_id) if queue is None else (await declared(app, queue)).name
        return name, await app.queue(name).why(job_id)

    name, answer = on_store(place, ask)
    if as_json:
        click.echo(on_a_line({"queue": name, "id": job_id} | of_explanation(answer)))
    else:
        click.echo(plain(answer.sentence))


@job.command()
@one("job", "job_id")
def stack(*, queue: str | None, job_id: str, place: Place, as_json: bool) -> None:
    """Show where a running job is: the frames of its coroutine, its thread or its process.

    Its worker is asked, and answers within moments. Where its event loop stands still, the supervisor answers
    with all threads of the process.
    """

    async def ask(app: App) -> JobStack:
        found = await found_job(app, queue, job_id)
        return await found.queue.stack(found.id)

    answer = on_store(place, ask)
    if as_json:
        click.echo(on_a_line(asdict(answer)))
    else:
        click.echo("\n".join(plain(line) for line in answer.text.splitlines()))


@job.command()
@one("job", "job_id")
def retry(*, queue: str | None, job_id: str, place: Place, as_json: bool) -> None:
    """Run a job again that has ended, with all its attempts: one that its queue keeps, or a dead letter.

    A parent of a flow that failed waits for its children that have not succeeded: those run again with it.
    """
    _act(place, queue, job_id, lambda found: found.retry(), "will run again", as_json=as_json)


@job.command()
@click.option("--reason", default="Cancelled by an operator", show_default=True)
@one("job", "job_id")
def cancel(*, queue: str | None, job_id: str, reason: str, place: Place, as_json: bool) -> None:
    """Stop a job. One that has not started never will; one that runs is asked to stop."""

    async def stop(app: App) -> tuple[Job[Any], str]:
        found = await found_job(app, queue, job_id)
        return found, await found.cancel(reason)

    found, outcome = on_store(place, stop)
    told = "is cancelled" if outcome == "cancelled" else "was asked to stop"
    _tell(found, told, {"outcome": outcome}, as_json=as_json)


@job.command()
@one("job", "job_id")
def promote(*, queue: str | None, job_id: str, place: Place, as_json: bool) -> None:
    """Have a delayed job wait no longer."""
    _act(place, queue, job_id, lambda found: found.promote(), "waits no longer", as_json=as_json)


@job.command()
@yes_option
@one("job", "job_id")
def remove(*, queue: str | None, job_id: str, yes: bool, place: Place, as_json: bool) -> None:
    """Delete a job with all that belongs to it, a dead letter too. A running one must be cancelled instead."""
    found = on_store(place, lambda app: found_job(app, queue, job_id))
    agreed(f"This removes 1 job: {found.name} {found.id} of {found.queue.name}.", yes=yes)
    _act(place, found.queue.name, job_id, lambda found: found.remove(), "is removed", as_json=as_json)


def _act(
    place: Place, queue: str | None, job_id: str, act: Callable[[Job[Any]], Awaitable[None]], told: str, *,
    as_json: bool,
) -> None:  # fmt: skip
    async def work(app: App) -> Job[Any]:
        found = await found_job(app, queue, job_id)
        await act(found)
        return found

    _tell(on_store(place, work), told, {"done": True}, as_json=as_json)


def _tell(found: Job[Any], told: str, facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(on_a_line({"queue": found.queue.name, "id": found.id, "name": found.name, **facts}))
    else:
        click.echo(plain(f"Job {found.id} ({found.name}) of {found.queue.name} {told}."))


async def found_job(app: App, queue: str | None, job_id: str) -> Job[Any]:
    """The one job of that id; if no queue is named, wherever it is."""
    names = await app.store.queues() if queue is None else [(await declared(app, queue)).name]
    found = [each for name in names if (each := await app.queue(name).job(job_id)) is not None]
    if len(found) > 1:
        where = ", ".join(each.queue.name for each in found)
        raise Failure(
            f"there is a job {job_id!r} in each of {where}: name the queue, as in  {found[0].queue.name} {job_id}"
        )
    if not found:
        raise NotFound(f"there is no job {job_id!r} in {'any queue' if queue is None else f'queue {queue!r}'}")
    return found[0]


async def _where(app: App, job_id: str) -> str:
    """The queue of a job, or the one in which it has ended."""
    try:
        return (await found_job(app, None, job_id)).queue.name
    except NotFound:
        return str((await _remembered(app, None, job_id))["queue"])


async def _shown(app: App, queue: str | None, job_id: str) -> tuple[str, dict[str, Any]]:
    try:
        found = await found_job(app, queue, job_id)
    except NotFound:
        return "run", await _remembered(app, queue, job_id)
    record = found.record
    trace = record.failure.traceback if record is not None and record.failure is not None else ""
    shown = app.redaction.text(trace, "traceback", found.queue.name, found.name)
    return "job", of_job(found) | {"traceback": shown} | await belongings(app, found)


async def belongings(app: App, found: Job[Any]) -> dict[str, Any]:
    """A job's log, the errors of its attempts, and how its children stand."""
    logs = [app.redaction.text(line, "log", found.queue.name, found.name) for line in await found.logs()]
    children = of_children(await app.tree(found, whole=False, depth=1))
    return {"logs": logs, "errors": of_errors(await found.errors(), found), "children": children}


async def _remembered(app: App, queue: str | None, job_id: str) -> dict[str, Any]:
    """The newest run record of a job that is gone."""
    names = await app.store.queues() if queue is None else [queue]
    found = []
    for name in names:
        for ending in Ending:
            page = await app.queue(name).run_rows(ending, limit=_REMEMBERED)
            found += [of_run(name, run, app.redaction) for run in page.items if run.id == job_id][:1]
    if len({run["queue"] for run in found}) > 1:
        where = ", ".join(sorted({run["queue"] for run in found}))
        raise Failure(
            f"jobs {job_id!r} have run in each of {where}: name the queue, as in  {found[0]['queue']} {job_id}"
        )
    if not found:
        raise NotFound(f"there is no job {job_id!r} in {'any queue' if queue is None else f'queue {queue!r}'}")
    return max(found, key=lambda run: int(run["finished_at"]))
