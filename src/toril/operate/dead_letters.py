"""`app.dead_letters`: list, replay and discard the jobs that failed for good."""

from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, TypeAlias, TypeVar

from toril.codec.encoding import decode, encode, metadata_of, readable
from toril.errors import InvalidOption, InvalidPayload, NotFound, TorilError, UsageError, WrongState, preview
from toril.job import Job
from toril.model import (
    Backoff,
    ControlResult,
    DeadLetterRow,
    Keep,
    Refused,
    Replay,
    SearchPage,
    job_of,
    letter_id,
    moment,
)
from toril.model.durations import Duration, milliseconds
from toril.operate.search import LOOKED, PATIENCE, Failures, MatchCount
from toril.policy.error_groups import FailureSample, grouped
from toril.policy.redaction import masked, redacted
from toril.policy.retry import Exponential, Fixed, Strategy, Waiting, check_known
from toril.policy.search import DeadLetterFilter, cursor_of
from toril.queue import Queue, job_of_row
from toril.records import DeadLetter, as_record
from toril.runtime.clock import SYSTEM
from toril.runtime.services import Services
from toril.store.capabilities import SortOrder

__all__ = ["DeadLetters", "Replayed", "of_queue", "replay_job"]

T = TypeVar("T")

_A_CALL: Final = 100  # letters moved or deleted in one step
_A_PAGE: Final = 100

Which: TypeAlias = DeadLetterFilter | Sequence[str] | str
Edit: TypeAlias = Callable[[Any], Any]
OnProgress: TypeAlias = Callable[[int], object]


def of_queue(queue: Queue) -> "DeadLetters":
    """The dead letters, for code that knows only this queue."""
    return DeadLetters(queue.services, {queue.name: queue})


async def replay_job(queue: Queue, job_id: str) -> None:
    """Replay the job of a dead letter, or raise an error that says why not."""
    replayed = await of_queue(queue).replay(letter_id(queue.name, job_id))
    for reason in replayed.invalid.values():
        raise InvalidPayload(f"job {job_id!r} cannot be retried: {reason}")
    for refused in replayed.refused:
        if refused.state is None:
            raise NotFound(f"there is no job {preview(job_id)} in queue {queue.name!r}")
        raise WrongState(f"job {job_id!r} is {refused.state} and cannot be retried")


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many dead letters were replayed or discarded, and which were not.

    `refused` has those that are gone or whose id another job has taken; `invalid` has, with the reason, those whose
    `edit` failed or whose payload no longer fits their handler.
    """

    count: int = 0
    refused: tuple[Refused, ...] = ()
    invalid: Mapping[str, str] = field(default_factory=dict)


class DeadLetters:
    """`app.dead_letters`: the jobs that failed for good. Jobs that `keep_failed` keeps in their queue are not among
    them."""

    def __init__(self, services: Services, queues: Mapping[str, Queue], strategies: Container[str] = ()) -> None:
        self._services = services
        self._queues = queues
        self._strategies = strategies

    async def page(
        self,
        where: DeadLetterFilter | None = None,
        *,
        cursor: str | None = None,
        limit: int = 50,
        order: SortOrder = "newest",
        patience: Duration = PATIENCE,
    ) -> SearchPage[DeadLetter]:
        """Read a page of the dead letters that match a filter, the latest first.

        One call looks at no more than 5,000 letters and for no longer than `patience`, so a page may be short or even
        empty and still have a cursor.
        """
        found = await self.rows(where, cursor=cursor, limit=limit, order=order, patience=patience)
        return SearchPage(tuple(map(self._read, found)), found.cursor, found.looked)

    async def rows(
        self,
        where: DeadLetterFilter | None = None,
        *,
        cursor: str | None = None,
        limit: int = 50,
        order: SortOrder = "newest",
        patience: Duration = PATIENCE,
    ) -> SearchPage[DeadLetterRow]:
        """The same as the store returns it, in milliseconds; for Toril's own pages and commands."""
        found: list[DeadLetterRow] = []
        looked, until = 0, SYSTEM.monotonic() + milliseconds("patience", patience) / 1000
        while looked < LOOKED:
            page = await self._services.store.dead_letters.page(order=order, cursor=cursor, limit=_A_PAGE)
            for letter in page.items:
                looked += 1
                if where is not None and not where.matches(letter, self._seen, self._error):
                    continue
                if len(found) == limit:
                    return SearchPage(tuple(found), cursor_of(found[-1]), looked - 1)
                found.append(letter)
            cursor = page.cursor
            if cursor is None or SYSTEM.monotonic() > until:
                break
        return SearchPage(tuple(found), cursor, looked)

    async def show(self, letter: str) -> DeadLetter:
        """Read one dead letter. Raises `NotFound` if there is none with this id."""
        return self._read(await self.row(letter))

    async def row(self, letter: str) -> DeadLetterRow:
        """The same as the store returns it."""
        (found,) = await self._services.store.dead_letters.get([letter])
        if found is None:
            raise NotFound(f"there is no dead letter {preview(letter)}; it may have been replayed or discarded")
        return found

    async def job(self, letter: str) -> Job[Any]:
        """The job that a dead letter is; use it to read `logs()` and `errors()`, or to control it."""
        return self.as_job(await self.row(letter))

    def as_job(self, letter: DeadLetterRow) -> Job[Any]:
        """The same, for a dead letter that has been read."""
        return job_of_row(self._services, job_of(letter))

    def fits(self, letter: DeadLetterRow) -> bool | None:
        """Tell whether the payload is what the handler takes; None if this app does not declare the handler."""
        queue = self._queue_of(letter)
        entry = None if queue is None else queue.handlers.find(letter.name)
        if entry is None:
            return None
        try:
            entry.payload.decode(letter.data)
        except TorilError:
            return False
        return True

    async def count(self, where: DeadLetterFilter | None = None) -> int:
        """Count the dead letters that match a filter."""
        if where is None:
            return await self._services.store.dead_letters.count()
        return sum([1 async for _ in self._walk(where, "newest", None)])

    async def counted(
        self, where: DeadLetterFilter, *, cursor: str | None = None, patience: Duration = PATIENCE
    ) -> MatchCount:
        """Count the matches among the next 5,000, and tell where to continue; an empty filter counts all at once."""
        asked_at = moment((await self._services.store.health()).now)
        if where == DeadLetterFilter():
            every = await self._services.store.dead_letters.count()
            return MatchCount(count=every, looked=every, cursor=None, asked_at=asked_at)
        page = await self.rows(where, cursor=cursor, limit=LOOKED, patience=patience)
        return MatchCount(count=len(page.items), looked=page.looked, cursor=page.cursor, asked_at=asked_at)

    async def groups(self, where: DeadLetterFilter | None = None, *, patience: Duration = PATIENCE) -> Failures:
        """Group the dead letters that match a filter by their error; looks at the latest 5,000, or at as many as it can
        within `patience`."""
        page = await self.rows(where, limit=LOOKED, patience=patience)
        failed = [
            FailureSample(letter.id, letter.failure.kind, self._error(letter), letter.failed_at)
            for letter in page.items
        ]
        every = await self._services.store.dead_letters.count()
        return Failures(groups=grouped(failed), looked=page.looked, of=max(every, page.looked))

    async def keep(self, keep: Keep) -> Keep:
        """Set how many dead letters the whole store keeps, and for how long. By default it keeps all of them."""
        return await self._services.store.dead_letters.keep(keep)

    async def replay(
        self,
        which: Which,
        *,
        attempts: int | None = None,
        backoff: Waiting | str | None = None,
        edit: Edit | None = None,
        on_progress: OnProgress | None = None,
    ) -> Replayed:
        """Run jobs again in the queue that they came from, with their own name and id, oldest first.

        Each runs once: what fails meanwhile is left alone. If a parent of a flow is replayed, its children that have
        not succeeded run again first; those that are dead letters are counted too.

        Args:
            which: The id of a dead letter, several ids, or a `DeadLetterFilter`.
            attempts: How many attempts the jobs get, in place of what they had.
            backoff: How long to wait between attempts, in place of what they had.
            edit: A function that takes the old payload and returns the new one, which is checked as in an add.
            on_progress: A function that is called with the number of jobs replayed so far.
        """
        wire = self._wire(backoff)
        invalid: dict[str, str] = {}

        async def step(letters: Sequence[DeadLetterRow]) -> list[ControlResult]:
            replays: list[tuple[str, Replay]] = []
            for letter in _children_first(letters):
                try:
                    replays.append((letter.queue, self._replay_of(letter, attempts, wire, edit)))
                except TorilError as error:
                    invalid[letter.id] = str(error)
            calls = groupby(replays, key=lambda each: each[0])
            return [await self._replay(queue, [replay for _, replay in some]) for queue, some in calls]

        count, refused = await self._act(which, step, on_progress)
        return Replayed(count, refused, invalid)

    async def discard(self, which: Which, *, on_progress: OnProgress | None = None) -> Replayed:
        """Delete dead letters for good."""

        async def step(letters: Sequence[DeadLetterRow]) -> list[ControlResult]:
            ids = [letter.id for letter in letters]
            return [await self._services.call(lambda call: self._services.store.dead_letters.discard(ids, call=call))]

        return Replayed(*await self._act(which, step, on_progress))

    def _read(self, row: DeadLetterRow) -> DeadLetter:
        queue = self._queue_of(row)
        return as_record(
            DeadLetter,
            row,
            row.options,
            data=readable(row.data) if queue is None else queue.handlers.decode(row.name, row.data),
            metadata=metadata_of(row.metadata),
            checkpoint=None if row.checkpoint is None else readable(row.checkpoint),
            progress=None if row.progress is None else readable(row.progress),
        )

    def _queue_of(self, letter: DeadLetterRow) -> Queue | None:
        """Its original queue, if this app declares it."""
        queues = self._queues  # its `get` would raise
        return queues[letter.queue] if letter.queue in queues else None  # noqa: SIM401

    def _seen(self, letter: DeadLetterRow) -> Any:
        """A payload as it may be shown: what is hidden cannot be found by a search."""
        return self._services.redaction.seen(masked(readable(letter.data)), "data", letter.queue, letter.name)

    def _error(self, letter: DeadLetterRow) -> str:
        return redacted(self._services.redaction.text(letter.failure.reason, "error", letter.queue, letter.name) or "")

    def _wire(self, backoff: Waiting | str | None) -> Backoff | None:
        if backoff is None:
            return None
        waiting = Strategy(backoff) if isinstance(backoff, str) else backoff
        if not isinstance(waiting, Fixed | Exponential | Strategy):
            raise InvalidOption(
                f"backoff must be Fixed(…), Exponential(…), Strategy(…) or a strategy's name, not {preview(backoff)}"
            )
        return check_known(waiting.wire(), self._strategies)

    async def _replay(self, queue: str, replays: Sequence[Replay]) -> ControlResult:
        return await self._services.call(
            lambda call: self._services.store.dead_letters.replay(queue, replays, call=call)
        )

    def _replay_of(
        self, letter: DeadLetterRow, attempts: int | None, backoff: Backoff | None, edit: Edit | None
    ) -> Replay:
        """The replay of one letter. Its payload is checked against the handler's type, if this app declares it."""
        queue = self._queue_of(letter)
        if edit is None:
            entry = None if queue is None else queue.handlers.find(letter.name)
            if entry is not None:
                entry.payload.decode(letter.data)
            return Replay(letter.id, None, attempts, backoff)
        old = decode(letter.data)
        try:
            data = edit(old)
        except Exception as error:
            raise UsageError(f"edit raised {error!r}; fix it and replay this dead letter again") from error
        text = encode(data) if queue is None else queue.handlers.encode(letter.name, data)
        return Replay(letter.id, text, attempts, backoff)

    async def _act(
        self,
        which: Which,
        step: Callable[[Sequence[DeadLetterRow]], Awaitable[list[ControlResult]]],
        on_progress: OnProgress | None,
    ) -> tuple[int, tuple[Refused, ...]]:
        count = 0
        refused: list[Refused] = []
        async for letters in self._chunks(which, refused):
            for changed in await step(letters):
                count += len(changed.done)
                refused += changed.refused
            if on_progress is not None:
                on_progress(count)
        return count, tuple(refused)

    async def _chunks(self, which: Which, missing: list[Refused]) -> AsyncIterator[list[DeadLetterRow]]:
        """The selected letters, in chunks; ids without a letter go to `missing`."""
        if isinstance(which, DeadLetterFilter):
            chunk: list[DeadLetterRow] = []
            newest = (await self._services.store.dead_letters.page(order="newest", limit=1)).items
            async for letter in self._walk(which, "oldest", None):
                if not newest or letter.failed_at > newest[0].failed_at:
                    break  # it is newer: otherwise what fails again would come up again and again
                chunk.append(letter)
                if len(chunk) == _A_CALL:
                    yield chunk
                    chunk = []
            if chunk:
                yield chunk
            return
        ids = [which] if isinstance(which, str) else list(dict.fromkeys(which))
        for first in range(0, len(ids), _A_CALL):
            part = ids[first : first + _A_CALL]
            found = await self._services.store.dead_letters.get(part)
            missing += [Refused(each, None) for each, letter in zip(part, found, strict=True) if letter is None]
            yield [letter for letter in found if letter is not None]

    async def _walk(
        self, where: DeadLetterFilter, order: SortOrder, cursor: str | None
    ) -> AsyncIterator[DeadLetterRow]:
        while True:
            page = await self._services.store.dead_letters.page(order=order, cursor=cursor, limit=_A_PAGE)
            for letter in page.items:
                if where.matches(letter, self._seen, self._error):
                    yield letter
            cursor = page.cursor
            if cursor is None:
                return


def _children_first(letters: Sequence[DeadLetterRow]) -> list[DeadLetterRow]:
    """Sorted by queue, but with children of flows first and in their order: each is replayed by itself, not with its
    parent."""
    children = [letter for letter in letters if letter.parent is not None]
    others = [letter for letter in letters if letter.parent is None]
    first = {letter.queue: place for place, letter in reversed(list(enumerate(others)))}
    return children + sorted(others, key=lambda letter: first[letter.queue])
