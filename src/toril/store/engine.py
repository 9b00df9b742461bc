"""The seam: the methods that every store implements.

Every method is one atomic step: it happens completely or not at all, even if the process dies during it. Batches come
first; one job is a batch of one. Rules that hold for all of them:

- `now=None` means the store's own clock, so that skewed machines agree. Tests pass theirs.
- `EngineUnavailable` means *not known to have happened*. The same `call` sent again has no second effect and gets the
  first answer; an older call of the same sender that arrives late is refused. Without `call` nothing is remembered.
- A lost lease, a taken id or a state that forbids something is an answer, not an exception.
- Annotations such as `QueueName` say what an argument must be. `checked.implements` checks it in front of the engine,
  which may trust what it gets. Batches and pages are bounded, so that no step holds up the store.
"""

import importlib
import re
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from toril.errors import EngineUnusable, InvalidName, InvalidOption, preview
from toril.model import (
    Added,
    AttemptFailure,
    Call,
    Claim,
    ControlResult,
    Counts,
    Declarations,
    EventPage,
    Exchange,
    Finished,
    Health,
    Heartbeat,
    JobBlockers,
    JobRow,
    Kept,
    Lease,
    Limits,
    NewJob,
    Page,
    QueueSummary,
    Recovered,
    Renewed,
    Report,
    RunRow,
    Setting,
    Settings,
    Swept,
    Update,
    Usage,
    Verdict,
    WorkerRequest,
    WorkerRow,
)
from toril.model.names import check_queue_name
from toril.runtime.clock import SYSTEM, Clock
from toril.store.capabilities import (
    AuditStore,
    CircuitStore,
    DeadLetterStore,
    FlowStore,
    GroupStore,
    MetricsStore,
    RepairStore,
    ScheduleStore,
    StepStore,
    TransferStore,
)
from toril.store.checked import (
    Batch,
    CleanedState,
    DrainedStates,
    Grace,
    IfRunning,
    Limit,
    OnceKey,
    OneState,
    OneStatus,
    PageSize,
    QueueName,
    Reason,
    ReasonOrNone,
    Role,
    Settlements,
    Ttl,
    TtlOrGone,
    WaitedFor,
    WorkerName,
)

__all__ = ["Durability", "Engine", "Inspector", "Store", "connect", "redacted"]


@runtime_checkable
class Engine(Protocol):
    """The write side of a store."""

    async def open(self) -> None:
        """Connect, check that the store is safe to use, and bring its schema up to date."""

    async def close(self) -> None:
        """Close every connection, thread and file. Closing twice is harmless."""

    def twin(self) -> "Engine":
        """A handle on the same store for another thread and event loop of this process. It is open; the caller closes
        it there, unless it is this one."""

    async def health(self) -> Health:
        """Tell whether the store answers now. Never raises."""

    async def add(
        self, queue: QueueName, jobs: Batch[NewJob], *, call: Call | None = None, now: int | None = None
    ) -> list[Added]:
        """Store up to 1,000 jobs, all or none, in this order.

        If an id is taken, the job that has it is left alone and returned. A call without jobs is remembered like any
        other: after it, no job arrives under that number.
        """

    async def exchange(
        self,
        queue: QueueName,
        batch: Settlements,
        claim: Claim,
        *,
        call: Call | None = None,
        now: int | None = None,
    ) -> Exchange:
        """Settle finished jobs, then claim new ones.

        A settlement counts only while its lease holds. The claim promotes what is due and respects pause, concurrency
        and rate. If it gets fewer jobs than wanted, the answer says why and when to come back.
        """

    async def renew(self, leases: Batch[Lease], *, ttl: Ttl, now: int | None = None) -> Renewed:
        """Extend leases to `ttl` from now. Returns which were already lost and which jobs should stop."""

    async def wait(self, queues: WaitedFor, *, timeout: int) -> set[str]:
        """Wait until some of these queues may have work, or until `timeout` ms have passed.

        It may wake up for nothing, but never misses an arrival. `model.control(worker)` listens for cancellations and
        worker commands.
        """

    async def report(
        self, queue: QueueName, reports: Batch[Report], *, call: Call | None = None, now: int | None = None
    ) -> list[Verdict]:
        """Store progress, log lines, data and checkpoints of running jobs. Each counts only while its lease holds."""

    async def finished(self, queue: QueueName, ids: Batch[str], *, timeout: int) -> list[Finished]:
        """Wait at most `timeout` ms for all of these jobs to end, and return how each did."""

    async def recover(
        self,
        queue: QueueName,
        *,
        dead: Batch[Lease] = (),
        cause: ReasonOrNone = None,
        limit: Limit = 1000,
        now: int | None = None,
    ) -> Recovered:
        """Recover jobs whose lease has run out, and those of the `dead` leases at once; never a job of another live
        worker."""

    async def prune(self, queue: QueueName, *, limit: Limit = 1000, now: int | None = None) -> int:
        """Remove what retention no longer keeps, up to `limit` of each kind. Returns how many; call again while that is
        `limit` or more."""

    async def heartbeat(self, beat: Heartbeat, *, ttl: TtlOrGone, now: int | None = None) -> tuple[WorkerRequest, ...]:
        """Report that a worker is alive for the next `ttl` ms, and receive the worker commands that it has not
        acknowledged.

        A worker that was alive before but is not known is told to declare its limits and schedules again. A `ttl` of 0
        says that it has stopped: it is removed, unless a later worker has its name.
        """

    async def lead(self, role: Role, owner: WorkerName, *, ttl: Ttl, now: int | None = None) -> bool:
        """Become or stay the leader. This only saves work: nothing may depend on there being one leader."""

    async def resign(self, role: Role, owner: WorkerName) -> bool:
        """Give up leadership, if `owner` has it."""

    async def signal(self, worker: WorkerName, order: WorkerRequest, *, now: int | None = None) -> bool:
        """Send a worker a command and wake it. Returns False if no such worker is alive."""

    async def once(self, key: OnceKey, owner: WorkerName, *, ttl: Ttl, now: int | None = None) -> bool:
        """Return True to the first owner that asks within `ttl` ms, however often it asks, and False to all others."""

    async def retry(
        self, queue: QueueName, ids: Batch[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Run finished jobs again, with all their attempts and no stalls counted. If a job is a parent, its children
        that have not succeeded run again first."""

    async def promote(
        self, queue: QueueName, ids: Batch[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Make delayed jobs ready now."""

    async def cancel(
        self, queue: QueueName, ids: Batch[str], *, reason: Reason, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Cancel jobs: those that have not started never will (`done`), running ones are asked to stop (`asked`)."""

    async def remove(
        self, queue: QueueName, ids: Batch[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Delete jobs that are not running, with all that belongs to them."""

    async def update(
        self, queue: QueueName, updates: Batch[Update], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Change the data, priority or delay of jobs whose state allows it."""

    async def drain(
        self,
        queue: QueueName,
        *,
        states: DrainedStates,
        limit: Limit = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        """Remove jobs of the given states that have not started."""

    async def clean(
        self,
        queue: QueueName,
        *,
        state: CleanedState,
        grace: Grace,
        limit: Limit = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        """Remove jobs that have been in `state` for longer than `grace` ms, oldest first."""

    async def obliterate(
        self,
        queue: QueueName,
        *,
        running: IfRunning = "refuse",
        limit: Limit = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        """Pause the queue, then remove it with everything in it, a bounded part per call. Raises `WrongState` while
        jobs are running."""

    async def configure(
        self, queue: QueueName, settings: Sequence[Setting], *, call: Call | None = None, now: int | None = None
    ) -> Settings:
        """Change the queue's settings for every process at once. Without changes, just read them."""


@runtime_checkable
class Inspector(Protocol):
    """The read side of a store: pages and metrics, never on the hot path.

    A page is bounded, in bytes too, so it may have fewer jobs than asked for and still a cursor. Over all pages, no job
    is repeated, and none that stays in the state is skipped, even while jobs move.
    """

    async def queues(self) -> list[str]: ...

    async def queue(self, queue: QueueName) -> QueueSummary: ...

    async def counts(self, queue: QueueName) -> Counts: ...

    async def usage(self, queue: QueueName) -> Usage:
        """Estimate how many bytes the queue takes, from a bounded number of its jobs."""

    async def jobs(self, queue: QueueName, ids: Batch[str]) -> list[JobRow | None]: ...

    async def page(
        self, queue: QueueName, state: OneState, *, cursor: str | None = None, limit: PageSize = 50
    ) -> Page[JobRow]: ...

    async def logs(
        self, queue: QueueName, job_id: str, *, cursor: str | None = None, limit: PageSize = 100, where: Kept = "queue"
    ) -> Page[str]:
        """Log lines of a job or dead letter, oldest first."""

    async def errors(self, queue: QueueName, job_id: str, *, where: Kept = "queue") -> tuple[AttemptFailure, ...]:
        """The errors of all attempts of a job or dead letter, oldest first. The last one is complete, the 50 before it
        are shortened."""

    async def events(
        self, queue: QueueName, *, after: str | None = None, limit: PageSize = 100, of: str | None = None
    ) -> EventPage:
        """The events after a position; with `of`, those of this job among the next `limit`. Continue at `last`."""

    async def workers(self, queue: str | None = None, *, now: int | None = None) -> list[WorkerRow]: ...

    async def declarations(self, queue: QueueName, *, now: int | None = None) -> Declarations:
        """What living workers declare of a queue, newest first, equal declarations once."""

    async def runs(
        self, queue: QueueName, ending: OneStatus, *, cursor: str | None = None, limit: PageSize = 20
    ) -> Page[RunRow]: ...

    async def explain(self, queue: QueueName, job_id: str, limits: Limits, *, now: int | None = None) -> JobBlockers:
        """What a job has to wait for if claims have these limits."""


class Store(Engine, Inspector, Protocol):
    """A store, as `connect` returns it: its core, its read side, and its capabilities."""

    @property
    def inbox(self) -> str | None:
        """The table in which other transactions of the same database put jobs, if the store has one. Those who serve
        the queue take them from there."""

    @property
    def dead_letters(self) -> DeadLetterStore: ...

    @property
    def circuits(self) -> CircuitStore: ...

    @property
    def flows(self) -> FlowStore: ...

    @property
    def groups(self) -> GroupStore: ...

    @property
    def schedules(self) -> ScheduleStore: ...

    @property
    def metrics(self) -> MetricsStore: ...

    @property
    def audit(self) -> AuditStore: ...

    @property
    def repairs(self) -> RepairStore: ...

    @property
    def transfers(self) -> TransferStore: ...

    @property
    def steps(self) -> StepStore: ...


# scheme -> module with `connect(url, clock, prefix)`, and the extra that installs what it needs
_SCHEMES: dict[str, tuple[str, str | None]] = {
    "sqlite": ("toril.engines.sqlite", None),
    "memory": ("toril.engines.sqlite", None),
    "redis": ("toril.engines.redis", "redis"),
    "rediss": ("toril.engines.redis", "redis"),
    "unix": ("toril.engines.redis", "redis"),
    "redis+sentinel": ("toril.engines.redis", "redis"),
    "rediss+sentinel": ("toril.engines.redis", "redis"),
    "redis+cluster": ("toril.engines.redis", "redis"),
    "rediss+cluster": ("toril.engines.redis", "redis"),
    "postgresql": ("toril.engines.postgres", "postgres"),
    "postgres": ("toril.engines.postgres", "postgres"),
}
Durability: TypeAlias = Literal["replicated"]


_SECRET = re.compile(r"([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*", re.IGNORECASE)


def connect(
    url: str,
    *,
    clock: Clock = SYSTEM,
    prefix: str = "bull",
    durability: Durability | None = None,
    dead_letter_queue: str | None = None,
) -> Store:
    """Make a store from a URL, without opening it.

    `prefix`, `durability` and `dead_letter_queue` mean the same as for `App`. Only the modules that the URL needs are
    imported.
    """
    if not isinstance(url, str):
        raise InvalidOption(f"a store URL must be a string, not {preview(url)}")
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise InvalidOption(f"store URL {redacted(url)!r} has no scheme; write it as in sqlite:///jobs.db")
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}://" for name in _SCHEMES)
        raise InvalidOption(f"unknown store URL {redacted(url)!r}; expected one of {known}")
    module, extra = _SCHEMES[scheme]
    if durability is not None and extra is None:
        raise InvalidOption(f"durability={durability!r} works with Redis only; {scheme}:// has no replicas")
    if durability is not None and extra == "postgres":
        raise InvalidOption(
            f"durability={durability!r} works with Redis only; PostgreSQL itself makes commits wait for standbys: set "
            "synchronous_standby_names on the server"
        )
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").startswith("toril"):
            raise
        raise EngineUnusable(
            f"{scheme}:// needs the package {error.name!r}; install it with: pip install 'toril[{extra}]'"
        ) from None
    except ImportError as error:
        if error.name is not None and error.name.startswith("toril"):
            raise
        why = " ".join(str(error).split())[:200]
        raise EngineUnusable(
            f"{scheme}:// needs libpq, PostgreSQL's client library, which psycopg does not find; install libpq, or a "
            f"psycopg that brings it: pip install 'psycopg[binary]' ({why})"
        ) from None
    if dead_letter_queue is not None:
        try:
            dead_letter_queue = check_queue_name(dead_letter_queue)
        except InvalidName as error:
            raise InvalidOption(f"dead_letter_queue: {error}") from None
    said = {"durability": durability, "dead_letter_queue": dead_letter_queue}
    more = {name: value for name, value in said.items() if value is not None}
    store: Store = found.connect(url, clock=clock, prefix=prefix, **more)
    return store


def redacted(url: str) -> str:
    """The URL as it may be shown: without the password, at most 200 characters."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    if "@" in rest and not rest.startswith("/"):  # a password may contain any character; a file's path may contain an @
        rest = "***@" + rest.rpartition("@")[2]
    return _SECRET.sub(r"\1***", scheme + separator + rest)[:200]
