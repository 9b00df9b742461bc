"""The page of one job, with why it does not run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from toril.app import App
from toril.errors import NotFound, TorilError, preview
from toril.flow import FlowTree
from toril.job import Job
from toril.model import Backoff, ChildState, EventRow, JobRef, JobRow, QueueSummary, RunRow, RunStatus, WorkerRow
from toril.model.states import State
from toril.operate.history import history
from toril.operate.lookup import find_job
from toril.operate.why import Explanation
from toril.policy.redaction import COVER, UNSHOWN, redacted
from toril.queue import Queue
from toril.web.api.common import PageQuery, attempt_errors, job_document, kept_in, known_queue, log_page
from toril.web.api.jobs import run_document
from toril.web.pages.drawing import ENDINGS, EVERY, look_of
from toril.web.pages.flows import in_order, remembered
from toril.web.pages.job_steps import steps_of
from toril.web.pages.page import PageRequest, PageSpec
from toril.web.pages.search_box import quoted
from toril.web.pages.timeline import chronicle
from toril.web.templates import NONE, number, plural, span
from toril.web.tracebacks import TracebackLine, lines_of

__all__ = [
    "JOB",
    "Attempt",
    "HoldReason",
    "WhyPanel",
    "attempts_of",
    "ended_flow_of",
    "explained",
    "failed_children",
    "flow_of",
    "log_of",
    "progress_of",
]


@dataclass(frozen=True, slots=True)
class HoldReason:
    """What holds a job back, and where to change that."""

    cls: str
    icon: str
    text: str
    button: str = ""
    to: Sequence[str] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    jobs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class WhyPanel:
    """`title` is the question; `fine` are the checks that passed."""

    title: str
    answer: str
    holds: Sequence[HoldReason]
    fine: Sequence[str]


_BREAKERS: Final = ("breakers",)


def explained(
    found: Explanation, record: JobRow, view: QueueSummary, workers: Sequence[WorkerRow], now: int
) -> WhyPanel | None:
    """The panel for a job; None if it has ended, because its state says enough."""
    if record.state in (State.COMPLETED, State.FAILED):
        return None
    if record.state is State.ACTIVE:
        return WhyPanel("It is running", found.sentence, (), ()) if found.reason != "running" else None
    hold = _hold(found, view)
    return WhyPanel(
        "Why isn't it running?", found.sentence, [hold] if hold else [], _fine(found, record, view, workers, now)
    )


_GROUPS: Final = {
    "group_paused": "is paused", "group_limit": "is at its limit", "group_rate": "has reached its rate limit",
    "group_turn": "is waiting for its turn",
}  # fmt: skip


# Class, icon and words for what the page of workers explains further.
_WORKERS: Final = {
    "no_worker": ("crit", "crit", "No worker serves this queue"),
    "quiet": ("paused", "paused", "All workers for this queue are quiet"),
    "isolated": ("paused", "paused", "Workers are running a stalled job in isolation"),
    "alone": ("warn", "lock", "It runs in isolation because its worker died"),
}


def _hold(found: Explanation, view: QueueSummary) -> HoldReason | None:
    facts: Mapping[str, Any] = found.facts
    queue, hold = ("queues", view.name), None
    match found.reason:
        case "circuit":
            hold = HoldReason(
                "open", "open", f"Circuit {facts['circuit']} is {facts['state']}", "View circuit", _BREAKERS
            )
        case "paused":
            hold = HoldReason("paused", "paused", f"Queue {view.name} is paused", "View queue", queue)
        case reason if reason in _WORKERS:
            hold = HoldReason(*_WORKERS[reason], "View workers", ("workers",))
        case "no_handler":
            hold = HoldReason(
                "crit", "crit", f"No live worker has a handler for {facts['name']}", "View workers", ("workers",)
            )
        case "concurrency":
            text = f"The queue is at its concurrency limit of {facts['concurrency']}"
            hold = HoldReason("warn", "lock", text, "View running", queue, {"state": "active"}, facts["running"])
        case "rate":
            hold = HoldReason("warn", "delayed", "The queue has reached its rate limit", "View queue", queue)
        case reason if reason in _GROUPS:
            text, query = f"Group {facts['group']} {_GROUPS[reason]}", {"queue": view.name}
            hold = HoldReason("warn", "lock", text, "View group", ("groups",), query, facts["holders"])
        case "waiting_children":
            open_, of = number(facts["open"]), plural(facts["children"], "child", "children")
            hold = HoldReason("children", "children", f"{open_} of {of} have not ended")
        case "not_due" | "retry_later":
            hold = HoldReason("delayed", "delayed", "It is not due yet")
        case "behind":
            text = f"{plural(facts['ahead'], 'job is', 'jobs are')} ahead of it"
            hold = HoldReason("wait", "wait", text, "View waiting", queue, {"state": "waiting"})
        case _:
            pass  # it is the next
    return hold


def _fine(found: Explanation, record: JobRow, view: QueueSummary, workers: Sequence[WorkerRow], now: int) -> list[str]:
    """What could hold it back, but does not."""
    fine = []
    if not view.settings.paused:
        fine.append("Queue is not paused")
    listening = [worker for worker in workers if not (worker.orders or worker.isolates)]
    if listening:
        slots = [worker.slots_for(view.name) for worker in listening]
        free = sum(max(0, all_ - used) for all_, used in slots)
        room = f"{number(free)} of {plural(sum(all_ for all_, _ in slots), 'slot')} free"
        fine.append(f"{plural(len(listening), 'worker')}, {room}")
    if record.due is None or record.due <= now:
        fine.append("It is due")
    if view.settings.concurrency is not None and view.counts.active < view.settings.concurrency:
        fine.append(f"{number(view.counts.active)} of {number(view.settings.concurrency)} running")
    if found.reason != "rate" and view.settings.rate is not None:
        fine.append("Within the rate limit")
    if record.state is not State.WAITING_CHILDREN:
        fine.append("No open children")
    return fine


_LINES: Final = 1_000  # of a log to show
_A_PAGE: Final = 100
_MOST_PERCENT: Final = 1e15  # larger values are not percentages, and may exceed a float
_DEPTH, _WIDTH = 6, 20  # limits of the displayed flow


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A failed attempt. `at` is unknown if another library's worker ran it."""

    number: int
    at: int | None
    kind: str
    error: str
    traceback: list[TracebackLine]


async def attempts_of(job: Job[Any]) -> list[Attempt]:
    """The failed attempts, the last first."""
    return [
        Attempt(
            number=each["attempt"],
            at=each["at"],
            kind=each["error_kind"],
            error=each["error"],
            traceback=lines_of(each["traceback"]),
        )
        for each in reversed(await attempt_errors(job))
    ]


async def log_of(job: Job[Any]) -> list[str]:
    """The job's log, as it may be shown."""
    found: list[str] = []
    cursor: str | None = None
    while len(found) < _LINES:
        page = await log_page(job, PageQuery(cursor=cursor, limit=_A_PAGE))
        found += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            break
    return found


def progress_of(value: Any) -> dict[str, Any] | None:
    """A number is a percentage; of a mapping, `done` and `total` are shown, or whatever it has."""
    match value:
        case None | 0:
            return None
        case bool():
            return {"text": "", "value": None, "json": value}
        case int() | float() if abs(value) < _MOST_PERCENT:
            return {"text": f"{value:g}\u00a0%", "value": max(0, min(100, value))}
        case _:
            return {"text": "", "value": None, "json": value}


async def flow_of(asking: PageRequest, job: Job[Any], record: JobRow) -> FlowTree | None:
    """The flow of a job, from its root, with what is remembered of jobs that are gone; None if it belongs to none."""
    app = asking.app
    if record.parent is None and record.state is not State.WAITING_CHILDREN:
        family = await app.store.flows.child_counts(JobRef(record.queue, record.id), where=kept_in(job))
        if not family.total:
            return None
    try:
        tree = await app.tree(job, depth=_DEPTH, width=_WIDTH)
    except TorilError:
        return None  # its parent may disappear meanwhile
    top = record
    if (tree.queue, tree.id) != (record.queue, record.id):
        top = await find_job(app.store, tree.queue, tree.id) or record
    known = await remembered(asking, record.queue)
    return known.filled(await in_order(app, tree), top.parent, depth=_DEPTH, width=_WIDTH)


async def ended_flow_of(asking: PageRequest, ref: JobRef) -> FlowTree | None:
    """The flow of a job that is gone, as far as it is remembered."""
    return (await remembered(asking, ref.queue)).tree(ref, depth=_DEPTH, width=_WIDTH)


async def failed_children(app: App, job: Job[Any]) -> list[FlowTree]:
    """The unsuccessful children of a parent that has failed."""
    tree = await app.tree(job, whole=False, depth=1, width=_WIDTH)
    return [child for child in tree.children if child.known in {ChildState.FAILED, ChildState.IGNORED}]


_A_MOMENT: Final = 5.0


async def job(asking: PageRequest) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    found = await queue.job(asking.path["id"])
    if found is None or found.row is None:
        return await _gone(asking, queue, asking.path["id"])
    record, document, now = found.row, job_document(found), asking.around.now
    view = await queue.store.queue(queue.name)
    workers = [worker for worker in await queue.store.workers(queue.name) if not worker.silent]
    events = await _events(asking, found, record)
    recorded = await steps_of(found, record)
    steps, parts = chronicle(record, events, now, active="Attempt" if recorded is None else "Run")
    return {
        "title": f"{record.name} {record.id}", "now": now, "queue": queue.name, "id": record.id, "name": record.name,
        "record": record, "job": document, "look": look_of(record), "steps": steps, "parts": parts,
        "recorded": recorded, "rest": None if recorded is None else recorded.rest,
        "lines": await log_of(found),
        "why": explained(await queue.why(record.id), record, view, workers, now),
        "attempts": await attempts_of(found), "progress": progress_of(document["progress"]),
        "tree": await flow_of(asking, found, record),
        "facts": _facts(record), "by_subject": quoted("subject", record.options.subject or ""),
        "size": len(record.data.encode()), "usual": _usual(asking, queue.name),
        "again": _again(document, record), "gone": None, "looks": EVERY,
        "mark": f"{record.state} {record.attempts_made} {record.starts} {record.rest is not None}",
    }  # fmt: skip


async def _events(asking: PageRequest, found: Job[Any], record: JobRow) -> list[EventRow]:
    """The job's events, from all events kept of its queue; read again only after the job has changed."""

    async def ask() -> list[EventRow]:
        return await history(found.queue.store, record.queue, record.id)

    key = ("history", record.queue, record.id, record.state, record.starts, record.attempts_made, record.due)
    return [_seen(asking, record, event) for event in await asking.recall(key, 60.0, ask)]


def _seen(asking: PageRequest, record: JobRow, event: EventRow) -> EventRow:
    """An event whose reason may be shown."""
    if "failedReason" not in event.detail:
        return event
    reason = asking.app.redaction.text(event.detail["failedReason"], "error", record.queue, record.name)
    return replace(event, detail={**event.detail, "failedReason": redacted(reason or "")})


def _facts(record: JobRow) -> list[tuple[str, str, str]]:
    """The job's options and limits: name, text, and look."""
    options = record.options
    facts = [
        ("Worker", record.worker or "", "code"),
        ("Group", record.group or "", ""),
        ("Priority", str(record.priority) if record.priority else "none", ""),
        ("Attempts", _attempts(record), ""),
        ("Stalls", str(record.stalls) if record.stalls else "", ""),
        ("Fence", str(record.fence) if record.fence else "", ""),
        ("Timeout", span(options.timeout) if options.timeout else "", ""),
        ("Backoff", _backoff(options.backoff), ""),
        ("Subject", options.subject or "", "code"),
        ("Breaker", options.breaker or "", "code"),
        ("Parent", str(record.parent) if record.parent else "", "code"),
        ("Stop requested", record.cancelling or "", ""),
        ("Unreadable", record.unreadable or "", ""),
    ]
    return [fact for fact in facts if fact[1]]


def _attempts(record: JobRow) -> str:
    return "none, never started" if record.never_started else f"{record.attempts_made} of {record.max_attempts}"


def _backoff(backoff: Backoff | None) -> str:
    return "" if backoff is None else f"{backoff.kind} from {span(backoff.delay)}"


def _usual(asking: PageRequest, queue: str) -> str:
    hour = next((each for each in asking.around.overview.queues if each.queue == queue), None)
    return NONE if hour is None or hour.run_p95 is None else span(hour.run_p95 * 1000)


def _again(document: dict[str, Any], record: JobRow) -> dict[str, Any] | None:
    """The initial values of the form for adding it again. Values that are masked or cut cannot be added as they are
    shown."""
    text = json.dumps(document["data"], indent=2, ensure_ascii=False, default=str)
    covered = f'"{COVER}"' in text or f'"{UNSHOWN}"' in text
    return {"data": text, "attempts": record.max_attempts, "covered": covered, "cut": "data" in document["cut"]}


async def _gone(asking: PageRequest, queue: Queue, identity: str) -> dict[str, Any]:
    """A job that has ended and was not kept: its run record."""
    run = await asking.recall(("run", queue.name, identity), _A_MOMENT, lambda: _remembered(queue, identity))
    if run is None:
        raise NotFound(f"there is no job {preview(identity)} in queue {queue.name!r}, and no run record of one")
    return {
        "title": f"{run.name} {identity}", "now": asking.around.now, "queue": queue.name, "id": identity,
        "name": run.name, "look": ENDINGS[run.ending],
        "mark": "gone", "gone": run, "text": run_document(asking.app, queue.name, run)["text"], "looks": EVERY,
        "tree": await ended_flow_of(asking, JobRef(queue.name, identity)) if run.flow else None,
        "by_subject": quoted("subject", run.subject or ""),
    }  # fmt: skip


async def _remembered(queue: Queue, identity: str) -> RunRow | None:
    """The last run with this id."""
    pages = [await queue.store.runs(queue.name, ending, limit=1000) for ending in RunStatus]
    runs = [run for page in pages for run in page.items if run.id == identity]
    return max(runs, key=lambda run: run.finished_at, default=None)


JOB: Final = (PageSpec(path="/queues/{queue}/jobs/{id}", template="job.html", show=job),)
