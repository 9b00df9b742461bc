"""Endpoints that search jobs, dead letters and run records in all queues. A search is limited in time: it says how far
it has got, and where to continue."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import Field

from toril.app import App
from toril.job import Job
from toril.model import Counts, RunStatus
from toril.model.states import State
from toril.operate.search import JobSearch
from toril.policy.retention import RUNS
from toril.policy.search import DeadLetterFilter, JobFilter
from toril.queue import Queue, queue_named
from toril.runtime.clock import SYSTEM
from toril.web.access import Role
from toril.web.api.common import SearchQuery, job_document
from toril.web.api.jobs import run_document
from toril.web.messages import Problem
from toril.web.routing import Endpoint, Request
from toril.web.templates import compact

__all__ = ["SEARCH", "SearchPlace", "SearchStep", "look_everywhere", "named"]

_SOON: Final = 0.16  # seconds that a search may take before it answers
_EACH: Final = 0.03  # seconds for one place, so that a large one does not hide the others
_HITS: Final = 20  # per place
_NAMED: Final = 0.1  # seconds to look for an id
_TEXT: Final = 300  # characters to show of a hit
_LONGEST_ID: Final = 256

# In this order: what people look for most comes first. Run records come last, as they have no payload.
_STATES: Final = (
    State.FAILED, State.ACTIVE, State.WAITING, State.PRIORITIZED, State.DELAYED, State.WAITING_CHILDREN,
    State.COMPLETED,
)  # fmt: skip
_RUNS: Final = {f"{ending}_runs": ending for ending in (RunStatus.FAILED, RunStatus.COMPLETED, RunStatus.CANCELLED)}
LETTERS: Final = "dead_letters"


@dataclass(frozen=True, slots=True)
class SearchPlace:
    """A place to search: the dead letters of all queues, the jobs of a queue in a state, or its run records."""

    kind: str
    queue: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.queue}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStep:
    """The result of one search step. `places` has each place that was searched, how many items were examined there and
    whether there are more; `next` is where to continue."""

    hits: Sequence[dict[str, Any]] = ()
    places: Sequence[dict[str, Any]] = ()
    next: str | None = None
    left: int = 0

    @property
    def looked(self) -> int:
        return sum(place["looked"] for place in self.places)


@dataclass(slots=True)
class _Found:
    """The hits of one place."""

    hits: list[dict[str, Any]] = field(default_factory=list)
    looked: int = 0
    more: bool = False


class SearchEverywhereQuery(SearchQuery):
    """At least one filter. `cursor` is where an earlier search stopped."""

    cursor: Annotated[str | None, Field(max_length=1024)] = None


async def search_jobs(asking: Request) -> dict[str, Any]:
    form: SearchEverywhereQuery = asking.query
    where = form.filter()
    if where.everything:
        raise Problem(422, "invalid", "q: give at least one filter", field="q")
    counts = {name: await asking.app.store.counts(name) for name in sorted(await asking.app.store.queues())}
    found = await look_everywhere(asking.app, where, counts, form.cursor)
    return {
        "items": list(found.hits), "places": list(found.places), "looked": found.looked, "cursor": found.next,
        "left": found.left,
    }  # fmt: skip


async def look_everywhere(app: App, where: JobFilter, counts: Mapping[str, Counts], cursor: str | None) -> SearchStep:
    """Search place after place, newest items first, until the time is up."""
    places = list(_places(counts))
    start = next((at for at, place in enumerate(places) if str(place) == cursor), 0)
    hits: dict[tuple[str, str], dict[str, Any]] = {}
    searched: list[dict[str, Any]] = []
    until = SYSTEM.monotonic() + _SOON
    at = start
    while at < len(places) and (at == start or SYSTEM.monotonic() < until):
        place = places[at]
        found = await _looked(app, place, where)
        for hit in found.hits:  # a job that is kept, or is a dead letter, has a run record too
            hits.setdefault((hit["queue"], hit["id"]), hit)
        searched.append({"kind": place.kind, "queue": place.queue or None, "looked": found.looked, "more": found.more})
        at += 1
    left = len(places) - at
    return SearchStep(hits=tuple(hits.values()), places=searched, next=str(places[at]) if left else None, left=left)


def _places(counts: Mapping[str, Counts]) -> Iterator[SearchPlace]:
    yield SearchPlace(LETTERS)
    for state in _STATES:
        yield from (SearchPlace(state.value, queue) for queue, each in counts.items() if each.of(state))
    for kind in _RUNS:
        yield from (SearchPlace(kind, queue) for queue in counts)


async def _looked(app: App, place: SearchPlace, where: JobFilter) -> _Found:
    if place.kind == LETTERS:
        return await _letters(app, where)
    queue = queue_named(app.services, place.queue)
    if place.kind in _RUNS:
        return await _runs(app, queue, _RUNS[place.kind], where)
    found = await queue.search(State(place.kind), where, limit=_HITS, patience=_EACH)
    return _Found([_hit(job) for job in found.items], found.looked, more=found.cursor is not None)


def _hit(found: Job[Any]) -> dict[str, Any]:
    job = job_document(found)
    text = job["error"] or ("" if job["data"] is None else job["data"])
    return {
        "queue": job["queue"], "id": job["id"], "name": job["name"], "state": job["ending"] or job["state"],
        "dead_letter": job["dead_letter"], "at": job["finished_at"] or job["started_at"] or job["added_at"],
        "text": compact(text, _TEXT), "group": job["group"], "subject": job["subject"],
    }  # fmt: skip


async def _letters(app: App, where: JobFilter) -> _Found:
    meant = DeadLetterFilter(
        name=where.name,
        error=where.error,
        key=where.key,
        text=where.text,
        group=where.group,
        subject=where.subject,
        before=where.until,
    )
    found = await app.dead_letters.rows(meant, limit=_HITS, patience=_EACH)
    letters = [each for each in found.items if where.worker in {None, each.worker}]
    return _Found([_hit(app.dead_letters.as_job(each)) for each in letters], found.looked, found.cursor is not None)


async def _runs(app: App, queue: Queue, ending: RunStatus, where: JobFilter) -> _Found:
    """Search run records, which have no payload; a job that is kept, or its dead letter, was searched before."""
    runs = (await queue.store.runs(queue.name, ending, limit=RUNS)).items
    search = JobSearch(queue)
    fitting = [run for run in runs if where.fits(search.seen_run(run))]
    hits = [
        {
            "queue": queue.name,
            "id": run.id,
            "name": run.name,
            "state": run.ending.value,
            "dead_letter": None,
            "at": run.finished_at,
            "text": compact(run_document(app, queue.name, run)["text"], _TEXT),
            "group": None,
            "subject": run.subject,
        }
        for run in fitting[:_HITS]
    ]
    return _Found(hits, len(runs), more=len(fitting) > _HITS)


async def named(app: App, queues: Sequence[str], identity: str) -> tuple[list[dict[str, Any]], int]:
    """The jobs and dead letters with this id, and how many queues there was time to check."""
    found: list[dict[str, Any]] = []
    until, looked = SYSTEM.monotonic() + _NAMED, 0
    for name in queues if 0 < len(identity) <= _LONGEST_ID else ():
        if SYSTEM.monotonic() > until:
            break
        job = await queue_named(app.services, name).job(identity)
        found += [] if job is None else [_hit(job)]
        looked += 1
    return found, looked


SEARCH: Final = (
    Endpoint(
        method="GET",
        path="/search",
        role=Role.READ,
        run=search_jobs,
        query=SearchEverywhereQuery,
        does="Search jobs, dead letters and run records in all queues, newest first. A search takes a moment at most; "
        "continue with the cursor.",
    ),
)
