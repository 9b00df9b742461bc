"""The seam: the methods that every store implements.

Every method is one atomic step: it happens completely or not at all, even if the process dies during it. Batches come
first; one job is a batch of one. Rules that hold for all of them:

- `now=None` means the store's own clock, so that skewed machines agree. Tests pass theirs.
- `EngineUnavailable` means *not known to have happened*. The same `call` sent again has no second effect and gets the
  first answer; an older call of the same sender that arrives late is refused. Without `call` nothing is remembered.
- A lost lease, a taken id or a state that forbids something is an answer, not an exception.
- What a batch may hold is bounded (`model.BATCH`, `model.EXCHANGE`), so that no step holds up the store.
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
    Moved,
    NewJob,
    Page,
    QueueSummary,
    Recovered,
    Renewed,
    Report,
    RunRow,
    RunStatus,
    Schedule,
    ScheduleLookup,
    ScheduleRow,
    Setting,
    Settings,
    Settlement,
    Swept,
    Update,
    Usage,
    Verdict,
    WorkerRequest,
    WorkerRow,
)
from toril.model.names import check_queue_name
from toril.model.states import State
from toril.runtime.clock import SYSTEM, Clock
from toril.store.capabilities import (
    AuditStore,
    CircuitStore,
    DeadLetterStore,
    FlowStore,
    GroupStore,
    MetricsStore,
    RepairStore,
    TransferStore,
)

__all__ = ["Durability", "Engine", "Inspector", "ScheduleStore", "Store", "connect", "redacted"]


@runtime_checkable
class Engine(Protocol):
    """The write side."""

    async def open(self) -> None:
        """Connect, check that the store can be trusted, and bring its schema up to date."""

    async def close(self) -> None:
        """Let go of every connection, thread and file. Closing twice is fine."""

    def twin(self) -> "Engine":
        """A handle on the same store for another thread and event loop of this process. It is open; whoever asked for
        it closes it there, unless it is this one."""

    async def health(self) -> Health:
        """Whether the store answers now. Never raises."""

    async def add(
        self, queue: str, jobs: Sequence[NewJob], *, call: Call | None = None, now: int | None = None
    ) -> list[Added]:
        """Store up to 1,000 jobs, all or none, in this order. A taken id is left as it stands and answered. A call
        without jobs is answered and remembered as any other: after it, no job comes by that number any more."""

    async def exchange(
        self,
        queue: str,
        batch: Sequence[Settlement],
        claim: Claim,
        *,
        call: Call | None = None,
        now: int | None = None,
    ) -> Exchange:
        """Hand in finished jobs, then take new ones. A settlement counts only while its lease holds. The claim
        promotes what is due and honours pause, concurrency and rate; when it gives less than wanted it says why and
        when to come back."""

    async def renew(self, leases: Sequence[Lease], *, ttl: int, now: int | None = None) -> Renewed:
        """Keep leases alive for `ttl` from now. Tells which were already lost and which jobs should stop."""

    async def wait(self, queues: Sequence[str], *, timeout: int) -> set[str]:
        """Rest until some of these queues may have work, or `timeout` ms have passed. May wake for nothing, never
        sleeps through an arrival. `model.control(worker)` listens for cancellations and orders."""

    async def report(
        self, queue: str, reports: Sequence[Report], *, call: Call | None = None, now: int | None = None
    ) -> list[Verdict]:
        """Progress, log lines, data and checkpoints of running jobs; each counts only while its lease holds."""

    async def finished(self, queue: str, ids: Sequence[str], *, timeout: int) -> list[Finished]:
        """Wait until all of these jobs have ended, at most `timeout` ms, and say how each did."""

    async def recover(
        self,
        queue: str,
        *,
        dead: Sequence[Lease] = (),
        cause: str | None = None,
        limit: int = 1000,
        now: int | None = None,
    ) -> Recovered:
        """Take back jobs whose lease ran out, and those of `dead` even before; never another live one."""

    async def prune(self, queue: str, *, limit: int = 1000, now: int | None = None) -> int:
        """Remove what retention no longer keeps, up to `limit` of each kind. Returns how much; call again while that
        is `limit` or more."""

    async def heartbeat(self, beat: Heartbeat, *, ttl: int, now: int | None = None) -> tuple[WorkerRequest, ...]:
        """Say that a worker is alive, for `ttl` ms; receive the orders that it has not said it heard. One that was
        alive before and is not known is told to declare its limits and schedules again. A `ttl` of 0 says that it has
        stopped: it is removed, unless a later worker has its name."""

    async def lead(self, role: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        """Become or stay the leader. The lock only saves work: nothing may depend on there being one leader."""

    async def resign(self, role: str, owner: str) -> bool:
        """Give leadership up, if it is ours."""

    async def signal(self, worker: str, order: WorkerRequest, *, now: int | None = None) -> bool:
        """Leave an order for a worker and wake it. False if no such worker is alive."""

    async def once(self, key: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        """True for the first owner of the whole fleet within `ttl` ms, however often it asks."""

    async def retry(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Run finished jobs again, with all their attempts and no stalls counted. A parent that failed waits for its
        children that have not succeeded, which run again with it."""

    async def promote(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Make delayed jobs ready now."""

    async def cancel(
        self, queue: str, ids: Sequence[str], *, reason: str, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Stop jobs: those that have not started never will (`done`), running ones are asked to (`asked`)."""

    async def remove(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Delete jobs that are not running, with all that belongs to them."""

    async def update(
        self, queue: str, updates: Sequence[Update], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Change data, priority or delay of jobs whose state allows it."""

    async def drain(
        self,
        queue: str,
        *,
        states: frozenset[State],
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        """Remove jobs that have not started, of the given states."""

    async def clean(
        self,
        queue: str,
        *,
        state: State,
        grace: int,
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        """Remove jobs that have been in `state` for longer than `grace` ms, oldest first."""

    async def obliterate(
        self,
        queue: str,
        *,
        running: Literal["refuse", "remove"] = "refuse",
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        """Pause the queue, then remove it with everything in it, a bounded part a call; `WrongState` while jobs run."""

    async def configure(
        self, queue: str, settings: Sequence[Setting], *, call: Call | None = None, now: int | None = None
    ) -> Settings:
        """Change the queue's settings for every process at once. None to change just reads them."""


@runtime_checkable
class Inspector(Protocol):
    """The read side: pages and figures, never on the hot path. A page is bounded, in bytes too: it may have fewer jobs
    than asked for, and a cursor. A walk over pages neither repeats a job nor skips one that stays in the state while
    jobs move."""

    async def queues(self) -> list[str]: ...

    async def queue(self, queue: str) -> QueueSummary: ...

    async def counts(self, queue: str) -> Counts: ...

    async def usage(self, queue: str) -> Usage:
        """About how many bytes it takes. Looks at a bounded number of its jobs."""

    async def jobs(self, queue: str, ids: Sequence[str]) -> list[JobRow | None]: ...

    async def page(self, queue: str, state: State, *, cursor: str | None = None, limit: int = 50) -> Page[JobRow]: ...

    async def logs(
        self, queue: str, job_id: str, *, cursor: str | None = None, limit: int = 100, where: Kept = "queue"
    ) -> Page[str]:
        """Log lines of a job, or of its dead letter, the oldest first."""

    async def errors(self, queue: str, job_id: str, *, where: Kept = "queue") -> tuple[AttemptFailure, ...]:
        """The error of every attempt of a job, or of its dead letter, the oldest first. The last one is whole, the 50
        before it are kept in short."""

    async def events(
        self, queue: str, *, after: str | None = None, limit: int = 100, of: str | None = None
    ) -> EventPage:
        """What happened after a place; with `of`, to this job, among the next `limit`. `last` is where to go on."""

    async def workers(self, queue: str | None = None, *, now: int | None = None) -> list[WorkerRow]: ...

    async def declarations(self, queue: str, *, now: int | None = None) -> Declarations:
        """What living workers declare of a queue, the newest first and alike ones once."""

    async def runs(
        self, queue: str, ending: RunStatus, *, cursor: str | None = None, limit: int = 20
    ) -> Page[RunRow]: ...

    async def explain(self, queue: str, job_id: str, limits: Limits, *, now: int | None = None) -> JobBlockers:
        """What a job has to wait for, where claims have these limits."""


@runtime_checkable
class ScheduleStore(Protocol):
    """Recurring jobs. A schedule always has one run in the store that has not started, and whoever starts it makes the
    next. Each step says which run it expects to be the current one, so that of any number who try one succeeds; a
    step sent again finds that it was made."""

    async def get(self, queue: str, schedule: str, *, now: int | None = None) -> ScheduleLookup: ...

    async def page(self, queue: str, *, cursor: str | None = None, limit: int = 100) -> Page[ScheduleRow]:
        """Schedules by their ids."""

    async def overdue(self, queue: str, *, limit: int = 100, now: int | None = None) -> list[ScheduleRow]:
        """Schedules whose current run has ended or vanished while no next one was made. Paused ones and those that are
        over are not among them."""

    async def put(
        self, queue: str, schedule: Schedule, slot: int, *, expects: int | None, now: int | None = None
    ) -> Moved:
        """Make or change a schedule, and its run at `slot` in place of one that has not started. `expects` is the
        current run's time; None: there is no such schedule."""

    async def advance(
        self,
        queue: str,
        schedule: str,
        *,
        since: int,
        to: int | None,
        started: str | None = None,
        now: int | None = None,
    ) -> Moved:
        """From the run at `since` go on to the one at `to`; None: there will be no more. `started` names the job that
        now runs."""

    async def pause(self, queue: str, schedule: str, *, now: int | None = None) -> bool:
        """Make no more runs, and drop the one that has not started. False: there is no such schedule."""

    async def resume(self, queue: str, schedule: str, *, since: int, to: int | None, now: int | None = None) -> Moved:
        """Let a paused schedule go on with a run at `to`."""

    async def remove(self, queue: str, schedule: str, *, now: int | None = None) -> bool:
        """Remove a schedule, and its run that has not started."""

    async def sync(self, queue: str, owner: str, keep: Sequence[str], *, now: int | None = None) -> list[str]:
        """Remove those of this owner that are not among `keep`. Returns their ids."""


class Store(Engine, Inspector, Protocol):
    """One store, as `connect` gives it: its core, its read side, and its capabilities."""

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


# scheme -> module that has `connect(url, clock, prefix)`, and the extra that brings what it needs
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
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").startswith("toril"):
            raise
        raise EngineUnusable(
            f"{scheme}:// needs the package {error.name!r}; install it with: pip install 'toril[{extra}]'"
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
    """The URL as it may be shown: without password, at most 200 characters."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    if "@" in rest and not rest.startswith("/"):  # a password may hold any character; a file's path may hold an @
        rest = "***@" + rest.rpartition("@")[2]
    return _SECRET.sub(r"\1***", scheme + separator + rest)[:200]
