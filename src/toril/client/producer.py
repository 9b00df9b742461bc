"""Prepares jobs for the store: in chunks, and in batches if many are added at once."""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from toril.errors import AddUncertain, InvalidPayload, QueueFull, TorilError
from toril.events import JobEvent
from toril.job import Job
from toril.model import BATCH, Added, AddOutcome, NewJob, NewJobs
from toril.model.values import fast_frozen

if TYPE_CHECKING:
    from toril.queue import Queue

__all__ = ["AddBatcher", "AddChunk", "Item", "JobTemplate", "JobTemplates", "PreparedJob", "chunks", "handles"]

Item: TypeAlias = "PreparedJob[Any] | tuple[Any, Any] | tuple[Any, Any, Mapping[str, Any]]"
R = TypeVar("R", covariant=True)

_NOBODY: Final = object()


@fast_frozen
class PreparedJob(Generic[R]):
    """A job that is checked but not yet added, made by `queue.new` or `task.new`. `R` is the type of its result."""

    queue: "Queue"
    job: NewJob
    data: Any


@fast_frozen
class AddChunk:
    """Up to 1,000 prepared jobs, and the payload of each."""

    jobs: NewJobs
    data: list[Any]


@fast_frozen
class JobTemplate:
    """A job without options of its own, to add many of the same name, and the encoder of their payloads."""

    job: NewJob
    encode: Callable[[Any], str]


class JobTemplates:
    """The templates that one call has used, by job name."""

    def __init__(self, name_of: Callable[[Any], str], kind_of: Callable[[str], JobTemplate]) -> None:
        self._name_of = name_of
        self._kind_of = kind_of
        self._known: dict[str, JobTemplate] = {}

    def of(self, job: Any) -> JobTemplate:
        name = self._name_of(job)
        if name not in self._known:
            self._known[name] = self._kind_of(name)
        return self._known[name]


def chunks(
    items: Iterable[Item], plan: Callable[[Item], PreparedJob[Any]], kinds: JobTemplates | None
) -> Iterator[AddChunk]:
    """The jobs of these items, in chunks of a thousand. What jobs of one template share is computed once."""
    runs, data = list[tuple[NewJob, list[str]]](), list[Any]()
    last: Any = _NOBODY
    kind = current = None
    for index, item in enumerate(items):
        try:
            if kinds is not None and type(item) is tuple and (len(item) == 2 or _is_bare(item)):
                if kind is None or item[0] is not last:
                    last = item[0]
                    kind = kinds.of(last)
                text = _encoded(kind, item[1])
                if kind is not current:
                    current = kind
                    runs.append((kind.job, []))
                runs[-1][1].append(text)
                data.append(item[1])
            else:
                planned, current = plan(item), None
                runs.append((planned.job, [planned.job.data]))
                data.append(planned.data)
        except (TorilError, TypeError) as error:
            error.add_note(f"in item {index} of add_many")
            raise
        if len(data) == BATCH:
            yield AddChunk(NewJobs(runs), data)
            runs, data, current = [], [], None
    if data:
        yield AddChunk(NewJobs(runs), data)


def _is_bare(item: tuple[Any, ...]) -> bool:
    """Whether options were given, but are empty."""
    return len(item) == 3 and type(item[2]) is dict and not item[2]


def _encoded(kind: JobTemplate, data: Any) -> str:
    try:
        return kind.encode(data)
    except InvalidPayload as error:
        raise InvalidPayload(f"job {kind.job.name!r}: {error}") from None


def handles(queue: "Queue", chunk: AddChunk, answers: Sequence[Added]) -> list[Job[Any]]:
    """The `Job` objects for jobs that the store has accepted."""
    plain = AddOutcome.ADDED
    made: list[Job[Any]] = [
        Job(queue, answer.id, name, data)
        if answer.outcome is plain
        else Job(queue, answer.id, name, data, added=answer.outcome is AddOutcome.REPLACED, outcome=answer.outcome)
        for answer, name, data in zip(answers, chunk.jobs.names(), chunk.data, strict=True)
    ]
    if queue.services.events.wanted("added"):
        for job in made:
            if job.added:
                queue.services.events.emit("added", JobEvent(queue=queue.name, job_id=job.id, job_name=job.name))
    return made


_MOST: Final = 100  # jobs per call, so that the store is busy with one for a millisecond at most
_SIZE: Final = 1024 * 1024  # characters of their payloads

_Store = Callable[[Sequence[NewJob]], Awaitable[list[Added]]]
_Asked = tuple[NewJob, "asyncio.Future[Added]"]


@dataclass(frozen=True, slots=True, eq=False)
class _Tick:
    """A turn of the loop in which a job was sent, and the jobs that were added after it."""

    loop: asyncio.AbstractEventLoop
    gathered: list[_Asked] = field(default_factory=list)


class AddBatcher:
    """Sends the first job of a turn of the loop to the store at once, so that a single job does not wait; the others
    follow together at the end of the turn."""

    def __init__(self) -> None:
        self._tick: _Tick | None = None  # the current one, of one of several loops if several threads add
        self._sending: set[asyncio.Task[None]] = set()

    async def add(self, store: _Store, job: NewJob, *, alone: bool = False) -> Added:
        """Store a job, perhaps together with others; `alone` if it has its own trace."""
        loop, tick = asyncio.get_running_loop(), self._tick
        if alone or tick is None or tick.loop is not loop:
            if not alone:
                tick = self._tick = _Tick(loop)
                loop.call_soon(self._is_over, tick, store)
            (added,) = await store([job])
            return added
        answer: asyncio.Future[Added] = loop.create_future()
        tick.gathered.append((job, answer))
        return await answer

    def _is_over(self, tick: _Tick, store: _Store) -> None:
        if self._tick is tick:
            self._tick = None
        batch, size = list[_Asked](), 0
        for job, answer in tick.gathered:
            if answer.done():  # the caller has given up, and nothing was sent
                continue
            own = len(job.data) + len(job.metadata or "")
            if batch and (len(batch) == _MOST or size + own > _SIZE):
                self._send(store, batch)
                batch, size = [], 0
            batch.append((job, answer))
            size += own
        if batch:
            self._send(store, batch)

    def _send(self, store: _Store, batch: list[_Asked]) -> None:
        sending = asyncio.get_running_loop().create_task(_send(store, batch))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)


async def _send(store: _Store, batch: list[_Asked]) -> None:
    try:
        await _answer(store, batch)
    finally:
        for _, answer in batch:
            answer.cancel()  # unless it has an answer: nobody must wait for a cancelled call


async def _answer(store: _Store, batch: list[_Asked]) -> None:
    try:
        answers = await store([job for job, _ in batch])
    except QueueFull as full:
        if len(batch) == 1:
            _refuse(batch, full)
            return
    except AddUncertain as error:
        for asked, job_id in zip(batch, error.job_ids, strict=True):
            _refuse([asked], AddUncertain(str(error), job_ids=[job_id]))
        return
    except Exception as error:
        _refuse(batch, error)
        return
    else:
        for (_, answer), added in zip(batch, answers, strict=True):
            if not answer.done():
                answer.set_result(added)
        return
    for asked in batch:  # the batch was refused as a whole; some of its jobs may fit
        if not asked[1].done():
            await _answer(store, [asked])


def _refuse(batch: list[_Asked], error: Exception) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(_of_its_own(error))


def _of_its_own(error: Exception) -> Exception:
    """A copy of the error for one of several callers, since each adds to its traceback."""
    try:
        own = copy.copy(error)
    except Exception:  # it cannot be created from its arguments
        return error
    own.__cause__, own.__suppress_context__ = error.__cause__, error.__suppress_context__
    return own.with_traceback(error.__traceback__)
