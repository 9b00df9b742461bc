"""Searches the jobs and run records of a queue, a bounded part at a time."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from toril.codec.encoding import readable
from toril.errors import InvalidOption, preview
from toril.model import DEAD_LETTER_CAUSES, JobRow, Page, RunRow, RunStatus, SearchPage, check_int, letter_id, moment
from toril.model.durations import Duration, milliseconds
from toril.model.states import FINISHED, State
from toril.policy.error_groups import ErrorGroup, FailureSample, grouped
from toril.policy.redaction import masked, redacted
from toril.policy.retention import RUNS
from toril.policy.search import EndingName, JobFilter, Searchable
from toril.runtime.clock import SYSTEM
from toril.store.engine import Store

if TYPE_CHECKING:
    from toril.job import Job
    from toril.queue import Queue

__all__ = ["Failures", "JobSearch", "MatchCount", "StateName", "scan_pages"]

T = TypeVar("T")

StateName = Literal["waiting", "prioritized", "active", "delayed", "waiting_children", "completed", "failed"]

_A_PAGE: Final = 100
LOOKED: Final = 5_000  # jobs examined per call
PATIENCE: Final = 2.0  # seconds that a call takes, plus the page that it is reading
_SAMPLE: Final = 2_000  # failures to group


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchCount:
    """How many of the `looked` jobs match. With a `cursor`, there are more to examine. `asked_at` is the store's time
    before the count; an action that uses it as its limit leaves later jobs alone."""

    count: int
    looked: int
    cursor: str | None
    asked_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Failures grouped by error, the most frequent first, among the latest `looked` of `of` failures."""

    groups: tuple[ErrorGroup, ...]
    looked: int
    of: int


async def scan_pages(
    read: Callable[[str | None, int], Awaitable[Page[T]]],
    choose: Callable[[Sequence[T]], Awaitable[list[int]]],
    *,
    cursor: str | None,
    limit: int,
    most: int = LOOKED,
    patience: Duration = PATIENCE,
) -> SearchPage[T]:
    """The first `limit` items that `choose` accepts, from page after page. It may find fewer and still have a cursor:
    then it has examined `most`, or spent `patience`, and there is more."""
    found: list[T] = []
    looked, size, until = 0, min(_A_PAGE, most), SYSTEM.monotonic() + milliseconds("patience", patience) / 1000
    while True:
        page = await read(cursor, size)
        chosen = await choose(page.items)
        room = limit - len(found)
        if len(chosen) > room:
            size = chosen[room - 1] + 1  # read again, up to the last one that fits, so that the cursor is there
            continue
        found += [page.items[index] for index in chosen]
        looked, cursor = looked + len(page.items), page.cursor
        size = min(_A_PAGE, most - looked) or 1
        if cursor is None or len(found) >= limit or looked >= most or SYSTEM.monotonic() > until:
            return SearchPage(tuple(found), cursor, looked)


class JobSearch:
    """Searches one queue. `Queue` documents the public methods; the others are for Toril's own pages."""

    def __init__(self, queue: "Queue") -> None:
        self._queue = queue
        self._name = queue.name
        self._redaction = queue.services.redaction

    @property
    def _store(self) -> Store:
        return self._queue.services.store

    async def search(
        self,
        state: StateName | State,
        where: JobFilter = JobFilter(),
        *,
        cursor: str | None = None,
        limit: int = 50,
        patience: Duration = PATIENCE,
    ) -> "SearchPage[Job[Any]]":
        """See `Queue.search`."""
        wanted, limit = as_state(state), min(check_int("limit", limit, 1, 2**53), LOOKED)

        async def read(at: str | None, size: int) -> Page[JobRow]:
            return await self._store.page(self._name, wanted, cursor=at, limit=size)

        async def choose(rows: Sequence[JobRow]) -> list[int]:
            return [index for index, row in enumerate(rows) if where.fits(self._seen(row))]

        async def all_of(rows: Sequence[JobRow]) -> list[int]:
            return list(range(len(rows)))

        if where.everything:
            found = await scan_pages(read, all_of, cursor=cursor, limit=limit, most=limit, patience=patience)
        else:
            found = await scan_pages(read, choose, cursor=cursor, limit=limit, patience=patience)
        return SearchPage(tuple(map(self._queue.job_of, found.items)), found.cursor, found.looked)

    async def count(
        self,
        state: StateName | State,
        where: JobFilter = JobFilter(),
        *,
        cursor: str | None = None,
        patience: Duration = PATIENCE,
    ) -> MatchCount:
        """See `Queue.count`."""
        asked_at = moment((await self._store.health()).now)
        if where.everything:
            every = (await self._store.counts(self._name)).of(as_state(state))
            return MatchCount(count=every, looked=every, cursor=None, asked_at=asked_at)
        found = await self.search(state, where, cursor=cursor, limit=LOOKED, patience=patience)
        return MatchCount(count=len(found.items), looked=found.looked, cursor=found.cursor, asked_at=asked_at)

    async def failures(self, *, patience: Duration = PATIENCE) -> Failures:
        """See `Queue.failures`."""
        total = (await self._store.counts(self._name)).failed
        found = await self.search(State.FAILED, limit=_SAMPLE, patience=patience)
        failed = [
            FailureSample(row.id, row.failure.kind, self.error_of(row), row.finished_at or 0)
            for job in found.items
            if (row := job.row) is not None and row.failure is not None and row.ending is RunStatus.FAILED
        ]
        return Failures(groups=grouped(failed), looked=found.looked, of=max(total, found.looked))

    async def run_rows(
        self,
        status: EndingName | RunStatus,
        cursor: str | None = None,
        limit: int = 20,
        subject: str | None = None,
        *,
        where: JobFilter = JobFilter(),
    ) -> SearchPage[RunRow]:
        """The answer of `Queue.runs` as the store returns it, in milliseconds."""
        if status not in tuple(RunStatus):
            raise InvalidOption(f"status must be 'completed', 'failed' or 'cancelled', not {preview(status)}")
        check_int("limit", limit, 1, 2**53)
        ending = RunStatus(status)

        async def read(at: str | None, size: int) -> Page[RunRow]:
            return await self._store.runs(self._name, ending, cursor=at, limit=size)

        async def choose(runs: Sequence[RunRow]) -> list[int]:
            payloads = await self._payloads(runs) if where.looks_within else {}
            return [
                index
                for index, run in enumerate(runs)
                if subject in {None, run.subject} and where.fits(self.seen_run(run, payloads.get(run.id)))
            ]

        if subject is None and where.everything:
            page = await read(cursor, limit)
            return SearchPage(page.items, page.cursor, len(page.items))
        return await scan_pages(read, choose, cursor=cursor, limit=limit)

    async def failures_in_a_row(self, subject: str) -> int:
        """How many jobs about a subject have failed for good since the last success, as far as run records go back: a
        queue remembers the last 1,000 successes, and failures before all of these do not count."""
        good = (await self.run_rows("completed", limit=RUNS)).items
        since = next((run.finished_at for run in good if run.subject == subject), None)
        if since is None:  # the success may be among those no longer remembered
            since = good[-1].finished_at if len(good) == RUNS else -1
        bad = (await self.run_rows("failed", limit=RUNS, subject=subject)).items
        return sum(run.finished_at > since and run.cause in DEAD_LETTER_CAUSES for run in bad)

    async def _payloads(self, runs: Sequence[RunRow]) -> dict[str, Any]:
        """The payloads of runs, as they may be shown, if they are still stored."""
        ids = list(dict.fromkeys(run.id for run in runs))
        records = await self._store.jobs(self._name, ids)
        found = {each.id: self._data(each.name, each.data) for each in records if each is not None}
        gone = [letter_id(self._name, identity) for identity in ids if identity not in found]
        letters = await self._store.dead_letters.get(gone) if gone else []
        return found | {each.job_id: self._data(each.name, each.data) for each in letters if each is not None}

    def _seen(self, row: JobRow) -> Searchable:
        ended = row.finished_at if row.state in FINISHED else row.added_at
        data, error = self._data(row.name, row.data), self.error_of(row)
        return Searchable(
            id=row.id,
            name=row.name,
            error=error,
            data=data,
            moment=ended,
            worker=row.worker,
            ending=row.ending,
            group=row.group,
            subject=row.options.subject,
        )

    def seen_run(self, run: RunRow, data: Any = None) -> Searchable:
        """What a filter sees of a run record, which has no payload of its own."""
        error = "" if run.ending is RunStatus.COMPLETED else run.text
        shown = redacted(self._redaction.text(error, "error", self._name, run.name) or "")
        return Searchable(
            id=run.id,
            name=run.name,
            error=shown,
            data=data,
            moment=run.finished_at,
            worker=run.worker,
            ending=run.ending,
            subject=run.subject,
        )

    def error_of(self, row: JobRow) -> str:
        """Why a job failed, as it may be shown."""
        reason = "" if row.failure is None else row.failure.reason
        return redacted(self._redaction.text(reason, "error", self._name, row.name) or "")

    def _data(self, name: str, text: str) -> Any:
        """A payload without its secrets, so that nobody can find a hidden value letter by letter."""
        return self._redaction.seen(masked(readable(text)), "data", self._name, name)


def as_state(state: object) -> State:
    """A state, from its text or from itself."""
    try:
        return State(str(state))
    except ValueError:
        known = ", ".join(State)
        raise InvalidOption(f"a state must be one of {known}, not {preview(state)}") from None
