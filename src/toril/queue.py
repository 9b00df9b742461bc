"""A named queue: declare its handlers, add jobs to it, look after it."""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from toril.adding import AddOptions, Defaults, QueueOptions, WaitOptions, as_metadata, new_job, subject_of
from toril.bounds import Bound
from toril.bulk import Chunk, Item, Kind, Kinds, Planned, chunks, handles
from toril.codec import Undecodable
from toril.context import JobContext, SyncJobContext
from toril.engine import Store
from toril.errors import EngineUnavailable, InvalidOption, InvalidPayload, PartialAdd, UsageError, shown
from toril.events import Events, JobEvent
from toril.handlers import Registry, handler, own_name
from toril.job import Job
from toril.model import Added, AddOutcome, Call, NewJob
from toril.names import check_job_name
from toril.operations import QueueOperations
from toril.payload import Payload, payload_for
from toril.plan import function
from toril.policy.retry import Retry, Seconds, milliseconds
from toril.portal import Doorway, Home
from toril.schedule import Declared, QueueSchedules, Timing, declare
from toril.storing import or_nothing, stored
from toril.together import Together

if TYPE_CHECKING:
    from toril.sync import SyncQueue

__all__ = ["Item", "Planned", "Queue", "QueueOptions"]

T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Queue(QueueOperations):
    """One object a name; `app.queue(name, …)` makes it."""

    def __init__(
        self, home: Home, name: str, options: QueueOptions, check_spelling: Callable[[], None] | None = None
    ) -> None:
        self._home = home
        self._name = name
        self._check_spelling = check_spelling
        self.options = options
        self.lease_hooks: list[tuple[Callable[..., Any], Callable[[Job[Any]], bool] | None]] = []
        self.handlers = Registry(name, options.serializer)
        self.declared: dict[str, Declared] = {}
        self._metadata: dict[str, Any] = {}
        self._together = Together()
        self._bound = Bound(name, options.max_waiting, options.groups)
        self._plain: Payload = payload_for(Any, serializer=options.serializer)
        self._defaults = self._defaults_of(options.retry)

    def __repr__(self) -> str:
        return f"<Queue {self._name!r}>"

    @property
    def name(self) -> str:
        return self._name

    @property
    def store(self) -> Store:
        return self._home.store

    @property
    def listeners(self) -> Events:
        """Who listens to what happens in this process."""
        return self._home.events

    async def call(self, make: Callable[[Call], Awaitable[T]]) -> T:
        """Send a call to the store, again while it does not answer."""
        return await self._home.call(make)

    @property
    def sync(self) -> "SyncQueue":
        """This queue for code that blocks: in Django, Flask, scripts. It opens the store by itself."""
        from toril.sync import SyncQueue  # noqa: PLC0415 - it is made of this class

        doorway = Doorway(self._home)
        return SyncQueue(self._with(_home=doorway, _together=Together()), doorway.run)

    # declaring handlers

    @overload
    def handler(self, fn: F) -> F: ...

    @overload
    def handler(self, *, name: str | None = None, **options: Any) -> Callable[[F], F]: ...

    def handler(self, fn: F | None = None, *, name: str | None = None, **options: Any) -> F | Callable[[F], F]:
        """`@queue.handler`, or `@queue.handler(name=…, timeout=…)`: sugar for the mapping of names to functions."""

        def register(function: F) -> F:
            made = handler(function, **options) if options else function
            self.handlers.register(own_name(function) if name is None else name, made)
            return function

        return register if fn is None else register(fn)

    def on_lease_lost(self, fn: F, *, when: Callable[[Job[Any]], bool] | None = None) -> F:
        """Call `fn(job)` for each job that this process has lost to another while it ran, or for those for which
        `when(job)` is true: to put right what only half happened. What it raises is logged, and changes nothing."""
        self.lease_hooks.append((function("on_lease_lost", fn), when))
        return fn

    # adding jobs

    @overload
    async def add(
        self,
        job: Callable[[JobContext[None]], Coroutine[Any, Any, R]],
        data: None = None,
        **options: Unpack[AddOptions],
    ) -> Job[R]: ...

    @overload
    async def add(
        self, job: Callable[[JobContext[T]], Coroutine[Any, Any, R]], data: T, **options: Unpack[AddOptions]
    ) -> Job[R]: ...

    @overload
    async def add(
        self, job: Callable[[SyncJobContext[None]], R], data: None = None, **options: Unpack[AddOptions]
    ) -> Job[R]: ...

    @overload
    async def add(self, job: Callable[[SyncJobContext[T]], R], data: T, **options: Unpack[AddOptions]) -> Job[R]: ...

    @overload
    async def add(
        self, job: Callable[[Job[Any]], Coroutine[Any, Any, R]], data: Any = None, **options: Unpack[AddOptions]
    ) -> Job[R]: ...

    @overload
    async def add(self, job: str, data: Any = None, **options: Unpack[AddOptions]) -> Job[Any]: ...

    async def add(self, job: Any, data: Any = None, **options: Unpack[AddOptions]) -> Job[Any]:
        """Store one job, by its handler or by its name. Returns once it is kept."""
        planned = self.new(job, data, **options)
        answer = await self._together.add(self._store, planned.job, alone=self._home.tracing is not None)
        return (await self._kept([self.made(planned, answer)]))[0]

    async def add_many(self, jobs: Iterable[Item]) -> list[Job[Any]]:
        """Store many, as `(job, data)`, `(job, data, options)` or `queue.new(…)`. Up to 1,000 all or none; beyond
        that in chunks, and `PartialAdd` names what is stored if one fails."""
        made: list[Job[Any]] = []
        sending: asyncio.Task[list[Job[Any]]] | None = None
        try:
            for chunk in chunks(jobs, self._plan, self._kinds()):
                if sending is not None:
                    made += await sending
                sending = asyncio.ensure_future(self._add_chunk(chunk))
                await asyncio.wait([sending], timeout=0)  # so that it is on its way while the next one is made ready
            return made if sending is None else made + await sending
        except asyncio.CancelledError:
            if sending is not None:
                sending.cancel()
            raise
        except Exception as error:  # of the store, of an item, or of whatever makes the items
            if sending is not None:
                made += await or_nothing(sending)
            if not made:
                raise
            stored = [job.id for job in made]
            raise PartialAdd(f"{len(stored)} jobs are stored, the rest is not: {error}", stored=stored) from error

    def new(self, job: Any, data: Any = None, **options: Unpack[AddOptions]) -> Planned:
        """A job made ready and checked, to be added later or with others."""
        name = self._name_of(job)
        if self.options.subject is not None and "subject" not in options:
            options["subject"] = subject_of(self.options.subject, data)
        if self._metadata:
            options["metadata"] = {**self._metadata, **as_metadata(options.get("metadata"))}
        return Planned(self, new_job(name, self.encoded(name, data), options, self._defaults_for(name)), data)

    @overload
    async def add_and_wait(
        self, job: Callable[[JobContext[None]], Coroutine[Any, Any, R]], data: None = None, *,
        timeout: Seconds = 30, **options: Unpack[WaitOptions],
    ) -> R: ...  # fmt: skip

    @overload
    async def add_and_wait(
        self, job: Callable[[JobContext[T]], Coroutine[Any, Any, R]], data: T, *,
        timeout: Seconds = 30, **options: Unpack[WaitOptions],
    ) -> R: ...  # fmt: skip

    @overload
    async def add_and_wait(
        self, job: Callable[[SyncJobContext[None]], R], data: None = None, *,
        timeout: Seconds = 30, **options: Unpack[WaitOptions],
    ) -> R: ...  # fmt: skip

    @overload
    async def add_and_wait(
        self, job: Callable[[SyncJobContext[T]], R], data: T, *,
        timeout: Seconds = 30, **options: Unpack[WaitOptions],
    ) -> R: ...  # fmt: skip

    @overload
    async def add_and_wait(
        self, job: Callable[[Job[Any]], Coroutine[Any, Any, R]], data: Any = None, *,
        timeout: Seconds = 30, **options: Unpack[WaitOptions],
    ) -> R: ...  # fmt: skip

    @overload
    async def add_and_wait(
        self, job: str, data: Any = None, *, timeout: Seconds = 30, **options: Unpack[WaitOptions]
    ) -> Any: ...

    async def add_and_wait(
        self, job: Any, data: Any = None, *, timeout: Seconds = 30, **options: Unpack[WaitOptions]
    ) -> Any:
        """Add a job and wait for what its handler returns."""
        milliseconds("timeout", timeout)  # an odd one is refused before anything is stored
        options.setdefault("result_ttl", 3600)
        return await (await self.add(job, data, **options)).result(timeout)

    def scoped(self, **metadata: Any) -> "Queue":
        """The same queue for one actor, request or tenant: these fields travel beside every payload added here."""
        return self._with(_metadata={**self._metadata, **metadata})

    # recurring jobs

    def schedule(self, schedule_id: str, job: Any, data: Any = None, **options: Unpack[Timing]) -> None:
        """Declare a recurring job, `every` so many seconds or by a `cron` expression. The workers keep it in the store
        from their next boot on, and remove it once it is declared no more."""
        if schedule_id in self.declared:
            raise UsageError(f"schedule {schedule_id!r} of queue {self._name!r} is declared already; ids are unique")
        self.declared[schedule_id] = declare(self, schedule_id, job, data, options)

    @property
    def schedules(self) -> QueueSchedules:
        """The schedules in the store: to look at, and to make and change at run time."""
        return QueueSchedules(self)

    def encoded(self, name: str, data: Any) -> str:
        """A payload as text, checked against the handler's type where that is known."""
        try:
            return self._payload_of(name).encode(data)
        except InvalidPayload as error:
            raise InvalidPayload(f"job {name!r}: {error}") from None

    def decoded(self, name: str, text: str) -> Any:
        """The stored payload of a job of this name; the text itself where it is not what the handler declares."""
        try:
            return self._payload_of(name).decode(text)
        except (Undecodable, InvalidPayload):
            return text

    def result_of(self, name: str, text: str) -> Any:
        entry = self.handlers.find(name)
        return (entry.result if entry else self._plain).decode(text)

    async def _store(self, jobs: Sequence[NewJob]) -> list[Added]:
        await self._bound.tell(self._home)
        return await stored(self._home, self._name, jobs)

    async def _add_chunk(self, chunk: Chunk) -> list[Job[Any]]:
        return await self._kept(handles(self, chunk, await self._store(chunk.jobs)))

    async def _kept(self, made: list[Job[Any]]) -> list[Job[Any]]:
        return made if all(job.added for job in made) else await self._as_they_stand(made)

    async def _as_they_stand(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Those that were there already, with what the store has of them and not what they would have been."""
        there = [job.id for job in jobs if not job.added]
        try:
            records = dict(zip(there, await self._home.store.jobs(self._name, there), strict=True))
        except EngineUnavailable:
            return jobs  # the add has happened: what cannot be read now must not make it look as if it had not
        return [
            Job(
                self,
                record.id,
                record.name,
                self.decoded(record.name, record.data),
                added=False,
                record=record,
                outcome=job.outcome,
            )
            if (record := records.get(job.id)) is not None and not job.added
            else job
            for job in jobs
        ]

    def made(self, planned: Planned, answer: Added) -> Job[Any]:
        """The handle on a job that the store has answered for."""
        outcome, name = answer.outcome, planned.job.name
        added = outcome is AddOutcome.ADDED or outcome is AddOutcome.REPLACED
        if added and self.listeners.wanted("added"):
            self.listeners.emit("added", JobEvent(queue=self._name, job_id=answer.id, job_name=name))
        return Job(self, answer.id, name, planned.data, added=added, outcome=outcome)

    def _plan(self, item: Item) -> Planned:
        if isinstance(item, Planned):
            return self._own(item)
        if not isinstance(item, tuple) or not 2 <= len(item) <= 3:
            raise InvalidOption(f"a job to add is (job, data), (job, data, options) or queue.new(…), not {shown(item)}")
        job, data, options = item if len(item) == 3 else (*item, {})
        if type(options) is not dict and not isinstance(options, Mapping):
            raise InvalidOption(f"the options of a job are a mapping, not {shown(options)}")
        return self.new(job, data, **options)

    def _kinds(self) -> Kinds | None:
        """Jobs of one name are of one kind, unless each has fields of its own beside its payload."""
        return None if self._metadata or self.options.subject is not None else Kinds(self._name_of, self._kind_of)

    def _kind_of(self, name: str) -> Kind:
        return Kind(new_job(name, "null", {}, self._defaults_for(name)), self._payload_of(name).encode)

    def _name_of(self, job: Any) -> str:
        if not isinstance(job, str):
            return self.handlers.name_of(job)
        if self.options.unknown == "fail":
            self.handlers.check_spelling(job)
        return check_job_name(job)

    def _payload_of(self, name: str) -> Payload:
        entry = self.handlers.find(name)
        return entry.payload if entry else self._plain

    def _with(self, **changed: Any) -> "Queue":
        """The same queue, seen in another way."""
        other = copy.copy(self)
        vars(other).update(changed)
        return other

    def _own(self, planned: Planned) -> Planned:
        if planned.queue.name != self._name:
            raise UsageError(f"a job made by queue {planned.queue.name!r} cannot be added to queue {self._name!r}")
        return planned

    def _defaults_for(self, name: str) -> Defaults:
        entry = self.handlers.find(name)
        if entry is None and self._check_spelling is not None:
            self._check_spelling()
        own = entry.handler.retry if entry else None
        return self._defaults if own is None else self._defaults_of(own)

    def _defaults_of(self, retry: Retry) -> Defaults:
        kept = (self.options.keep_completed, self.options.keep_failed)
        return Defaults(retry.attempts, retry.backoff.wire(), *kept, self.options.strategies)
