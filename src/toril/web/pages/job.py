"""Job: its state and times, why it does not run, what happened to it, and all that it carries."""

import json
from dataclasses import replace
from typing import Any, Final

from toril.documents import stored
from toril.errors import NotFound, TorilError, shown
from toril.flow import Tree
from toril.history import history
from toril.job import Job
from toril.model import Backoff, DeadLetterRow, Ending, Event, JobRecord, JobRef, Run, letter_id
from toril.policy.masking import COVER, UNSHOWN, masked
from toril.policy.redaction import redacted
from toril.queue import Queue
from toril.states import State
from toril.web.api.common import job_document, known_queue, shortened
from toril.web.api.jobs import run_document
from toril.web.pages.chronicle import chronicle
from toril.web.pages.looks import LOOKS
from toril.web.pages.page import Looking, Page
from toril.web.pages.reasons import explained
from toril.web.pages.tracebacks import lines_of
from toril.web.words import NONE, span

__all__ = ["JOB"]

_LINES: Final = 1_000  # of a log
_A_PAGE: Final = 100
_A_MOMENT: Final = 5.0
_MOST_PERCENT: Final = 1e15  # what is more is no share of anything, and may be more than a float can hold
_DEPTH, _WIDTH = 6, 20  # of a flow that are shown


async def job(asking: Looking) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    found = await queue.job(asking.path["id"])
    if found is None or found.row is None:
        return await _gone(asking, queue, asking.path["id"])
    record, document, now = found.row, job_document(found), asking.around.now
    view, workers = await queue.store.queue(queue.name), await queue.store.workers(queue.name)
    events = await _events(asking, found, record)
    steps, parts = chronicle(record, events, now)
    lines = await _lines(asking, queue, record)
    return {
        "title": f"{record.name} {record.id}", "now": now, "queue": queue.name, "id": record.id, "name": record.name,
        "record": record, "job": document, "look": LOOKS[record.state], "steps": steps, "parts": parts, "lines": lines,
        "why": explained(await queue.why(record.id), record, view, workers, now),
        "traceback": lines_of(_traceback(queue, record)), "error": redacted(document["error"] or ""),
        "progress": _progress(document["progress"]), "tree": await _tree(asking, found, record),
        "facts": _facts(record), "size": len(record.data.encode()), "usual": _usual(asking, queue.name),
        "again": _again(document, record), "mark": f"{record.state} {record.attempts_made} {record.starts}",
        "gone": None, "letter": None, "looks": LOOKS,
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


async def _lines(asking: Looking, queue: Queue, record: JobRecord) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while len(found) < _LINES:
        page = await queue.store.logs(queue.name, record.id, cursor=cursor, limit=_A_PAGE)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            break
    seen = (asking.app.redaction.text(line, "log", queue.name, record.name) or "" for line in found)
    return [redacted(line) for line in seen]


def _traceback(queue: Queue, record: JobRecord) -> str:
    if record.failure is None:
        return ""
    return redacted(queue.redaction.text(record.failure.traceback, "traceback", queue.name, record.name) or "")


def _progress(value: Any) -> dict[str, Any] | None:
    """A number is a share of 100; of a mapping `done` and `total`, or whatever it has, is told."""
    match value:
        case None | 0:
            return None
        case bool():
            return {"text": "", "value": None, "json": value}
        case int() | float() if abs(value) < _MOST_PERCENT:
            return {"text": f"{value:g}\u00a0%", "value": max(0, min(100, value))}
        case _:
            return {"text": "", "value": None, "json": value}


async def _tree(asking: Looking, found: Job[Any], record: JobRecord) -> Tree | None:
    if record.parent is None and record.state is not State.WAITING_CHILDREN:
        family = await asking.app.store.family(JobRef(record.queue, record.id))
        if not family.total:
            return None
    try:
        return await asking.app.tree(found, depth=_DEPTH, width=_WIDTH)
    except TorilError:
        return None  # its parent may be gone while we look


def _facts(record: JobRecord) -> list[tuple[str, str, str]]:
    """What was set for it, and what it is held to: name, text, and how it looks."""
    backoff = record.backoff
    facts = [
        ("Worker", record.worker or "", "code"),
        ("Group", record.group or "", ""),
        ("Priority", str(record.priority) if record.priority else "none", ""),
        ("Attempts", f"{record.attempts_made} of {record.max_attempts}", ""),
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
    """A job that has ended and was not kept: its run record, and its dead letter if it has one."""
    (letter,) = await asking.app.store.letters_of([letter_id(queue.name, identity)])
    run = await asking.recall(("run", queue.name, identity), _A_MOMENT, lambda: _remembered(queue, identity))
    if run is None and letter is None:
        raise NotFound(f"there is no job {shown(identity)} in queue {queue.name!r}, and nothing is remembered of one")
    failed = letter is not None or (run is not None and run.ending is Ending.FAILED)
    name = letter.name if letter is not None else run.name if run is not None else identity
    return {
        "title": f"{name} {identity}", "now": asking.around.now, "queue": queue.name, "id": identity, "name": name,
        "look": LOOKS[State.FAILED if failed else State.COMPLETED], "mark": "gone", "gone": run,
        "letter": None if letter is None else _letter(queue, letter),
        "text": "" if run is None else run_document(asking.app, queue.name, run)["text"],
    }  # fmt: skip


def _letter(queue: Queue, letter: DeadLetterRow) -> dict[str, Any]:
    sight = (queue.name, letter.name)
    reason = queue.redaction.text(letter.failure.reason, "error", *sight) or ""
    traceback = queue.redaction.text(letter.failure.traceback, "traceback", *sight) or ""
    data = masked(stored(letter.data))
    return {
        "id": letter.id, "kind": letter.failure.kind, "error": redacted(reason), "made": letter.attempts_made,
        "attempts": letter.max_attempts, "failed_at": letter.failed_at, "worker": letter.worker,
        "traceback": lines_of(redacted(traceback)), **shortened({"data": queue.redaction.seen(data, "data", *sight)}),
    }  # fmt: skip


async def _remembered(queue: Queue, identity: str) -> Run | None:
    for ending in Ending:
        for run in (await queue.store.runs(queue.name, ending, limit=1000)).items:
            if run.id == identity:
                return run
    return None


JOB: Final = (Page(path="/queues/{queue}/jobs/{id}", template="job.html", show=job),)
