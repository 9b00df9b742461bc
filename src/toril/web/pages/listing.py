"""The jobs of a queue in a state, a page of them. One that failed is kept in its queue or is a dead letter, never both:
the page goes through those that are kept, then through the letters. Where none of those that ended is left, the runs
are shown that are remembered."""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from toril.job import Job
from toril.model import DeadLetterRow, Ending, QueueView, Run, ms_of
from toril.model.states import State
from toril.operate.search import Failures
from toril.policy.error_groups import ErrorGroup
from toril.policy.letters import LetterFilter
from toril.policy.redaction import redacted
from toril.policy.retention import RUNS
from toril.policy.search import JobFilter
from toril.queue import Queue
from toril.web.api.common import A_LOOK, job_document
from toril.web.api.dead_letters import letter_document
from toril.web.api.jobs import run_document
from toril.web.pages.looks import ENDINGS, LOOKS, look_of
from toril.web.pages.page import Looking
from toril.web.pages.search_box import Typed, typed
from toril.web.words import compact

__all__ = ["Counted", "Tabs", "counted", "facets", "listed", "remembered"]

_FACETS: Final = 6
_A_WHILE: Final = 10.0  # seconds that facets, and counts that are costly, may be old
_LETTERS: Final = "letters:"  # before the cursor of a page of letters
_ENDINGS: Final = {State.COMPLETED: Ending.COMPLETED, State.FAILED: Ending.FAILED}
_FAILED: Final = Typed(JobFilter(ending=Ending.FAILED))
_BULK: Final = {
    State.FAILED: "retry remove", State.COMPLETED: "retry remove", State.DELAYED: "promote cancel remove",
    State.WAITING: "cancel remove", State.PRIORITIZED: "cancel remove", State.ACTIVE: "cancel",
    State.WAITING_CHILDREN: "cancel",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Counted:
    """How many jobs are meant; `more` says that not all were looked at. `asked_at` leaves out what comes later."""

    count: int
    more: bool = False
    asked_at: int = 0


@dataclass(frozen=True, slots=True)
class Facet:
    """Failures with one error. `key` is the part of it that all of them have."""

    key: str
    name: str
    text: str
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class Tabs:
    """How many jobs each tab lists, by its key; and of those that failed, how many are kept and how many are dead
    letters."""

    counts: dict[str, Counted]
    kept: int
    buried: int

    @property
    def failed(self) -> int:
        return self.kept + self.buried


async def counted(asking: Looking, found: Queue, view: QueueView) -> Tabs:
    counts = {state: Counted(view.counts.of(state)) for state in LOOKS}
    if view.counts.failed and view.cancelled_total:  # cancelled jobs that are kept stand among them
        counts[State.FAILED] = await _matches(asking, found, State.FAILED, _FAILED)
    kept, letters = counts[State.FAILED], Counted(0)
    if asking.around.letters:
        letters = await _letters_meant(asking, _buried(found, typed("")))
        counts[State.FAILED] = Counted(kept.count + letters.count, kept.more or letters.more)
    for state, ending in _ENDINGS.items():
        if not counts[state].count:
            counts[state] = Counted(await _runs(asking, found, ending))
    by_key = {LOOKS[state].key: count for state, count in counts.items()}
    if view.cancelled_total:
        by_key[ENDINGS[Ending.CANCELLED].key] = Counted(await _runs(asking, found, Ending.CANCELLED))
    return Tabs(by_key, kept.count, letters.count)


async def _runs(asking: Looking, found: Queue, ending: Ending) -> int:
    async def ask() -> int:
        return len((await found.store.runs(found.name, ending, limit=RUNS)).items)

    return await asking.recall(("runs", found.name, ending), _A_WHILE, ask)


async def listed(
    asking: Looking, found: Queue, state: State, asked: Typed, view: QueueView, tabs: Tabs
) -> dict[str, Any]:
    """What the table shows. `kind` says of what its rows are."""
    there = tabs.failed if state is State.FAILED else view.counts.of(state)
    after = asking.query.after
    if asked.id is not None:
        job = await found.job(asked.id) if len(asked.id) <= 256 else None
        rows = [] if job is None else [_row(job, asking.around.now)]
        return _table("jobs", rows, None, Counted(len(rows)))
    if state in _ENDINGS and not there:
        return await remembered(asking, found, _ENDINGS[state], asked)
    buried = state is State.FAILED and tabs.buried > 0
    if buried and (not tabs.kept or (after or "").startswith(_LETTERS)):
        return await _letters(asking, found, asked)
    if state is State.FAILED and view.cancelled_total:
        asked = replace(asked, filter=replace(asked.filter, ending=Ending.FAILED))
    jobs = await found.search(state, asked.filter, cursor=after, limit=asking.query.limit, patience=A_LOOK)
    match = await _matches(asking, found, state, asked)
    body = {"state": state.value, **asked.body(), "asked_at": match.asked_at}
    rows = [_row(job, asking.around.now) for job in jobs.items]
    return _table("jobs", rows, jobs.cursor or (_LETTERS if buried else None), match) | {
        "filter": body, "about": _about(found.name, LOOKS[state].key, asked), "bulk": _BULK.get(state, ""),
    }  # fmt: skip


async def remembered(asking: Looking, found: Queue, ending: Ending, asked: Typed) -> dict[str, Any]:
    """The runs that ended so, as far as they are remembered."""
    page = await found.run_rows(ending, asking.query.after, asking.query.limit, where=asked.filter)
    runs = [_run(asking, found, run) for run in page.items]
    return _table("runs", runs, page.cursor, Counted(len(runs), more=page.cursor is not None))


def _table(
    kind: Literal["jobs", "letters", "runs"], rows: list[dict[str, Any]], more: str | None, match: Counted
) -> dict[str, Any]:
    return {"kind": kind, "rows": rows, "next": more, "match": match, "filter": None, "about": "", "bulk": ""}


async def _matches(asking: Looking, found: Queue, state: State, asked: Typed) -> Counted:
    async def ask() -> Counted:
        number = await found.count(state, asked.filter, patience=A_LOOK)
        return Counted(number.count, more=number.cursor is not None, asked_at=ms_of(number.asked_at))

    seconds = 0.0 if asked.filter.everything or asked == _FAILED else _A_WHILE
    return await asking.recall(("matches", found.name, state, asked.filter), seconds, ask)


def _buried(found: Queue, asked: Typed) -> LetterFilter:
    chosen = asked.filter
    return LetterFilter(
        queue=found.name, name=chosen.name, error=chosen.error, key=chosen.key, text=chosen.text, group=chosen.group,
        subject=chosen.subject,
    )  # fmt: skip


async def _letters_meant(asking: Looking, where: LetterFilter) -> Counted:
    async def ask() -> Counted:
        number = await asking.app.dead_letters.counted(where, patience=A_LOOK)
        return Counted(number.count, more=number.cursor is not None, asked_at=ms_of(number.asked_at))

    # Few are counted anew each time, so that the count is that of the list.
    seconds = 0.0 if asking.around.letters <= RUNS else _A_WHILE
    return await asking.recall(("letters", repr(where)), seconds, ask)


async def _letters(asking: Looking, found: Queue, asked: Typed) -> dict[str, Any]:
    where, cursor = _buried(found, asked), (asking.query.after or "").removeprefix(_LETTERS) or None
    page = await asking.app.dead_letters.rows(where, cursor=cursor, limit=asking.query.limit, patience=A_LOOK)
    match = await _letters_meant(asking, where)
    body = {"where": {"queue": found.name, **asked.body()}, "asked_at": match.asked_at}
    rows = [_letter(asking, letter) for letter in page.items]
    return _table("letters", rows, None if page.cursor is None else _LETTERS + page.cursor, match) | {
        "filter": body, "about": _about(found.name, "failed", asked), "bulk": "replay discard",
    }  # fmt: skip


def _about(queue: str, state: str, asked: Typed) -> str:
    places = {"q": "text", "name": "name", "error": "error", "key": "data", "group": "group", "subject": "subject"}
    sought = [f"{places[k]} {v}" for k, v in asked.body().items() if k in places]
    return ", ".join([f"queue {queue}", f"state {state}", *sought])


async def facets(asking: Looking, found: Queue, tabs: Tabs) -> list[Facet]:
    """Failures by their error: of those that are kept, or, where none is, of the dead letters."""

    async def ask() -> Failures:
        if tabs.kept:
            return await found.failures(patience=A_LOOK)
        return await asking.app.dead_letters.groups(LetterFilter(queue=found.name), patience=A_LOOK)

    failures = await asking.recall(("failures", found.name, bool(tabs.kept)), _A_WHILE, ask)
    most = sum(group.count for group in failures.groups)
    return [_facet(group, most) for group in failures.groups[:_FACETS]]


def _facet(group: ErrorGroup, of: int) -> Facet:
    kind, _, text = group.error.partition(": ") if group.error.startswith(group.kind + ": ") else (group.kind, "", "")
    # Numbers in it differ from one failure to the next; the longest part between them is what they share.
    key = max(group.error.split("#"), key=len).strip() or group.error
    return Facet(key[:200], kind or "Error", text or group.error, group.count, 100 * group.count / max(1, of))


def _row(job: Job[Any], now: int) -> dict[str, Any]:
    found, record = job_document(job), job.row
    if record is None:
        raise LookupError(f"{job!r} was not read from the store")
    ran = None
    if record.started_at is not None and record.state in (State.ACTIVE, State.COMPLETED, State.FAILED):
        ran = (record.finished_at or now) - record.started_at
    return {
        "id": job.id, "name": job.name, "look": look_of(record), "text": _text(found, record.state),
        "group": record.group, "made": None if record.never_started else record.attempts_made,
        "of": record.max_attempts, "ran": ran, "due": record.due,
        "at": record.finished_at or record.started_at or record.added_at,
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


def _letter(asking: Looking, letter: DeadLetterRow) -> dict[str, Any]:
    found = letter_document(letter, asking.app.redaction)
    ran = None if letter.started_at is None else letter.failed_at - letter.started_at
    return {
        "id": letter.id, "job": letter.job_id, "name": letter.name, "text": compact(redacted(found["error"] or "")),
        "group": letter.group, "made": None if ran is None else letter.attempts_made, "of": letter.max_attempts,
        "ran": ran, "at": letter.failed_at,
    }  # fmt: skip


def _run(asking: Looking, found: Queue, run: Run) -> dict[str, Any]:
    text = run_document(asking.app, found.name, run)["text"]
    ran = None if run.started_at is None else run.finished_at - run.started_at
    return {
        "id": run.id, "name": run.name, "text": text, "made": None if ran is None else run.attempts_made,
        "cause": run.cause.value, "ran": ran, "at": run.finished_at,
    }  # fmt: skip
