"""What Toril asks of a store beside the core of the seam; each of them one capability. The rules of `engine` hold."""

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from toril.model import (
    BUILDING,
    LOAD,
    Added,
    Admission,
    Arrival,
    Audited,
    Call,
    Changed,
    Checkup,
    Child,
    Circuit,
    CircuitState,
    CircuitTerms,
    DeadLetterRow,
    Family,
    Fault,
    Figures,
    FlowNode,
    GroupRow,
    JobRef,
    Keep,
    Kept,
    Lease,
    Load,
    Page,
    Part,
    Replay,
    SetGroup,
    Sign,
    Verdict,
    Window,
)

__all__ = ["Audits", "Breakers", "DeadLetters", "Flows", "Groups", "Measures", "Moves", "Order", "Repairs"]

Order: TypeAlias = Literal["newest", "oldest"]


@runtime_checkable
class DeadLetters(Protocol):
    """Jobs that failed for good. The step that settles a job as failed writes its letter, unless the job itself is
    kept; so each job is in one place, and among the letters once at most. They stay until someone acts, or until their
    own retention is over."""

    @property
    def dead_letter_queue(self) -> str:
        """The name under which other libraries see them, where there are such; no queue of the user's may have it."""

    async def letters(
        self, *, order: Order = "newest", cursor: str | None = None, limit: int = 50
    ) -> Page[DeadLetterRow]:
        """A page of them, by the time at which they failed."""

    async def letters_of(self, ids: Sequence[str]) -> list[DeadLetterRow | None]:
        """Those of these ids, in that order."""

    async def count_letters(self) -> int: ...

    async def replay(
        self, queue: str, replays: Sequence[Replay], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        """Move letters back into the queue that they came from, each as a job that has tried nothing yet. Refused is
        what is no letter of this queue, and, with the state, what has its id taken by another job."""

    async def discard(self, ids: Sequence[str], *, call: Call | None = None, now: int | None = None) -> Changed:
        """Delete letters for good."""

    async def keep_letters(self, keep: Keep | None, *, now: int | None = None) -> Keep:
        """How many are kept, and for how long, over the whole store; None to change nothing and just read it. `prune`
        carries it out."""


@runtime_checkable
class Breakers(Protocol):
    """Circuits by their keys, shared by the whole fleet. Each step decides by `policy.breaker`, and no two decide on
    one key at once: so a change of state is answered to one caller, and no more probes are out than there may be."""

    async def admit(
        self, key: str, terms: CircuitTerms, holder: str, *, lease: int, now: int | None = None
    ) -> Admission:
        """Whether one more job of this key may run. A probe counts as out until it is recorded, or for `lease` ms."""

    async def record(
        self, key: str, terms: CircuitTerms, holder: str, sign: Sign, *, now: int | None = None
    ) -> CircuitState | None:
        """What a run says of its key; the state that the circuit has changed to by that. Sent again after a lost answer
        it may count twice."""

    async def trip(self, key: str, *, pause: int | None = None, now: int | None = None) -> Circuit:
        """Open a circuit by hand, for `pause` ms or as long as its terms say."""

    async def reset(self, key: str, *, now: int | None = None) -> bool:
        """Close a circuit by hand, and forget what it has counted. False if nothing was known of it."""

    async def circuits(self) -> list[Circuit]:
        """All that something is known of, by their keys."""


@runtime_checkable
class Audits(Protocol):
    """What was changed from outside, and by whom. The last of it is kept."""

    async def note(self, entry: Audited, *, now: int | None = None) -> None: ...

    async def notes(self, *, cursor: str | None = None, limit: int = 50) -> Page[Audited]:
        """A page of entries, the last first."""


@runtime_checkable
class Repairs(Protocol):
    """What is wrong with the layout, and how it is mended. All of it may be done beside workers that are busy."""

    async def checkup(self, *, quick: bool = False) -> Checkup:
        """The facts of the server or the file that jobs are entrusted to. `quick` leaves out, here and in `faults`,
        what takes the longer the more jobs there are."""

    def faults(
        self, queues: Sequence[str], *, cursor: str | None = None, quick: bool = False
    ) -> AsyncGenerator[Page[Fault], None]:
        """Go through these queues by their names, and through what belongs to the fleet. Each item is what one bounded
        look has found, often nothing; so one may rest between looks, and stop after any: with its cursor another walk
        goes on there. What one look takes for a fault may be a moment of a store that moves: `mend` tells."""

    async def mend(
        self, faults: Sequence[Fault], *, mode: Literal["look", "mend"], now: int | None = None
    ) -> list[bool]:
        """For each of them, whether it is there; to `mend` it is mended in the step that finds it there."""


@runtime_checkable
class Flows(Protocol):
    """Jobs that wait for others, in any queues of the store. Whoever ends or removes a child tells its parent in the
    same step, and the last one lets it go on; so a parent neither runs early nor is forgotten."""

    async def add_flow(
        self, nodes: Sequence[FlowNode], *, held: Sequence[JobRef] = (), hold_for: int = BUILDING,
        closed: Sequence[JobRef] = (), call: Call | None = None, now: int | None = None,
    ) -> list[Added]:  # fmt: skip
        """Store up to 1,000 jobs, all or none. A flow whose first job's id is taken is left out as a whole; a child
        whose id is taken becomes this parent's, unless it is another's or has children. `held` are parents of which
        more children follow, in calls of their own: they are held back until one says that they are `closed`; if none
        does within `hold_for` ms, `prune` takes back what has not started. A flow that is held back goes on being added
        where it is sent again."""

    async def add_children(
        self, lease: Lease, nodes: Sequence[FlowNode], *, call: Call | None = None, now: int | None = None
    ) -> Verdict:
        """Children of the job that the lease is for, while it holds."""

    async def family(self, job: JobRef, *, where: Kept = "queue") -> Family:
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
class Groups(Protocol):
    """Jobs of a queue that share a name, and take turns with those of other names. What holds for all groups is a
    setting of the queue; this is what holds for one. A group is known while it has jobs that have not ended, or limits
    of its own."""

    async def set_group(
        self, queue: str, change: SetGroup, *, call: Call | None = None, now: int | None = None
    ) -> GroupRow:
        """Set a group's own limits, pause it or let it go on. Of a paused group nothing more starts, neither what was
        let in before; what runs goes on."""

    async def group(self, queue: str, name: str, *, now: int | None = None) -> GroupRow:
        """One of them, as it stands."""

    async def groups(
        self, queue: str, *, cursor: str | None = None, limit: int = 100, now: int | None = None
    ) -> Page[GroupRow]:
        """A page of them, by their names."""


@runtime_checkable
class Measures(Protocol):
    """What is counted, always, by the steps that settle jobs and take them back."""

    async def figures(self, queues: Sequence[str], window: Window, *, now: int | None = None) -> Figures:
        """These queues, at most 50, at one moment and in one step."""


@runtime_checkable
class Moves(Protocol):
    """Leaving for another store, and coming from one. A load is taken out of this store by one step and put into the
    other by another; between them it is in neither, and claimable in none. One is on its way at a time: whoever asks
    for the next before it is forgotten gets the same again, and a store that is given one again knows that it has it.
    So a move can be broken off anywhere, and gone on with by anybody."""

    async def identity(self) -> str:
        """A name that no other store has."""

    async def departure(self, queue: str) -> str | None:
        """The store for which a queue leaves, or has left; until it comes back."""

    async def pack(
        self, part: Part, queue: str, *, to: str, mark: str, limit: int = LOAD, now: int | None = None
    ) -> Load | None:
        """Take something out: the queue's settings (once; and the queue is paused), jobs that do not run, schedules,
        what was recorded; or dead letters, or what belongs to the whole store. None: there is nothing, for now.
        `WrongState` while there is something on its way to another store than `to`."""

    async def unload(self, load: Load, *, sender: str, now: int | None = None) -> Arrival:
        """Store what another store has sent, unless that was done. Settings replace those of here, and the numbers of
        new jobs begin far behind those of there; figures are added up."""

    async def forget(self, load: Load, *, now: int | None = None) -> bool:
        """The load has arrived. False: it is not the one that is on its way."""
