"""The page of a queue: charts, and jobs by state."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from toril.client.options import declaration_of
from toril.job import Job
from toril.model import Backoff, DeadLetterRow, Declaration, QueueSummary, RateLimit, RunRow, RunStatus, Settings, ms_of
from toril.model.states import State
from toril.operate.search import Failures, JobSearch
from toril.policy.error_groups import ErrorGroup
from toril.policy.metrics import RANGES, Range
from toril.policy.redaction import redacted
from toril.policy.retention import RUNS
from toril.policy.search import DeadLetterFilter, JobFilter
from toril.queue import Queue
from toril.web.api.common import A_LOOK, Cursor, Search, job_document, known_queue
from toril.web.api.dead_letters import letter_document
from toril.web.api.jobs import run_document
from toril.web.api.queues import read_names
from toril.web.pages.attention import of_queue
from toril.web.pages.drawing import ENDINGS, LOOKS, RESTING, StateLook, look_of
from toril.web.pages.page import PageRequest, PageSpec, View
from toril.web.pages.rests import rest_of
from toril.web.pages.search_box import SearchTerms, quoted, typed
from toril.web.templates import compact, number, span

__all__ = ["QUEUE", "ListedCount", "Tabs", "counted", "facets", "listed", "remembered"]

_FACETS: Final = 6
_CACHED_FOR: Final = 10.0  # seconds for which facets and expensive counts are kept
_LETTERS: Final = "letters:"  # prefix of the cursor of a page of dead letters
_ENDINGS: Final = {State.COMPLETED: RunStatus.COMPLETED, State.FAILED: RunStatus.FAILED}
_FAILED: Final = SearchTerms(JobFilter(ending=RunStatus.FAILED))
_BULK: Final = {
    State.FAILED: "retry remove", State.COMPLETED: "retry remove", State.DELAYED: "promote cancel remove",
    State.WAITING: "cancel remove", State.PRIORITIZED: "cancel remove", State.ACTIVE: "cancel",
    State.WAITING_CHILDREN: "cancel",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ListedCount:
    """How many jobs match; `more` says that not all were examined. `asked_at` leaves out later ones."""

    count: int
    more: bool = False
    asked_at: int = 0


@dataclass(frozen=True, slots=True)
class Facet:
    """Failures with one error. `key` is the text that they share."""

    key: str
    name: str
    text: str
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class Tabs:
    """How many jobs each tab lists, by its key, and how many of the failed ones are kept or are dead letters."""

    counts: dict[str, ListedCount]
    kept: int
    dead_letters: int

    @property
    def failed(self) -> int:
        return self.kept + self.dead_letters


async def counted(asking: PageRequest, found: Queue, view: QueueSummary) -> Tabs:
    counts = {state: ListedCount(view.counts.of(state)) for state in LOOKS}
    if view.counts.failed and view.cancelled_total:  # cancelled jobs that are kept are among them
        counts[State.FAILED] = await _matches(asking, found, State.FAILED, _FAILED)
    kept, letters = counts[State.FAILED], ListedCount(0)
    if asking.around.letters:
        letters = await _letters_meant(asking, _dead_letter_filter(found, typed("")))
        counts[State.FAILED] = ListedCount(kept.count + letters.count, kept.more or letters.more)
    for state, ending in _ENDINGS.items():
        if not counts[state].count:
            counts[state] = ListedCount(await _runs(asking, found, ending))
    by_key = {LOOKS[state].key: count for state, count in counts.items()}
    by_key[RESTING.key] = ListedCount(view.counts.resting)
    if view.cancelled_total:
        by_key[ENDINGS[RunStatus.CANCELLED].key] = ListedCount(await _runs(asking, found, RunStatus.CANCELLED))
    return Tabs(by_key, kept.count, letters.count)


async def _runs(asking: PageRequest, found: Queue, ending: RunStatus) -> int:
    async def ask() -> int:
        return len((await found.store.runs(found.name, ending, limit=RUNS)).items)

    return await asking.recall(("runs", found.name, ending), _CACHED_FOR, ask)


async def listed(
    asking: PageRequest, found: Queue, state: State, asked: SearchTerms, view: QueueSummary, tabs: Tabs
) -> dict[str, Any]:
    """The rows of the table; `kind` says what they are."""
    there = tabs.failed if state is State.FAILED else view.counts.of(state)
    after = asking.query.after
    if asked.id is not None:
        job = await found.job(asked.id) if len(asked.id) <= 256 else None
        rows = [] if job is None else [_row(job, asking.around.now)]
        return _table("jobs", rows, None, ListedCount(len(rows)))
    if state in _ENDINGS and not there:
        return await remembered(asking, found, _ENDINGS[state], asked)
    dead_letters = state is State.FAILED and tabs.dead_letters > 0
    if dead_letters and (not tabs.kept or (after or "").startswith(_LETTERS)):
        return await _letters(asking, found, asked)
    if state is State.FAILED and view.cancelled_total:
        asked = replace(asked, filter=replace(asked.filter, ending=RunStatus.FAILED))
    jobs = await found.search(state, asked.filter, cursor=after, limit=asking.query.limit, patience=A_LOOK)
    match = await _matches(asking, found, state, asked)
    body = {"state": state.value, **asked.body(), "asked_at": match.asked_at}
    rows = [_row(job, asking.around.now) for job in jobs.items]
    return _table("jobs", rows, jobs.cursor or (_LETTERS if dead_letters else None), match) | {
        "filter": body,
        "about": _about(found.name, LOOKS[state].key, asked),
        "bulk": _BULK.get(state, ""),
    }


async def _resting(asking: PageRequest, found: Queue, view: QueueSummary) -> dict[str, Any]:
    """The jobs that rest; they are among the delayed ones and those that wait for children too."""
    page = await found.store.steps.resting(found.name, cursor=asking.query.after, limit=asking.query.limit)
    rows = [_row(found.job_of(row), asking.around.now) for row in page.items]
    return _table("jobs", rows, page.cursor, ListedCount(view.counts.resting))


async def remembered(asking: PageRequest, found: Queue, ending: RunStatus, asked: SearchTerms) -> dict[str, Any]:
    """The runs that ended so, as far as they are remembered."""
    page = await JobSearch(found).run_rows(ending, asking.query.after, asking.query.limit, where=asked.filter)
    runs = [_run(asking, found, run) for run in page.items]
    return _table("runs", runs, page.cursor, ListedCount(len(runs), more=page.cursor is not None))


def _table(
    kind: Literal["jobs", "letters", "runs"], rows: list[dict[str, Any]], more: str | None, match: ListedCount
) -> dict[str, Any]:
    return {"kind": kind, "rows": rows, "next": more, "match": match, "filter": None, "about": "", "bulk": ""}


async def _matches(asking: PageRequest, found: Queue, state: State, asked: SearchTerms) -> ListedCount:
    async def ask() -> ListedCount:
        number = await found.count(state, asked.filter, patience=A_LOOK)
        return ListedCount(number.count, more=number.cursor is not None, asked_at=ms_of(number.asked_at))

    seconds = 0.0 if asked.filter.everything or asked == _FAILED else _CACHED_FOR
    return await asking.recall(("matches", found.name, state, asked.filter), seconds, ask)


def _dead_letter_filter(found: Queue, asked: SearchTerms) -> DeadLetterFilter:
    chosen = asked.filter
    return DeadLetterFilter(
        queue=found.name,
        name=chosen.name,
        error=chosen.error,
        key=chosen.key,
        text=chosen.text,
        group=chosen.group,
        subject=chosen.subject,
    )


async def _letters_meant(asking: PageRequest, where: DeadLetterFilter) -> ListedCount:
    async def ask() -> ListedCount:
        number = await asking.app.dead_letters.counted(where, patience=A_LOOK)
        return ListedCount(number.count, more=number.cursor is not None, asked_at=ms_of(number.asked_at))

    # If there are few, count them each time, so that the count fits the list.
    seconds = 0.0 if asking.around.letters <= RUNS else _CACHED_FOR
    return await asking.recall(("letters", repr(where)), seconds, ask)


async def _letters(asking: PageRequest, found: Queue, asked: SearchTerms) -> dict[str, Any]:
    where, cursor = _dead_letter_filter(found, asked), (asking.query.after or "").removeprefix(_LETTERS) or None
    page = await asking.app.dead_letters.rows(where, cursor=cursor, limit=asking.query.limit, patience=A_LOOK)
    match = await _letters_meant(asking, where)
    body = {"where": {"queue": found.name, **asked.body()}, "asked_at": match.asked_at}
    rows = [_letter(asking, letter) for letter in page.items]
    return _table("letters", rows, None if page.cursor is None else _LETTERS + page.cursor, match) | {
        "filter": body,
        "about": _about(found.name, "failed", asked),
        "bulk": "replay discard",
    }


def _about(queue: str, state: str, asked: SearchTerms) -> str:
    places = {"q": "text", "name": "name", "error": "error", "key": "data", "group": "group", "subject": "subject"}
    sought = [f"{places[k]} {v}" for k, v in asked.body().items() if k in places]
    return ", ".join([f"queue {queue}", f"state {state}", *sought])


async def facets(asking: PageRequest, found: Queue, tabs: Tabs) -> list[Facet]:
    """Failures by error: those that are kept or, without any, the dead letters."""

    async def ask() -> Failures:
        if tabs.kept:
            return await found.failures(patience=A_LOOK)
        return await asking.app.dead_letters.groups(DeadLetterFilter(queue=found.name), patience=A_LOOK)

    failures = await asking.recall(("failures", found.name, bool(tabs.kept)), _CACHED_FOR, ask)
    most = sum(group.count for group in failures.groups)
    return [_facet(group, most) for group in failures.groups[:_FACETS]]


def _facet(group: ErrorGroup, of: int) -> Facet:
    kind, _, text = group.error.partition(": ") if group.error.startswith(group.kind + ": ") else (group.kind, "", "")
    # Numbers vary between failures; the longest text between them is what they share.
    key = max(group.error.split("#"), key=len).strip() or group.error
    return Facet(key[:200], kind or "Error", text or group.error, group.count, 100 * group.count / max(1, of))


def _row(job: Job[Any], now: int) -> dict[str, Any]:
    found, record = job_document(job), job.row
    if record is None:
        raise LookupError(f"{job!r} was not read from the store")
    ran, rest = None, rest_of(record)
    if record.started_at is not None and record.state in (State.ACTIVE, State.COMPLETED, State.FAILED):
        ran = (record.finished_at or now) - record.started_at
    return {
        "id": job.id, "name": job.name, "look": look_of(record), "rests": rest is not None,
        "text": _text(found, record.state) if rest is None else rest.words,
        "group": record.group, "made": None if record.never_started else record.attempts_made,
        "of": record.max_attempts, "ran": ran, "due": record.due if rest is None else rest.until,
        "at": record.finished_at or record.started_at or record.added_at,
    }  # fmt: skip


def _text(found: dict[str, Any], state: State) -> str:
    """The most informative text about a job in its state."""
    match state:
        case State.FAILED:
            return redacted(found["error"] or "")
        case State.ACTIVE if found["progress"] not in (None, 0):
            return f"progress: {compact(found['progress'])}"
        case State.DELAYED if found["error"]:
            return f"retrying after: {redacted(found['error'])}"
        case State.COMPLETED if found["result"] is not None:
            return compact(found["result"])
        case _:
            return "" if found["data"] is None else compact(found["data"])


def _letter(asking: PageRequest, letter: DeadLetterRow) -> dict[str, Any]:
    found = letter_document(letter, asking.app.redaction)
    ran = None if letter.started_at is None else letter.failed_at - letter.started_at
    return {
        "id": letter.id, "job": letter.job_id, "name": letter.name, "text": compact(redacted(found["error"] or "")),
        "group": letter.group, "made": None if ran is None else letter.attempts_made, "of": letter.max_attempts,
        "ran": ran, "at": letter.failed_at,
    }  # fmt: skip


def _run(asking: PageRequest, found: Queue, run: RunRow) -> dict[str, Any]:
    text = run_document(asking.app, found.name, run)["text"]
    ran = None if run.started_at is None else run.finished_at - run.started_at
    return {
        "id": run.id, "name": run.name, "text": text, "made": None if ran is None else run.attempts_made,
        "cause": run.cause.value, "ran": ran, "at": run.finished_at,
    }  # fmt: skip


Tab: TypeAlias = Literal[
    "waiting",
    "prioritized",
    "active",
    "delayed",
    "resting",
    "children",
    "completed",
    "failed",
    "cancelled",
]

_A_PAGE: Final = 50
_NAMES: Final = 8  # job names to list by default
_CANCELLED: Final = ENDINGS[RunStatus.CANCELLED]
# Names of the fields that workers declare.
_WORDS: Final = {
    "max_attempts": "max attempts", "rate": "rate limit", "groups": "group limits", "max_waiting": "max waiting jobs",
    "backoff": "backoff", "priority_first": "priority order", "target_wait": "wait target",
    "keep_completed": "completed jobs to keep", "keep_failed": "failed jobs to keep", "lease": "lease",
    "timeout": "timeout", "max_stalls": "max stalls", "subject": "subject", "any_name": "accepted job names",
    "serializer": "serializer", "signals": "signals",
}  # fmt: skip
_STATES: Final = {look.key: state for state, look in LOOKS.items()}
# Names for the jobs of a tab, if they differ from the tab's key.
_NOUNS: Final = {"children": "waiting job", "prioritized": "waiting job", "active": "running job"}
# Texts of an empty tab: a heading, and what would be listed there.
_EMPTY: Final = {
    "waiting": ("No waiting jobs", "New jobs appear here until a worker claims them."),
    "prioritized": ("No prioritized jobs", "Jobs added with a priority appear here until a worker claims them."),
    "active": ("No running jobs", "Jobs appear here while a worker runs them."),
    "delayed": ("No delayed jobs", "Delayed jobs and jobs waiting for a retry appear here until they are due."),
    "resting": ("No resting jobs", "Jobs appear here while their handlers sleep, or wait for signals or other jobs."),
    "children": ("No parents waiting", "The parent of a flow appears here until its children have ended."),
    "completed": ("No completed jobs", "The last 1,000 runs appear here, even if the queue keeps no completed jobs."),
    "failed": ("No failed jobs", "Jobs that fail for good also become dead letters, with their data and traceback."),
    "cancelled": ("No cancelled jobs", "The last 1,000 cancelled jobs appear here. They do not count as failures."),
}


class QueuePageView(View):
    """Which jobs to list, and the time range of the charts."""

    range: Range = "1h"
    state: Tab | None = None
    q: Search = None
    error: Search = None
    after: Cursor = None
    names: Literal["", "all"] = ""
    limit: Annotated[int, Field(ge=1, le=100)] = _A_PAGE


async def queue(asking: PageRequest) -> dict[str, Any]:
    found, query, around = await known_queue(asking.app, asking.path["queue"]), asking.query, asking.around
    view = await asking.app.store.queue(found.name)
    tabs = await counted(asking, found, view)
    look = _chosen(query.state, tabs)
    asked = typed(query.q or "", query.error if look.key == "failed" else None)
    if look is _CANCELLED:
        table = await remembered(asking, found, RunStatus.CANCELLED, asked)
    elif look is RESTING:
        table = await _resting(asking, found, view)
    else:
        table = await listed(asking, found, _STATES[look.key], asked, view, tabs)
    declared = await asking.app.store.declarations(found.name)
    code = declared.newest or (declaration_of(found) if found.handlers.names else None)
    return {
        "title": found.name, "now": around.now, "name": found.name, "query": query, "view": view,
        "troubles": of_queue(around.needs, found.name), "ranges": list(RANGES),
        "facts": _facts(view.settings, code),
        "declared": declared, "code": code, "differing": [_WORDS.get(name, name) for name in declared.differing],
        "hour": next((each for each in around.overview.queues if each.queue == found.name), None),
        "tabs": _tabs(tabs, look), "look": look, "limits": _limits(view), "kept": tabs.kept,
        "buried": tabs.dead_letters, "empty": _EMPTY[look.key],
        "noun": "dead letter" if table["kind"] == "letters" else _NOUNS.get(look.key, f"{look.key} job"),
        "facets": await facets(asking, found, tabs) if look.key == "failed" and tabs.failed else [],
        "names": await _names(asking, found), "slots": _slots(asking, found.name), **table,
    }  # fmt: skip


async def _names(asking: PageRequest, found: Queue) -> dict[str, Any]:
    """Statistics by job name; only the first few, unless all are wanted."""
    names = await asking.recall(("names", found.name), _CACHED_FOR, lambda: read_names(found))
    shown = names.names if asking.query.names == "all" else names.names[:_NAMES]
    rows = [(each, quoted("name", each.name)) for each in shown]
    return {"since": names.since, "rows": rows, "of": len(names.names)}


def _chosen(key: str | None, tabs: Tabs) -> StateLook:
    """The tab that was requested; by default, the failed jobs if there are any."""
    rare = {look.key: look for look in (_CANCELLED, RESTING)}
    if key in rare:
        return rare[key]
    return LOOKS[_STATES[key] if key else State.FAILED if tabs.failed else State.WAITING]


def _tabs(tabs: Tabs, chosen: StateLook) -> list[tuple[StateLook, ListedCount]]:
    """All tabs, except those that few queues need and that are empty."""
    looks = list(LOOKS.values())
    looks.insert(looks.index(LOOKS[State.DELAYED]) + 1, RESTING)
    found = [(look, tabs.counts.get(look.key, ListedCount(0))) for look in (*looks, _CANCELLED)]
    rare = {LOOKS[State.PRIORITIZED], RESTING, _CANCELLED}
    return [(look, count) for look, count in found if look is chosen or count.count or look not in rare]


def _slots(asking: PageRequest, queue: str) -> tuple[int, int]:
    """How many slots all workers have for the queue, and how many of them are in use."""
    slots = [worker.queue_slots.get(queue, (0, 0)) for worker in asking.around.overview.workers]
    return sum(all_ for all_, _ in slots), sum(used for _, used in slots)


@dataclass(frozen=True, slots=True)
class Fact:
    """A setting of the queue, and a note on where it comes from."""

    name: str
    value: str
    note: str = ""


def _facts(settings: Settings, declared: Declaration | None) -> list[Fact]:
    """What is set in the store, and what the code declares, if that is known."""
    rate = None if declared is None else declared.rate
    facts = [_at_once(settings.concurrency, declared), _starts(settings.rate, rate)]
    if declared is not None:
        facts.append(Fact("Attempts", number(declared.max_attempts), _backoff(declared.backoff)))
        facts.append(Fact("Lease", span(declared.lease)))
        if declared.timeout is not None:
            facts.append(Fact("Timeout", span(declared.timeout)))
        facts.append(Fact("Wait target", span(declared.target_wait)))
    if settings.groups.concurrency:
        code = None if declared is None or declared.groups is None else declared.groups.concurrency
        note = f"set here; code: {_or_none(code)}" if code != settings.groups.concurrency else ""
        facts.append(Fact("Group concurrency", number(settings.groups.concurrency), note))
    return facts


def _at_once(limit: int | None, declared: Declaration | None) -> Fact:
    code = "" if declared is None else f"{number(declared.concurrency)} per worker"
    if limit is None:
        return Fact("Concurrency", code or "no limit")
    return Fact("Concurrency", number(limit), "set here" + (f"; code: {code}" if code else ""))


def _starts(limit: RateLimit | None, code: RateLimit | None) -> Fact:
    if limit is None:
        return Fact("Rate limit", _rate(code))
    return Fact("Rate limit", _rate(limit), "set here" + (f"; code: {_rate(code)}" if code else ""))


def _rate(rate: RateLimit | None) -> str:
    return "none" if rate is None else f"{number(rate.max)} per {span(rate.per * 1000)}"


def _backoff(backoff: Backoff) -> str:
    return f"{backoff.strategy or backoff.kind} backoff from {span(backoff.delay)}"


def _or_none(value: int | None) -> str:
    return "none" if value is None else number(value)


def _limits(view: QueueSummary) -> dict[str, Any]:
    rate = view.settings.rate
    before = None if rate is None else {"max": rate.max, "per": rate.per, "window": rate.window}
    return {"concurrency": view.settings.concurrency, "rate": before}


QUEUE: Final = (PageSpec(path="/queues/{queue}", template="queue.html", show=queue, query=QueuePageView),)
