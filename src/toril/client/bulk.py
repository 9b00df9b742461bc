"""Many jobs at once: from the items of a producer to chunks for the store, and from its answers to handles."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from toril.errors import InvalidPayload, TorilError
from toril.events import JobEvent
from toril.job import Job
from toril.model import BATCH, Added, AddOutcome, NewJob, NewJobs
from toril.model.values import hot

if TYPE_CHECKING:
    from toril.queue import Queue

__all__ = ["Chunk", "Item", "Kind", "Kinds", "Planned", "chunks", "handles"]

Item: TypeAlias = "Planned[Any] | tuple[Any, Any] | tuple[Any, Any, Mapping[str, Any]]"
R = TypeVar("R", covariant=True)

_NOBODY: Final = object()


@hot
class Planned(Generic[R]):
    """A job made ready and checked, to be added with others or in a flow. `R` is what its handler returns."""

    queue: "Queue"
    job: NewJob
    data: Any


@hot
class Chunk:
    """Up to 1,000 jobs made ready, and what their producer gave for each."""

    jobs: NewJobs
    data: list[Any]


@hot
class Kind:
    """Jobs of one name without options of their own: such a job, and what makes text of the data of others."""

    job: NewJob
    encode: Callable[[Any], str]


class Kinds:
    """The kinds of job that one call has met, by their names."""

    def __init__(self, name_of: Callable[[Any], str], kind_of: Callable[[str], Kind]) -> None:
        self._name_of = name_of
        self._kind_of = kind_of
        self._known: dict[str, Kind] = {}

    def of(self, job: Any) -> Kind:
        name = self._name_of(job)
        if name not in self._known:
            self._known[name] = self._kind_of(name)
        return self._known[name]


def chunks(items: Iterable[Item], plan: Callable[[Item], Planned[Any]], kinds: Kinds | None) -> Iterator[Chunk]:
    """The jobs of these items, by the thousand. What jobs of a kind share is worked out once; without `kinds` each gets
    something of its own."""
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
            yield Chunk(NewJobs(runs), data)
            runs, data, current = [], [], None
    if data:
        yield Chunk(NewJobs(runs), data)


def _is_bare(item: tuple[Any, ...]) -> bool:
    """Whether its options are there, and none."""
    return len(item) == 3 and type(item[2]) is dict and not item[2]


def _encoded(kind: Kind, data: Any) -> str:
    try:
        return kind.encode(data)
    except InvalidPayload as error:
        raise InvalidPayload(f"job {kind.job.name!r}: {error}") from None


def handles(queue: "Queue", chunk: Chunk, answers: Sequence[Added]) -> list[Job[Any]]:
    """The handles on jobs that the store has answered for."""
    plain = AddOutcome.ADDED
    made: list[Job[Any]] = [
        Job(queue, answer.id, name, data)
        if answer.outcome is plain
        else Job(queue, answer.id, name, data, added=answer.outcome is AddOutcome.REPLACED, outcome=answer.outcome)
        for answer, name, data in zip(answers, chunk.jobs.names(), chunk.data, strict=True)
    ]
    if queue.listeners.wanted("added"):
        for job in made:
            if job.added:
                queue.listeners.emit("added", JobEvent(queue=queue.name, job_id=job.id, job_name=job.name))
    return made
