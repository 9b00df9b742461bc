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
    Fault,
    FlowNode,
    GroupRow,
    ImportResult,
    JobRef,
    Keep,
    Kept,
    Lease,
    MetricsWindow,
    MinuteCounts,
    Page,
    Replay,
    SetGroup,
    Snapshot,
    TransferBatch,
    TransferPart,
    Verdict,
)

__all__ = [
    "AuditStore",
    "CircuitStore",
    "DeadLetterStore",
    "FlowStore",
    "GroupStore",
    "MetricsStore",
    "RepairStore",
    "SortOrder",
    "TransferStore",
]

SortOrder: TypeAlias = Literal["newest", "oldest"]


@runtime_checkable
class DeadLetterStore(Protocol):
    """Jobs that failed for good. The step that settles a job as failed writes its letter, unless the job itself is
    kept; so each job is in one place, and among the letters once at most. They stay until someone acts, or until their
    own retention is over."""

    @property
    def queue(self) -> str:
        """The name under which other libraries see them, where there are such; no queue of the user's may have it."""

    async def page(
        self, *, order: SortOrder = "newest", cursor: str | None = None, limit: int = 50
    ) -> Page[DeadLetterRow]:
        """A page of them, by the time at which they failed."""

    async def get(self, ids: Sequence[str]) -> list[DeadLetterRow | None]:
        """Those of these ids, in that order."""

    async def count(self) -> int: ...

    async def replay(
        self, queue: str, replays: Sequence[Replay], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        """Move letters back into the queue that they came from, each as a job that has tried nothing yet. Refused is
        what is no letter of this queue, and, with the state, what has its id taken by another job."""

    async def discard(self, ids: Sequence[str], *, call: Call | None = None, now: int | None = None) -> ControlResult:
        """Delete letters for good."""

    async def keep(self, keep: Keep | None, *, now: int | None = None) -> Keep:
        """How many are kept, and for how long, over the whole store; None to change nothing and just read it. `prune`
        carries it out."""


@runtime_checkable
class CircuitStore(Protocol):
    """Circuits by their keys, shared by the whole fleet. Each step decides by `policy.breaker`, and no two decide on
    one key at once: so a change of state is answered to one caller, and no more probes are out than there may be."""

    async def admit(
        self, key: str, terms: CircuitTerms, holder: str, *, lease: int, now: int | None = None
    ) -> Admission:
        """Whether one more job of this key may run. A probe counts as out until it is recorded, or for `lease` ms."""

    async def record(
        self, key: str, terms: CircuitTerms, holder: str, sign: CircuitSample, *, now: int | None = None
    ) -> CircuitState | None:
        """What a run says of its key; the state that the circuit has changed to by that. Sent again after a lost answer
        it may count twice."""

    async def trip(self, key: str, *, pause: int | None = None, now: int | None = None) -> CircuitRow:
        """Open a circuit by hand, for `pause` ms or as long as its terms say."""

    async def reset(self, key: str, *, now: int | None = None) -> bool:
        """Close a circuit by hand, and forget what it has counted. False if nothing was known of it."""

    async def list(self) -> list[CircuitRow]:
        """All that something is known of, by their keys."""


@runtime_checkable
class AuditStore(Protocol):
    """What was changed from outside, and by whom. The last of it is kept."""

    async def append(self, entry: AuditEntry, *, now: int | None = None) -> None: ...

    async def page(self, *, cursor: str | None = None, limit: int = 50) -> Page[AuditEntry]:
        """A page of entries, the last first."""


@runtime_checkable
class RepairStore(Protocol):
    """What is wrong with the layout, and how it is repaired. All of it may be done beside workers that are busy."""

    async def facts(self, *, quick: bool = False) -> Checkup:
        """The facts of the server or the file that jobs are entrusted to. `quick` leaves out, here and in `faults`,
        what takes the longer the more jobs there are."""

    def scan(
        self, queues: Sequence[str], *, cursor: str | None = None, quick: bool = False
    ) -> AsyncGenerator[Page[Fault], None]:
        """Go through these queues by their names, and through what belongs to the fleet. Each item is what one bounded
        look has found, often nothing; so one may rest between looks, and stop after any: with its cursor another walk
        goes on there. What one look takes for a fault may be a moment of a store that moves: `repair` tells."""

    async def repair(
        self, faults: Sequence[Fault], *, mode: Literal["look", "repair"], now: int | None = None
    ) -> list[bool]:
        """For each of them, whether it is there; to `repair` it is repaired in the step that finds it there."""


@runtime_checkable
class FlowStore(Protocol):
    """Jobs that wait for others, in any queues of the store. Whoever ends or removes a child tells its parent in the
    same step, and the last one lets it go on; so a parent neither runs early nor is forgotten."""

    async def add(
        self,
        nodes: Sequence[FlowNode],
        *,
        held: Sequence[JobRef] = (),
        hold_for: int = BUILDING,
        closed: Sequence[JobRef] = (),
        call: Call | None = None,
        now: int | None = None,
    ) -> list[Added]:
        """Store up to 1,000 jobs, all or none. A flow whose first job's id is taken is left out as a whole; a child
        whose id is taken becomes this parent's, unless it is another's or has children. `held` are parents of which
        more children follow, in calls of their own: they are held back until one says that they are `closed`; if none
        does within `hold_for` ms, `prune` takes back what has not started. A flow that is held back goes on being added
        where it is sent again."""

    async def add_children(
        self, lease: Lease, nodes: Sequence[FlowNode], *, call: Call | None = None, now: int | None = None
    ) -> Verdict:
        """Children of the job that the lease is for, while it holds."""

    async def child_counts(self, job: JobRef, *, where: Kept = "queue") -> ChildCounts:
        """How many children a job, or its dead letter, has; none, if there is no such job."""

    async def children(
        self, job: JobRef, *, cursor: str | None = None, limit: int = 100, where: Kept = "queue"
    ) -> Page[Child]:
        """What a job, or its dead letter, knows of its children: first the open ones, then those that have returned,
        then the others."""

    async def child_names(self, job: JobRef) -> list[tuple[JobRef, str]]:
        """The names of a job's children, in the order in which they were added. Another program that adds children does
        not write their names down; and of some that are named here, nothing may be known any more."""


@runtime_checkable
class GroupStore(Protocol):
    """Jobs of a queue that share a name, and take turns with those of other names. What holds for all groups is a
    setting of the queue; this is what holds for one. A group is known while it has jobs that have not ended, or limits
    of its own."""

    async def set(self, queue: str, change: SetGroup, *, call: Call | None = None, now: int | None = None) -> GroupRow:
        """Set a group's own limits, pause it or let it go on. Of a paused group nothing more starts, neither what was
        let in before; what runs goes on."""

    async def get(self, queue: str, name: str, *, now: int | None = None) -> GroupRow:
        """One of them, as it stands."""

    async def page(
        self, queue: str, *, cursor: str | None = None, limit: int = 100, now: int | None = None
    ) -> Page[GroupRow]:
        """A page of them, by their names."""


@runtime_checkable
class MetricsStore(Protocol):
    """What is counted, always, by the steps that settle jobs and take them back."""

    async def snapshot(self, queues: Sequence[str], window: MetricsWindow, *, now: int | None = None) -> Snapshot:
        """These queues, at most 50, at one moment and in one step."""

    async def minutes(self, queue: str, *, minutes: int, now: int | None = None) -> MinuteCounts:
        """How many jobs ended in each of the last minutes."""


@runtime_checkable
class TransferStore(Protocol):
    """Leaving for another store, and coming from one. A load is taken out of this store by one step and put into the
    other by another; between them it is in neither, and claimable in none. One is on its way at a time: whoever asks
    for the next before it is forgotten gets the same again, and a store that is given one again knows that it has it.
    So a move can be broken off anywhere, and gone on with by anybody."""

    async def store_id(self) -> str:
        """A name that no other store has."""

    async def destination(self, queue: str) -> str | None:
        """The store for which a queue leaves, or has left; until it comes back."""

    async def export_batch(
        self, part: TransferPart, queue: str, *, to: str, mark: str, limit: int = LOAD, now: int | None = None
    ) -> TransferBatch | None:
        """Take something out: the queue's settings (once; and the queue is paused), jobs that do not run, schedules,
        what was recorded; or dead letters, or what belongs to the whole store. None: there is nothing, for now.
        `WrongState` while there is something on its way to another store than `to`."""

    async def import_batch(self, load: TransferBatch, *, sender: str, now: int | None = None) -> ImportResult:
        """Store what another store has sent, unless that was done. Settings replace those of here, and the numbers of
        new jobs begin far behind those of there; figures are added up."""

    async def confirm_export(self, load: TransferBatch, *, now: int | None = None) -> bool:
        """The load has arrived. False: it is not the one that is on its way."""
