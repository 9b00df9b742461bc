"""Job: its state and times, why it does not run, what happened to it, and all that it carries."""

import json
from dataclasses import replace
from typing import Any, Final

from toril.errors import NotFound, shown
from toril.job import Job
from toril.model import Backoff, Ending, Event, JobRecord, JobRef, Run
from toril.operate.history import history
from toril.policy.masking import COVER, UNSHOWN
from toril.policy.redaction import redacted
from toril.queue import Queue
from toril.web.api.common import job_document, known_queue
from toril.web.api.jobs import run_document
from toril.web.pages.details import attempts_of, ended_flow_of, flow_of, log_of, progress_of
from toril.web.pages.looks import ENDINGS, EVERY, look_of
from toril.web.pages.page import Looking, Page
from toril.web.pages.reasons import explained
from toril.web.pages.search_box import quoted
from toril.web.pages.timeline import chronicle
from toril.web.words import NONE, span

__all__ = ["JOB"]

_A_MOMENT: Final = 5.0


async def job(asking: Looking) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    found = await queue.job(asking.path["id"])
    if found is None or found.row is None:
        return await _gone(asking, queue, asking.path["id"])
    record, document, now = found.row, job_document(found), asking.around.now
    view = await queue.store.queue(queue.name)
    workers = [worker for worker in await queue.store.workers(queue.name) if not worker.silent]
    events = await _events(asking, found, record)
    steps, parts = chronicle(record, events, now)
    return {
        "title": f"{record.name} {record.id}", "now": now, "queue": queue.name, "id": record.id, "name": record.name,
        "record": record, "job": document, "look": look_of(record), "steps": steps, "parts": parts,
        "lines": await log_of(found),
        "why": explained(await queue.why(record.id), record, view, workers, now),
        "attempts": await attempts_of(found), "progress": progress_of(document["progress"]),
        "tree": await flow_of(asking, found, record),
        "facts": _facts(record), "by_subject": quoted("subject", record.subject or ""),
        "size": len(record.data.encode()), "usual": _usual(asking, queue.name),
        "again": _again(document, record), "mark": f"{record.state} {record.attempts_made} {record.starts}",
        "gone": None, "looks": EVERY,
    }  # fmt: skip


async def _events(asking: Looking, found: Job[Any], record: JobRecord) -> list[Event]:
    """All that is kept of a queue's events is looked through: again only when the job has moved on."""

    async def ask() -> list[Event]:
        return await history(found.queue.store, record.queue, record.id)

    key = ("history", record.queue, record.id, record.state, record.starts, record.attempts_made, record.due)
    return [_seen(asking, record, event) for event in await asking.recall(key, 60.0, ask)]


def _seen(asking: Looking, record: JobRecord, event: Event) -> Event:
    """An event whose reason may be shown."""
    if "failedReason" not in event.detail:
        return event
    reason = asking.app.redaction.text(event.detail["failedReason"], "error", record.queue, record.name)
    return replace(event, detail={**event.detail, "failedReason": redacted(reason or "")})


def _facts(record: JobRecord) -> list[tuple[str, str, str]]:
    """What was set for it, and what it is held to: name, text, and how it looks."""
    backoff = record.backoff
    facts = [
        ("Worker", record.worker or "", "code"),
        ("Group", record.group or "", ""),
        ("Priority", str(record.priority) if record.priority else "none", ""),
        ("Attempts", _attempts(record), ""),
        ("Stalls", str(record.stalls) if record.stalls else "", ""),
        ("Fence", str(record.fence) if record.fence else "", ""),
        ("Timeout", span(record.timeout) if record.timeout else "", ""),
        ("Backoff", _backoff(backoff), ""),
        ("Subject", record.subject or "", "code"),
        ("Breaker", record.breaker or "", "code"),
        ("Parent", str(record.parent) if record.parent else "", "code"),
        ("Told to stop", record.cancelling or "", ""),
        ("Unreadable", record.unreadable or "", ""),
    ]
    return [fact for fact in facts if fact[1]]


def _attempts(record: JobRecord) -> str:
    return "none, it never started" if record.never_started else f"{record.attempts_made} of {record.max_attempts}"


def _backoff(backoff: Backoff | None) -> str:
    return "" if backoff is None else f"{backoff.kind} from {span(backoff.delay)}"


def _usual(asking: Looking, queue: str) -> str:
    hour = next((each for each in asking.around.overview.queues if each.queue == queue), None)
    return NONE if hour is None or hour.run_p95 is None else span(hour.run_p95 * 1000)


def _again(document: dict[str, Any], record: JobRecord) -> dict[str, Any] | None:
    """What a form for the same once more begins with. What is covered or cut cannot be added again as it is shown."""
    text = json.dumps(document["data"], indent=2, ensure_ascii=False, default=str)
    covered = f'"{COVER}"' in text or f'"{UNSHOWN}"' in text
    return {"data": text, "attempts": record.max_attempts, "covered": covered, "cut": "data" in document["cut"]}


async def _gone(asking: Looking, queue: Queue, identity: str) -> dict[str, Any]:
    """A job that has ended and was not kept: its run record."""
    run = await asking.recall(("run", queue.name, identity), _A_MOMENT, lambda: _remembered(queue, identity))
    if run is None:
        raise NotFound(f"there is no job {shown(identity)} in queue {queue.name!r}, and nothing is remembered of one")
    return {
        "title": f"{run.name} {identity}", "now": asking.around.now, "queue": queue.name, "id": identity,
        "name": run.name, "look": ENDINGS[run.ending],
        "mark": "gone", "gone": run, "text": run_document(asking.app, queue.name, run)["text"], "looks": EVERY,
        "tree": await ended_flow_of(asking, JobRef(queue.name, identity)) if run.flow else None,
        "by_subject": quoted("subject", run.subject or ""),
    }  # fmt: skip


async def _remembered(queue: Queue, identity: str) -> Run | None:
    """The last run of that id."""
    pages = [await queue.store.runs(queue.name, ending, limit=1000) for ending in Ending]
    runs = [run for page in pages for run in page.items if run.id == identity]
    return max(runs, key=lambda run: run.finished_at, default=None)


JOB: Final = (Page(path="/queues/{queue}/jobs/{id}", template="job.html", show=job),)
