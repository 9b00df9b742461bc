"""The capabilities of a store beside its core, such as flows, groups and metrics; the rules of `engine` apply."""

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from toril.model import (
    BUILDING,
    LOAD,
    Added,
    Admission,
    AuditEntry,
    Call,
    Checkup,
    Child,
    ChildCounts,
    CircuitRow,
    CircuitSample,
    CircuitState,
    CircuitTerms,
    ControlResult,
    DeadLetterRow,
    DeliveredSignal,
    Fault,
    FlowNode,
    GroupRow,
    ImportResult,
    JobRef,
    JobRow,
    Keep,
    Kept,
    Lease,
    MinuteCounts,
    Moved,
    Page,
    Replay,
    Schedule,
    ScheduleLookup,
    ScheduleRow,
    SetGroup,
    SignalRow,
    Snapshot,
    StepAnswer,
    TransferBatch,
    Verdict,
)
from toril.store.checked import (
    AppName,
    Batch,
    CircuitKey,
    CircuitPause,
    DeadLetterBatch,
    DigestOrNone,
    GroupCursor,
    GroupName,
    KeepOrNone,
    Limit,
    Minutes,
    NewSignals,
    OnePart,
    PageSize,
    QueueName,
    QueueNames,
    Ref,
    SignalNameOrNone,
    SignalWaits,
    StepReports,
    StoredKey,
    StoredKeyOrNone,
    Window,
)

__all__ = [
    "AuditStore",
    "CircuitStore",
    "DeadLetterStore",
    "FlowStore",
    "GroupStore",
    "MetricsStore",
    "RepairStore",
    "ScheduleStore",
    "SortOrder",
    "StepStore",
    "TransferStore",
]

SortOrder: TypeAlias = Literal["newest", "oldest"]


@runtime_checkable
class DeadLetterStore(Protocol):
    """Jobs that failed for good. The step that settles a job as failed also writes its dead letter, unless the job
    itself is kept; so a job is in one place at a time. Dead letters stay until someone acts, or until their own
    retention is over."""

    @property
    def queue(self) -> str:
        """The name under which other libraries see the dead letters, if any; no queue of the user's may have it."""

    async def page(
        self, *, order: SortOrder = "newest", cursor: str | None = None, limit: PageSize = 50
    ) -> Page[DeadLetterRow]:
        """A page of dead letters, by the time at which they failed."""

    async def get(self, ids: DeadLetterBatch[str]) -> list[DeadLetterRow | None]:
        """The dead letters with these ids, in that order."""

    async def count(self) -> int: ...

    async def replay(
        self, queue: QueueName, replays: DeadLetterBatch[Replay], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Move dead letters back into the queue that they came from, each as a job without attempts. Refused are ids
        that are no dead letter of this queue and, with the state, those whose id another job has taken."""

    async def discard(
        self, ids: DeadLetterBatch[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Delete dead letters for good."""

    async def keep(self, keep: KeepOrNone, *, now: int | None = None) -> Keep:
        """Set how many dead letters the whole store keeps, and for how long; None just reads it. `prune` carries it
        out."""


@runtime_checkable
class CircuitStore(Protocol):
    """Circuits by key, shared by the whole fleet. Each step decides by `policy.breaker`, and no two decide on one key
    at once: so one caller learns of a change of state, and there are never more probes than allowed."""

    async def admit(
        self, key: CircuitKey, terms: CircuitTerms, holder: str, *, lease: int, now: int | None = None
    ) -> Admission:
        """Whether one more job of this key may run. A probe counts until it is recorded, or for `lease` ms."""

    async def record(
        self, key: CircuitKey, terms: CircuitTerms, holder: str, sign: CircuitSample, *, now: int | None = None
    ) -> CircuitState | None:
        """Record how a run did. Returns the state to which the circuit changed because of it. Sent again after a lost
        answer, it may count twice."""

    async def trip(self, key: CircuitKey, *, pause: CircuitPause = None, now: int | None = None) -> CircuitRow:
        """Open a circuit by hand, for `pause` ms or as long as its terms say."""

    async def reset(self, key: CircuitKey, *, now: int | None = None) -> bool:
        """Close a circuit by hand, and forget what it has counted. Returns False if nothing was known of it."""

    async def list(self) -> list[CircuitRow]:
        """All known circuits, in the order of their keys."""


@runtime_checkable
class AuditStore(Protocol):
    """What was changed from outside, and by whom. The latest entries are kept."""

    async def append(self, entry: AuditEntry, *, now: int | None = None) -> None: ...

    async def page(self, *, cursor: str | None = None, limit: PageSize = 50) -> Page[AuditEntry]:
        """A page of entries, latest first."""


@runtime_checkable
class RepairStore(Protocol):
    """Finds and repairs faults in the layout. All of it is safe beside busy workers."""

    async def facts(self, *, quick: bool = False) -> Checkup:
        """The facts of the server or the file. `quick` leaves out, here and in `scan`, what takes longer the more jobs
        there are."""

    def scan(
        self, queues: Sequence[str], *, cursor: str | None = None, quick: bool = False
    ) -> AsyncGenerator[Page[Fault], None]:
        """Look through these queues in the order of their names, then through what belongs to the fleet.

        Each item is what one bounded look has found, often nothing; so a caller may rest between looks, or stop after
        any and continue with its cursor. What one look takes for a fault may be a moment of a moving store: `repair`
        tells.
        """

    async def repair(
        self, faults: Sequence[Fault], *, mode: Literal["look", "repair"], now: int | None = None
    ) -> list[bool]:
        """For each fault, tell whether it is still there; with `repair`, the same step repairs it."""


@runtime_checkable
class FlowStore(Protocol):
    """Jobs that wait for others, in any queues of the store. The step that ends or removes a child also tells its
    parent, and the last child lets it go on; so a parent neither runs early nor is forgotten."""

    async def add(
        self,
        nodes: Batch[FlowNode],
        *,
        held: Sequence[JobRef] = (),
        hold_for: int = BUILDING,
        closed: Sequence[JobRef] = (),
        call: Call | None = None,
        now: int | None = None,
    ) -> list[Added]:
        """Store up to 1,000 jobs, all or none.

        A flow whose first job's id is taken is left out as a whole; a child whose id is taken becomes this parent's,
        unless it is another's or has children. `held` are parents of which more children follow in further calls: they
        are held back until a call lists them as `closed`. If none does within `hold_for` ms, `prune` removes what has
        not started. Sending a flow that is held back again continues it.
        """

    async def add_children(
        self, lease: Lease, nodes: Batch[FlowNode], *, call: Call | None = None, now: int | None = None
    ) -> Verdict:
        """Add children to the job of this lease, while it holds."""

    async def child_counts(self, job: Ref, *, where: Kept = "queue") -> ChildCounts:
        """How many children a job or dead letter has; none if there is no such job."""

    async def children(
        self, job: Ref, *, cursor: str | None = None, limit: PageSize = 100, where: Kept = "queue"
    ) -> Page[Child]:
        """What a job or dead letter knows of its children: first the open ones, then those that have completed, then
        the others."""

    async def child_names(self, job: Ref) -> list[tuple[JobRef, str]]:
        """The names of a job's children, in the order in which they were added. Children added by other programs have
        none, and children with a name here may be gone."""


@runtime_checkable
class GroupStore(Protocol):
    """Groups of a queue: jobs that share a name and take turns with other groups. Limits of all groups are a setting of
    the queue; these are the limits of one. A group is known while it has unfinished jobs or limits of its own."""

    async def set(
        self, queue: QueueName, change: SetGroup, *, call: Call | None = None, now: int | None = None
    ) -> GroupRow:
        """Set a group's own limits, pause it or resume it. Nothing more of a paused group starts, not even jobs already
        admitted; running jobs continue."""

    async def get(self, queue: QueueName, name: GroupName, *, now: int | None = None) -> GroupRow:
        """One group, as it stands."""

    async def page(
        self, queue: QueueName, *, cursor: GroupCursor = None, limit: PageSize = 100, now: int | None = None
    ) -> Page[GroupRow]:
        """A page of groups, in the order of their names."""


@runtime_checkable
class ScheduleStore(Protocol):
    """Schedules. A schedule always has one run in the store that has not started, and whoever starts it makes the next.

    Each step names the run that it expects to be the current one, so of any number of callers one succeeds, and a step
    that is sent again finds that it was made.
    """

    async def get(self, queue: QueueName, schedule: str, *, now: int | None = None) -> ScheduleLookup: ...

    async def page(self, queue: QueueName, *, cursor: str | None = None, limit: PageSize = 100) -> Page[ScheduleRow]:
        """Schedules in the order of their ids."""

    async def overdue(self, queue: QueueName, *, limit: PageSize = 100, now: int | None = None) -> list[ScheduleRow]:
        """Schedules whose current run has ended or vanished without a next one. Paused and finished schedules are not
        among them."""

    async def put(
        self, queue: QueueName, schedule: Schedule, slot: int, *, expects: int | None, now: int | None = None
    ) -> Moved:
        """Create or change a schedule, and make its run at `slot` in place of one that has not started. `expects` is
        the time of the current run; None means that there is no such schedule."""

    async def advance(
        self,
        queue: QueueName,
        schedule: str,
        *,
        since: int,
        to: int | None,
        started: str | None = None,
        now: int | None = None,
    ) -> Moved:
        """Go on from the run at `since` to the one at `to`; None means that there will be no more. `started` is the id
        of the job that now runs."""

    async def pause(self, queue: QueueName, schedule: str, *, now: int | None = None) -> bool:
        """Stop making runs, and drop the one that has not started. Returns False if there is no such schedule."""

    async def resume(
        self, queue: QueueName, schedule: str, *, since: int, to: int | None, now: int | None = None
    ) -> Moved:
        """Let a paused schedule continue with a run at `to`."""

    async def remove(self, queue: QueueName, schedule: str, *, now: int | None = None) -> bool:
        """Remove a schedule and its run that has not started."""

    async def sync(self, queue: QueueName, owner: AppName, keep: Sequence[str], *, now: int | None = None) -> list[str]:
        """Remove the schedules of this owner that are not in `keep`. Returns their ids."""


@runtime_checkable
class StepStore(Protocol):
    """Durable steps: rows that a job records of its handler, and signals to jobs.

    Rows belong to their job. They come with its claim (`Claimed.steps`), stay with it while it is kept, go with it to
    the dead letters and to another store, and are deleted by the step that deletes it. A job rests by being settled as
    `Rested`; `Rest` says which rows that writes. A row gets its number, its time and its attempt from the store.

    No signal is lost and no job sleeps through one: a delivery and a settlement are each one step, so that either the
    signal is there when the job would rest, or the job rests when the signal comes.
    """

    async def record(
        self, queue: QueueName, reports: StepReports, *, call: Call | None = None, now: int | None = None
    ) -> list[StepAnswer]:
        """Record up to 100 steps of running jobs, each only while its lease holds; one that does not count leaves the
        others alone.

        Any row takes the place of a FAILED or RETRY row of its key, and a WAIT with an `until` that of a RECEIVED one.
        Any other row that is there stays, and is the answer's `row`. `FULL` is the answer if the job would have more
        than 10,000 rows or 16 MB of them; then nothing is written.
        """

    async def receive(
        self,
        lease: Lease,
        key: StoredKey,
        signals: SignalWaits,
        *,
        digest: DigestOrNone = None,
        call: Call | None = None,
        now: int | None = None,
    ) -> StepAnswer:
        """Read the oldest of these signals, while the lease holds.

        The step that removes it records it under `key`, as RECEIVED. If there is none and the row of this key is a WAIT
        whose time is over, that is recorded. A row that is RECEIVED already is the answer again. If the answer is OK
        and has no row, nothing has come yet; from then on, signals by these keys go to the inbox of this job, until one
        is received for `key`, or the time is over, or the job ends. `CLASH`: they go to another job's.
        """

    async def deliver(
        self, queue: QueueName, signals: NewSignals, *, call: Call | None = None, now: int | None = None
    ) -> list[DeliveredSignal]:
        """Send up to 100 signals, in this order, each to the inbox of its job; a job that rests for it goes to the
        front of the line in the same step.

        A signal by key goes to the job that waits for that key, or is kept for `ttl`. One whose id is known has no
        effect: a job knows the ids of those sent to it, and the queue, for their `ttl`, of those sent by key. Jobs that
        are delayed for any other reason, paused queues and running jobs are left as they are.
        """

    async def rewind(
        self, queue: QueueName, job_id: str, to: StoredKeyOrNone, *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Forget the row with the key `to` and all that were recorded after it, or all rows, and run the job again:
        from the line, with all its attempts, no stalls and a new epoch.

        Refused, with the state, unless the job is waiting, prioritized, delayed, waiting for children, or kept as
        completed or failed. Signals that were read are gone; those that nobody has read stay. Raises `NotFound` if the
        job has no such row.
        """

    async def page(
        self, queue: QueueName, job_id: str, *, cursor: str | None = None, limit: PageSize = 100, where: Kept = "queue"
    ) -> Page[tuple[str, str]]:
        """The rows of a job or dead letter, key and text, in the order in which they were recorded. Empty if there
        is no such job."""

    async def resting(
        self, queue: QueueName, *, signal: SignalNameOrNone = None, cursor: str | None = None, limit: PageSize = 50
    ) -> Page[JobRow]:
        """Jobs that rest, by the time until which they do; with `signal`, those that wait for a signal of this name."""

    async def inbox(self, queue: QueueName, job_id: str, *, where: Kept = "queue") -> list[SignalRow]:
        """The signals of a job or dead letter that nobody has read yet, oldest first."""


@runtime_checkable
class MetricsStore(Protocol):
    """What the steps that settle and recover jobs always count."""

    async def snapshot(self, queues: QueueNames, window: Window, *, now: int | None = None) -> Snapshot:
        """At most 50 queues at one moment, read in one step."""

    async def minutes(self, queue: QueueName, *, minutes: Minutes, now: int | None = None) -> MinuteCounts:
        """How many jobs ended in each of the last minutes."""


@runtime_checkable
class TransferStore(Protocol):
    """Moves jobs to another store, and from one.

    One step exports a batch from this store, another imports it into the other; in between it is in neither, and nobody
    can claim it. One batch is in transit at a time: whoever asks for the next before it is confirmed gets the same one
    again, and a store that gets a batch again recognizes it. So anyone can interrupt a move anywhere and continue it
    later.
    """

    async def store_id(self) -> str:
        """An id that no other store has."""

    async def destination(self, queue: QueueName) -> str | None:
        """The store to which a queue is moving or has moved, until it comes back."""

    async def export_batch(
        self, part: OnePart, queue: str, *, to: str, mark: str, limit: Limit = LOAD, now: int | None = None
    ) -> TransferBatch | None:
        """Take a batch out: a queue's settings (once, which also pauses it), jobs that are not running, schedules,
        records; or dead letters, or what belongs to the whole store. None means that there is nothing for now.

        Raises `WrongState` while a batch is in transit to a store other than `to`.
        """

    async def import_batch(self, load: TransferBatch, *, sender: str, now: int | None = None) -> ImportResult:
        """Store a batch from another store, unless that was done already. Settings replace those of this store, numbers
        of new jobs begin far behind those of the other, and metrics are added up."""

    async def confirm_export(self, load: TransferBatch, *, now: int | None = None) -> bool:
        """Forget the batch in transit, because it has arrived. Returns False if it is another one."""
