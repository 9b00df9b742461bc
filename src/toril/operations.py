"""What operators, and programs that look after queues, do with one."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from toril.errors import InvalidName, InvalidOption, NotFound, WrongState, shown
from toril.events import Events
from toril.job import Job
from toril.model import (
    Call,
    Circuit,
    Counts,
    Declaration,
    Ending,
    JobRecord,
    Limits,
    Page,
    Pause,
    Precedence,
    RateLimit,
    Resume,
    SetConcurrency,
    SetRateLimit,
    Setting,
    Swept,
    Usage,
    moment,
)
from toril.model.durations import Duration, milliseconds
from toril.model.names import near_name
from toril.model.states import FINISHED, State
from toril.operate.groups import QueueGroups
from toril.operate.history import Gap, Happening, follow
from toril.operate.lookup import find_job
from toril.operate.metrics import QueueMetrics, metrics
from toril.operate.search import QueueSearch, StateName, as_state
from toril.operate.stacks import asked_stack
from toril.operate.why import Explanation, ended, failed, why
from toril.policy.figures import Range
from toril.policy.letters import LetterFilter
from toril.policy.redaction import redacted
from toril.policy.search import JobFilter
from toril.records import (
    CancelCounts,
    JobStack,
    QueueDeclaration,
    QueueEvent,
    QueueSettings,
    WorkerInfo,
    as_record,
    declaration_record,
)
from toril.runtime.redaction import Part
from toril.store.engine import Store

if TYPE_CHECKING:
    from toril.queue import Queue

__all__ = ["QueueOperations", "is_unhandled", "meant_name"]

T = TypeVar("T")

_A_CALL: Final = 100  # jobs that are cancelled in one step


async def meant_name(store: Store, queue: str, name: str) -> str | None:
    """The job name that was probably meant, where no living worker has a handler for this one: None if there is no
    such, or if nobody can tell."""
    known = await _handled(store, queue)
    return None if known is None or name in known else near_name(name, known)


async def is_unhandled(store: Store, queue: str, name: str) -> bool:
    """Whether it is known that no living worker of the queue has a handler for the name."""
    known = await _handled(store, queue)
    return known is not None and name not in known


async def _handled(store: Store, queue: str) -> frozenset[str] | None:
    return (await store.declarations(queue)).handled(len(await store.workers(queue)))


class QueueOperations(QueueSearch):
    """Reads, controls and settings of a queue."""

    @abstractmethod
    async def call(self, make: Callable[[Call], Awaitable[T]]) -> T: ...

    @property
    @abstractmethod
    def listeners(self) -> Events: ...

    async def counts(self) -> Counts:
        """How many jobs are in each state, and whether the queue is paused."""
        return await self.store.counts(self.name)

    async def usage(self) -> Usage:
        """About how many bytes the queue takes in its store."""
        return await self.store.usage(self.name)

    async def job(self, job_id: str) -> "Job[Any] | None":
        """A job by its id, or None. One that failed for good and is not kept is a dead letter: its state is `failed`,
        and `dead_letter` names it."""
        if not isinstance(job_id, str) or not job_id or len(job_id) > 256:
            raise InvalidName(f"a job id has from 1 to 256 characters, and {shown(job_id)} does not")
        row = await find_job(self.store, self.name, job_id)
        return None if row is None else self._job(row)

    async def jobs(self, state: StateName | State, cursor: str | None = None, limit: int = 50) -> "Page[Job[Any]]":
        """A page of the jobs in a state: the next to run first, the last to end first."""
        page = await self.store.page(self.name, as_state(state), cursor=cursor, limit=limit)
        return Page(tuple(map(self._job, page.items)), page.cursor)

    async def metrics(self, over: Range = "1h") -> QueueMetrics:
        """Counts of now, and what happened in the last `1h`, `4h`, `12h`, `1d` or `7d`: what completed and failed, how
        long jobs waited and ran, which names failed, in all and in at most 240 points. It is recorded whether jobs are
        kept or not."""
        return await metrics(self.store, self.name, over)

    def events(self, after: str | None = None) -> AsyncIterator[QueueEvent | Gap]:
        """All that happens in the queue, wherever: `async for event in queue.events()`, from now on. To read on from
        where one was, give the last event's `at`; a `Gap` comes where some was trimmed away meanwhile."""
        return _read(follow(self.store, self.name, after))

    async def workers(self) -> list[WorkerInfo]:
        """The workers that serve this queue now."""
        return [as_record(WorkerInfo, worker) for worker in await self.store.workers(self.name)]

    async def settings(self) -> QueueSettings:
        """What is set for the queue in the store, for every process."""
        return as_record(QueueSettings, (await self.store.queue(self.name)).settings)

    async def declaration(self) -> QueueDeclaration | None:
        """What the living workers of the queue declare in their code, the newest of them where they differ; None if
        there are none. What is set in the store holds over it: see `settings`."""
        return declaration_record(await self.store.declarations(self.name))

    async def why(self, job_id: str) -> Explanation:
        """Why a job does not run, or what became of it: a sentence and the facts. `NotFound` if nothing is known."""
        row = await find_job(self.store, self.name, job_id)
        if row is None:
            return await self._remembered(job_id)
        if row.failure is not None:
            row = replace(row, failure=replace(row.failure, reason=self._error(row)))
        if row.dead_letter is not None:
            return failed(row)
        declared = await self.store.declarations(self.name)
        standing = await self.store.explain(self.name, job_id, self._limits(declared.newest))
        workers = [worker for worker in await self.store.workers(self.name) if not worker.silent]
        circuit = await self._circuit_of(row)
        return why(row, await self.store.queue(self.name), standing, workers, circuit, declared)

    def _limits(self, declared: Declaration | None) -> Limits:
        """What claims of the queue are held to: as its workers declare it, or, where there are none, the code here."""
        queue: Queue = self  # type: ignore[assignment]
        options = queue.options
        rate, first = (options.rate_limit, options.priority_first) if declared is None else (
            declared.rate, declared.priority_first)  # fmt: skip
        return Limits(rate=rate, precedence=Precedence.PRIORITY_FIRST if first else Precedence.PLAIN_FIRST)

    async def _circuit_of(self, row: JobRecord) -> Circuit | None:
        """The circuit that a job hangs on, if something is known of it. Where the breaker is declared elsewhere, those
        that are named after the queue or the job are looked for."""
        if row.state not in {State.WAITING, State.PRIORITIZED, State.DELAYED}:
            return None
        queue: Queue = self  # type: ignore[assignment]
        entry = queue.handlers.find(row.name)
        breaker = (entry.handler.breaker if entry else None) or queue.options.breaker
        keys = {self.name, f"{self.name}/{row.name}"} if row.breaker is None else {row.breaker}
        if breaker is not None:
            try:
                keys = {breaker.key_for(self.name, row.name, queue.decoded(row.name, row.data), row.breaker)}
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                return None  # its key is made of a payload, and cannot be made of this one
        found = [each for each in await self.store.circuits() if each.key in keys]
        return max(found, key=lambda each: each.till, default=None)

    async def _remembered(self, job_id: str) -> Explanation:
        for ending in Ending:
            for run in (await self.store.runs(self.name, ending, limit=1000)).items:
                if run.id == job_id:
                    part: Part = "result" if ending is Ending.COMPLETED else "error"
                    text = redacted(self.redaction.text(run.text, part, self.name, run.name) or "")
                    return ended(replace(run, text=text))
        raise NotFound(f"there is no job {shown(job_id)} in queue {self.name!r}, and nothing is remembered of one")

    async def stack(self, job_id: str, *, patience: Duration = 8) -> JobStack:
        """Where a running job is now: its worker is asked, and answers within moments. `WrongState` if the job does not
        run, or if its worker does not answer in time."""
        (row,) = await self.store.jobs(self.name, [job_id])
        if row is None:
            raise NotFound(f"there is no job {shown(job_id)} in queue {self.name!r}")
        if row.state is not State.ACTIVE or row.worker is None:
            raise WrongState(f"job {shown(job_id)} does not run, so it has no stack")
        return await asked_stack(self.store, row, milliseconds("patience", patience))

    @property
    def groups(self) -> QueueGroups:
        """The groups of this queue: to look at, to pause, and to give limits at run time."""
        return QueueGroups(self)

    async def pause(self) -> None:
        """Start nothing new, anywhere, until `resume()`. Running jobs go on, adds succeed."""
        await self._configure(Pause())
        self.listeners.paused(self.name, now=True)

    async def resume(self) -> None:
        await self._configure(Resume())
        self.listeners.paused(self.name, now=False)

    async def set_concurrency(self, limit: int | None) -> None:
        """How many jobs may run at once over the whole fleet; None for no bound."""
        await self._configure(SetConcurrency(limit))

    async def set_rate_limit(self, limit: RateLimit | None) -> None:
        """How many may start in a time over the whole fleet, instead of what the code says; None to take it back."""
        await self._configure(SetRateLimit(limit))

    async def drain(self, *, delayed: Literal["keep", "remove"] = "keep") -> int:
        """Remove what has not started. How many that were."""
        if delayed not in ("keep", "remove"):
            raise InvalidOption(f"delayed must be 'keep' or 'remove', not {shown(delayed)}")
        states = frozenset({State.WAITING, State.PRIORITIZED} | ({State.DELAYED} if delayed == "remove" else set()))
        return await self._sweep(lambda call: self.store.drain(self.name, states=states, call=call))

    async def clean(
        self, state: StateName | State = "completed", *, older_than: Duration = 0, limit: int | None = None
    ) -> int:
        """Remove jobs of a state that are older than this, oldest first. How many that were."""
        grace, wanted = milliseconds("older_than", older_than, 0, 2**42), as_state(state)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidOption(f"limit must be a whole number from 1, not {shown(limit)}")
        removed = 0
        while limit is None or removed < limit:
            size = 1000 if limit is None else min(limit - removed, 1000)
            swept = await self.call(
                lambda call, size=size: self.store.clean(self.name, state=wanted, grace=grace, limit=size, call=call)  # type: ignore[misc]
            )
            removed += len(swept.ids)
            if not swept.more:
                break
        return removed

    async def obliterate(self, *, force: bool = False) -> int:
        """Remove the queue with everything in it; while jobs run only by force. How many jobs that were."""
        if type(force) is not bool:
            raise InvalidOption(f"force must be True or False, not {shown(force)}")
        running: Literal["refuse", "remove"] = "remove" if force else "refuse"
        return await self._sweep(lambda call: self.store.obliterate(self.name, running=running, call=call))

    async def retry(self, job_id: str) -> None:
        """Run a job again that has ended, with all its attempts: one that the queue keeps, or a dead letter. Its log
        goes on; progress and errors begin anew."""
        from toril.operate.dead_letters import replay_job  # noqa: PLC0415 - which is made of queues

        changed = await self.call(lambda call: self.store.retry(self.name, [job_id], call=call))
        for refused in changed.refused:
            if refused.state is not None:
                raise WrongState(f"job {job_id!r} is {refused.state} and cannot be retried")
            queue: Queue = self  # type: ignore[assignment]
            await replay_job(queue, job_id)

    async def retry_failed(self) -> int:
        """Run all failed jobs again: those that the queue keeps, and its dead letters. How many that were. Cancelled
        jobs are left, and so is a dead letter whose payload is not what its handler takes."""
        from toril.operate.dead_letters import of_queue  # noqa: PLC0415 - which is made of queues

        queue: Queue = self  # type: ignore[assignment]
        retried, cursor = 0, None
        while True:
            page = await self.store.page(self.name, State.FAILED, cursor=cursor, limit=1000)
            ids = [row.id for row in page.items if row.ending is Ending.FAILED]
            if ids:
                changed = await self.call(lambda call, ids=ids: self.store.retry(self.name, ids, call=call))  # type: ignore[misc]
                retried += len(changed.done)
            cursor = page.cursor
            if cursor is None:
                break
        return retried + (await of_queue(queue).replay(LetterFilter(queue=self.name))).count

    async def cancel_all(
        self, state: StateName | State, where: JobFilter = JobFilter(), *, reason: str = "No reason provided"
    ) -> CancelCounts:
        """Cancel the jobs of a state that the filter means: those that have not started never will, running ones are
        asked to stop. What comes to the state meanwhile is left alone, as by `JobFilter(until=…)`."""
        wanted, cursor, ended, asked = as_state(state), None, 0, 0
        if wanted in FINISHED:
            raise InvalidOption(f"a job that has {wanted.value} cannot be cancelled")
        if where.until is None:
            where = replace(where, until=moment((await self.store.health()).now))
        while True:
            page = await self.search(wanted, where, cursor=cursor, limit=_A_CALL)
            ids = [job.id for job in page.items]
            if ids:
                changed = await self.call(
                    lambda call, ids=ids: self.store.cancel(self.name, ids, reason=reason, call=call)  # type: ignore[misc]
                )
                ended, asked = ended + len(changed.done), asked + len(changed.asked)
            cursor = page.cursor
            if cursor is None:
                return CancelCounts(cancelled=ended, requested=asked)

    async def _configure(self, setting: Setting) -> None:
        await self.call(lambda call: self.store.configure(self.name, [setting], call=call))

    async def _sweep(self, sweep: Callable[[Call], Awaitable[Swept]]) -> int:
        removed = 0
        while True:
            swept = await self.call(sweep)
            removed += len(swept.ids)
            if not swept.more:
                return removed


async def _read(happenings: AsyncIterator[Happening]) -> AsyncIterator[QueueEvent | Gap]:
    async for each in happenings:
        yield each if isinstance(each, Gap) else as_record(QueueEvent, each)
