"""Queue: its charts, its jobs by state, and what can be done with them."""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toril.job import Job
from toril.model import QueueView, RateLimit, Run
from toril.policy.errorgroups import ErrorGroup
from toril.policy.figures import RANGES, Range
from toril.policy.redaction import redacted
from toril.queue import Queue
from toril.searching import Failures
from toril.states import State
from toril.web.api.common import Cursor, Search, job_document, known_queue
from toril.web.pages.asked import Typed, typed
from toril.web.pages.looks import LOOKS, StateLook
from toril.web.pages.page import Looking, Page, View
from toril.web.pages.troubles import of_queue
from toril.web.words import compact, number, plural, span

__all__ = ["QUEUE"]

_A_PAGE: Final = 50
_FACETS: Final = 6
_A_WHILE: Final = 10.0  # seconds that facets and counts of a search may be old
_STATES: Final = {look.key: state for state, look in LOOKS.items()}
_BULK: Final = {
    State.FAILED: "retry remove", State.COMPLETED: "retry remove", State.DELAYED: "promote cancel remove",
    State.WAITING: "cancel remove", State.PRIORITIZED: "cancel remove",
}  # fmt: skip


class Sought(View):
    """Which jobs are listed, and over which time the charts go."""

    range: Range = "1h"
    state: Literal["waiting", "prioritized", "active", "delayed", "children", "completed", "failed"] | None = None
    q: Search = None
    error: Search = None
    after: Cursor = None
    limit: Annotated[int, Field(ge=1, le=100)] = _A_PAGE


@dataclass(frozen=True, slots=True)
class Facet:
    """Failures with one error. `key` is the part of it that all of them have."""

    key: str
    name: str
    text: str
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class Matches:
    """How many jobs a search means; `more` says that not all were looked at. `asked_at` leaves out what comes later."""

    count: int
    more: bool
    asked_at: int


async def queue(asking: Looking) -> dict[str, Any]:
    found, query, around = await known_queue(asking.app, asking.path["queue"]), asking.query, asking.around
    view = await asking.app.store.queue(found.name)
    state = _STATES[query.state] if query.state else State.FAILED if view.counts.failed else State.WAITING
    asked = typed(query.q or "", query.error if state is State.FAILED else None)
    facets = await _facets(asking, found) if state is State.FAILED and view.counts.failed else []
    return {
        "title": found.name, "now": around.now, "name": found.name, "query": query, "view": view,
        "troubles": of_queue(around.needs, found.name), "facts": _facts(found, view), "ranges": list(RANGES),
        "hour": next((each for each in around.overview.queues if each.queue == found.name), None),
        "tabs": [(look, view.counts.of(each)) for each, look in LOOKS.items() if _has_tab(each, view, state)],
        "look": LOOKS[state], "facets": facets, "bulk": _BULK.get(state, ""), "limits": _limits(view),
        **await _listed(asking, found, state, asked, view),
    }  # fmt: skip


def _has_tab(state: State, view: QueueView, chosen: State) -> bool:
    return state is not State.PRIORITIZED or bool(view.counts.prioritized) or chosen is state


async def _listed(asking: Looking, found: Queue, state: State, asked: Typed, view: QueueView) -> dict[str, Any]:
    """The page of jobs; where none of a kind is kept, what is remembered of their runs."""
    query = asking.query
    if asked.id is not None:
        job = await found.job(asked.id) if len(asked.id) <= 256 else None
        rows = [] if job is None else [_row(job, asking.around.now)]
        return {"rows": rows, "runs": None, "next": None, "match": Matches(len(rows), more=False, asked_at=0),
                "filter": None, "about": ""}  # fmt: skip
    if state in (State.COMPLETED, State.FAILED) and not view.counts.of(state):
        status: Literal["completed", "failed"] = "completed" if state is State.COMPLETED else "failed"
        page = await found.runs(status, query.after, query.limit, where=asked.filter)
        runs = [_run(run) for run in page.items]
        return {"rows": [], "runs": runs, "next": page.cursor, "match": Matches(len(runs), more=False, asked_at=0),
                "filter": None, "about": ""}  # fmt: skip
    jobs = await found.search(state, asked.filter, cursor=query.after, limit=query.limit)
    match = await _matches(asking, found, state, asked)
    body = {"state": state.value, **asked.body(), "asked_at": match.asked_at}
    return {
        "rows": [_row(job, asking.around.now) for job in jobs.items], "runs": None, "next": jobs.cursor, "match": match,
        "filter": body, "about": _about(found.name, LOOKS[state], asked),
    }  # fmt: skip


async def _matches(asking: Looking, found: Queue, state: State, asked: Typed) -> Matches:
    async def ask() -> Matches:
        counted = await found.count(state, asked.filter)
        return Matches(counted.count, more=counted.cursor is not None, asked_at=counted.asked_at)

    seconds = 0.0 if asked.filter.everything else _A_WHILE
    return await asking.recall(("matches", found.name, state, asked.filter), seconds, ask)


def _about(queue: str, look: StateLook, asked: Typed) -> str:
    places = {"q": "text", "name": "name", "error": "error", "key": "data"}
    return ", ".join([f"queue {queue}", f"state {look.key}", *(f"{places[k]} {v}" for k, v in asked.body().items())])


async def _facets(asking: Looking, found: Queue) -> list[Facet]:
    async def ask() -> Failures:
        return await found.failures()

    failures = await asking.recall(("failures", found.name), _A_WHILE, ask)
    return [_facet(group, failures.looked) for group in failures.groups[:_FACETS]]


def _facet(group: ErrorGroup, of: int) -> Facet:
    kind, _, text = group.error.partition(": ") if group.error.startswith(group.kind + ": ") else (group.kind, "", "")
    # Numbers in it differ from one failure to the next; the longest part between them is what they share.
    key = max(group.error.split("#"), key=len).strip() or group.error
    return Facet(key[:200], kind or "Error", text or group.error, group.count, 100 * group.count / max(1, of))


def _row(job: Job[Any], now: int) -> dict[str, Any]:
    found, record = job_document(job), job.record
    if record is None:
        raise LookupError(f"{job!r} was not read from the store")
    ran = None
    if record.started_at is not None and record.state in (State.ACTIVE, State.COMPLETED, State.FAILED):
        ran = (record.finished_at or now) - record.started_at
    return {
        "id": job.id, "name": job.name, "look": LOOKS[record.state], "text": _text(found, record.state),
        "group": record.group, "made": record.attempts_made, "of": record.attempts, "ran": ran,
        "at": record.finished_at or record.started_at or record.added_at, "due": record.due,
    }  # fmt: skip


def _text(found: dict[str, Any], state: State) -> str:
    """What tells most of a job in its state."""
    match state:
        case State.FAILED:
            return redacted(found["error"] or "")
        case State.ACTIVE if found["progress"] not in (None, 0):
            return f"progress {compact(found['progress'])}"
        case State.DELAYED if found["error"]:
            return f"will be tried again: {redacted(found['error'])}"
        case State.COMPLETED if found["result"] is not None:
            return compact(found["result"])
        case _:
            return "" if found["data"] is None else compact(found["data"])


def _run(run: Run) -> dict[str, Any]:
    return {
        "id": run.id, "name": run.name, "text": redacted(run.text), "made": run.attempts_made, "cause": run.cause.value,
        "ran": None if run.started_at is None else run.finished_at - run.started_at, "at": run.finished_at,
    }  # fmt: skip


def _facts(found: Queue, view: QueueView) -> list[tuple[str, str]]:
    """What is set for the queue: in the store, and, where its code is here, in the code."""
    settings, options, declared = view.settings, found.options, bool(found.handlers.names)
    rate = settings.rate or (options.rate_limit if declared else None)
    facts = [
        ("Limit", f"{number(settings.concurrency)} at once" if settings.concurrency else "none"),
        ("Rate", _rate(rate)),
    ]
    if declared:
        facts.append(("Retries", plural(options.retry.attempts, "attempt")))
        facts.append(("Lease", span(options.lease)))
        facts.append(("Wait target", span(options.target_wait)))
    if settings.groups.concurrency:
        facts.append(("Groups", f"{settings.groups.concurrency} at once in each"))
    return facts


def _rate(rate: RateLimit | None) -> str:
    return "any" if rate is None else f"{number(rate.max)} in {span(rate.per * 1000)}"


def _limits(view: QueueView) -> dict[str, Any]:
    rate = view.settings.rate
    before = None if rate is None else {"max": rate.max, "per": rate.per, "window": rate.window}
    return {"concurrency": view.settings.concurrency, "rate": before}


QUEUE: Final = (Page(path="/queues/{queue}", template="queue.html", show=queue, query=Sought),)
