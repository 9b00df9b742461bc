"""`toril jobs`: list the jobs of a queue."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import click

from toril import App, DeadLetterFilter, JobFilter, State
from toril.cli.completion import job_names, queue_argument
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import compact
from toril.cli.exit import say
from toril.cli.job import never_started
from toril.cli.store_option import StoreOption, declared, on_store, secrets_option, store_options
from toril.cli.terminal import Column, Lines, age, ahead, json_option, show, span
from toril.model import RunStatus
from toril.operate.documents import of_job, of_run
from toril.operate.search import JobSearch

__all__ = ["jobs", "newest_runs"]

_RUN_ENDINGS: Final = tuple(map(str, RunStatus))
_PAGE: Final = 1000
_OVER: Final = "-"  # in a cursor: there are no more of this ending

# (ending, cursor, limit) -> documents, and the cursor of the next page
Pages = Callable[[str, str | None, int], Awaitable[tuple[list[dict[str, Any]], str | None]]]


async def newest_runs(pages: Pages, cursor: str | None, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """The next `limit` run records after a cursor, and the cursor to continue from if there are more."""
    places = [""] * len(_RUN_ENDINGS) if cursor is None else cursor.split(",")
    if len(places) != len(_RUN_ENDINGS):
        raise click.BadParameter(f"{cursor!r} is not a cursor from this listing", param_hint="--cursor")
    streams = [_Stream(pages, ending, place) for ending, place in zip(_RUN_ENDINGS, places, strict=True)]
    found: list[dict[str, Any]] = []
    while heads := [stream for stream in streams if await stream.fill(limit - len(found) or 1)]:
        if len(found) == limit:
            return found, ",".join([await stream.place() for stream in streams])
        newest = max(heads, key=lambda stream: stream.items[0]["finished_at"])
        found.append(newest.take())
    return found, None


class _Stream:
    """The run records of one ending; reading can stop after any of them."""

    def __init__(self, pages: Pages, ending: str, place: str) -> None:
        self._pages = pages
        self._ending = ending
        self._over = place == _OVER
        self._start: str | None = None  # of the page that `items` are of
        self._next = place or None
        self._taken = 0  # of that page
        self.items: deque[dict[str, Any]] = deque()

    async def fill(self, most: int) -> bool:
        """Load the next page if needed; False at the end. The first page has one record: the newest record moves on as
        jobs end, and the cursor after it does not."""
        while not self.items and not self._over:
            self._start, self._taken = self._next, 0
            size = 1 if self._start is None else min(most, _PAGE)
            items, self._next = await self._pages(self._ending, self._start, size)
            self.items.extend(items)
            self._over = self._next is None
        return bool(self.items)

    def take(self) -> dict[str, Any]:
        self._taken += 1
        return self.items.popleft()

    async def place(self) -> str:
        """The cursor after the last record that was taken."""
        if not self.items:
            return self._next or _OVER
        cursor, left = self._start, self._taken
        while left > 0 and cursor is not None:
            items, cursor = await self._pages(self._ending, cursor, left)
            left -= len(items)
        return cursor or ""


_ORDER: Final = ("active", "waiting", "prioritized", "delayed", "waiting_children", "failed", "cancelled", "completed")
_ENDINGS: Final = ("failed", "cancelled", "completed")
_LETTERS: Final = "letters:"  # prefix of a cursor into the dead letters

_COLUMNS: Final = [
    Column("id"), Column("name", 1), Column("state", 2), Column("attempts", 5), Column("added", 4), Column("detail", 3),
]  # fmt: skip
_RUN_COLUMNS: Final = [
    Column("id"), Column("name", 1), Column("ended", 2), Column("attempts", 6, numbers=True), Column("took", 5),
    Column("when", 4), Column("detail", 3),
]  # fmt: skip

# (state, cursor, limit) -> documents, and the cursor of the next page
Found = tuple[list[dict[str, Any]], str | None]


@click.command()
@queue_argument
@click.option("--state", type=click.Choice(_ORDER), help="Only jobs in this state, or cancelled jobs.")
@click.option("--runs", is_flag=True, help="List run records, which outlive the jobs themselves.")
@click.option("--name", shell_complete=job_names, help="Only jobs with this name.")
@click.option("--error", help="Only jobs with this text in their error.")
@click.option("--search", "text", help="Only jobs with this text in their id, name, error or payload.")
@click.option("--key", metavar="KEY[=VALUE]", help="Only jobs with this key in their payload: user.id, or user.id=7.")
@click.option("--worker", help="Only jobs that this worker is running or ran last.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@click.option("--cursor", metavar="CURSOR", help="Continue from an earlier listing.")
@secrets_option
@store_options
@json_option
def jobs(
    *,
    queue: str,
    state: str | None,
    runs: bool,
    limit: int,
    cursor: str | None,
    place: StoreOption,
    as_json: bool,
    **sought: str | None,
) -> None:
    """List the jobs of QUEUE by state: the next to run first, or the last to end first. Failed jobs include the queue's
    dead letters. With `--runs`, list run records, the last to end first."""
    where = JobFilter(
        name=sought["name"],
        error=sought["error"],
        text=sought["text"],
        key=sought["key"],
        worker=sought["worker"],
    )
    by_time = runs and state is None
    states = () if by_time else _states(state, cursor, _ENDINGS if runs else _ORDER)
    inner = cursor.partition(":")[2] or None if cursor else None

    async def look(app: App) -> Found:
        of_jobs = _pages_of_jobs(app, queue, where, every=state is not None)
        pages = _pages_of_runs(app, queue, where) if runs else of_jobs
        await declared(app, queue)
        return await (newest_runs(pages, cursor, limit) if by_time else _walk(pages, states, inner, limit))

    found, after = on_store(place, look)
    columns, row = (_RUN_COLUMNS, _run_row) if runs else (_COLUMNS, _row)
    show(Lines(found, columns, row, _none(queue, state, runs=runs)), as_json=as_json)
    if after is not None:
        say(on_a_line({"cursor": after}) if as_json else f"There are more; continue with  --cursor {after}")


def _states(state: str | None, cursor: str | None, order: Sequence[str]) -> Sequence[str]:
    """The states to list; a cursor begins with the state that it points into."""
    states = order if state is None else (state,)
    if state is not None and state not in order:
        raise click.BadParameter(
            f"only {' or '.join(order)} jobs have run records, not {state} jobs", param_hint="--state"
        )
    if cursor is None:
        return states
    first = cursor.partition(":")[0]
    if first not in states or ":" not in cursor:
        raise click.BadParameter(f"{cursor!r} is not a cursor from this listing", param_hint="--cursor")
    return states[states.index(first) :]


async def _walk(pages: Pages, states: Sequence[str], cursor: str | None, limit: int) -> Found:
    found: list[dict[str, Any]] = []
    for state in states:
        while True:
            if len(found) == limit:
                return found, f"{state}:{cursor or ''}"
            items, cursor = await pages(state, cursor, min(limit - len(found), _PAGE))
            found += items
            if cursor is None:
                break
    return found, None


def _pages_of_jobs(app: App, name: str, where: JobFilter, *, every: bool) -> Pages:
    """Jobs, and after failed ones the dead letters of the queue. With `every`, keep reading past other queues' letters
    until enough are found; else return what one look finds."""

    async def page(state: str, cursor: str | None, limit: int) -> Found:
        if state == "failed" and cursor is not None and cursor.startswith(_LETTERS):
            found, after = await _dead_letters(app, name, where, cursor.removeprefix(_LETTERS) or None, limit)
            return found, None if after is None or not (found or every) else _LETTERS + after
        jobs = await app.queue(name).search(*_sought(state, where), cursor=cursor, limit=limit)
        after = jobs.cursor if jobs.cursor is not None or state != "failed" else _LETTERS
        return [of_job(job) for job in jobs.items], after

    return page


def _sought(state: str, where: JobFilter) -> tuple[State, JobFilter]:
    """Cancelled jobs are stored among the failed ones, and are listed separately."""
    if state in ("failed", "cancelled"):
        return State.FAILED, replace(where, ending=RunStatus(state))
    return State(state), where


async def _dead_letters(app: App, name: str, where: JobFilter, cursor: str | None, limit: int) -> Found:
    sought = DeadLetterFilter(queue=name, name=where.name, error=where.error, text=where.text, key=where.key)
    letters = await app.dead_letters.rows(sought, cursor=cursor, limit=limit)
    meant = [letter for letter in letters.items if where.worker in {None, letter.worker}]
    return [of_job(app.dead_letters.as_job(letter)) for letter in meant], letters.cursor


def _pages_of_runs(app: App, name: str, where: JobFilter) -> Pages:
    async def page(state: str, cursor: str | None, limit: int) -> Found:
        found = await JobSearch(app.queue(name)).run_rows(RunStatus(state), cursor=cursor, limit=limit, where=where)
        return [of_run(name, run, app.redaction) for run in found.items], found.cursor

    return page


def _none(queue: str, state: str | None, *, runs: bool) -> str:
    if runs:
        return f"{queue} has no run records."
    if state == "failed":
        return f"{queue} keeps no failed jobs and has no dead letters. For run records: toril jobs {queue} --runs"
    if state in _ENDINGS:
        return f"{queue} keeps no {state} jobs. For run records: toril jobs {queue} --runs"
    return f"{queue} has no {state + ' ' if state else ''}jobs. For run records: toril jobs {queue} --runs"


def _row(job: dict[str, Any]) -> list[object]:
    attempts = "none" if never_started(job) else f"{job['attempts_made']} of {job['max_attempts']}"
    state = job["ending"] or job["state"] if job["dead_letter"] is None else "dead letter"
    return [job["id"], job["name"], state, attempts, age(job["added_at"]), _detail(job)]


def _detail(job: dict[str, Any]) -> str:
    """What to show about a job in this state."""
    match job["state"]:
        case "failed":
            return compact(job["error"])
        case "completed":
            return compact(job["result"]) if job["result"] is not None else ""
        case "active":
            asked = "asked to stop" if job["cancelling"] else ""
            return asked or ("" if job["progress"] is None else f"progress {compact(job['progress'])}")
        case "delayed":
            return ahead(job["due_at"])
        case _:
            return compact(job["data"]) if job["data"] is not None else ""


def _run_row(run: dict[str, Any]) -> list[object]:
    took = "" if run["started_at"] is None else span(run["finished_at"] - run["started_at"])
    text = "" if run["text"] == "null" else compact(run["text"])
    attempts = "none" if never_started(run) else run["attempts_made"]
    return [run["id"], run["name"], run["cause"], attempts, took, age(run["finished_at"]), text]
