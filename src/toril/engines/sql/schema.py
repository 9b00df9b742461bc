"""The rows of jobs, and how jobs, runs and events are numbered and ordered. Nothing else knows these numbers."""

from typing import Final, NamedTuple

from toril.engines.sql.options import NOTHING_STORED, StoredOptions, load_options
from toril.model import RunStatus
from toril.model.states import State

__all__ = [
    "AWAITED",
    "PAGE_BYTES",
    "RECORDED",
    "SIGNALS",
    "STATE_OF",
    "STEPS",
    "Held",
    "HeldJob",
    "JobFacts",
    "LeasedJob",
    "Place",
    "ReadyJob",
    "delayed_rank",
    "due_bound",
    "due_of",
    "finished_bound",
    "finished_rank",
    "first_key",
    "first_rank",
    "job_id",
    "job_key",
    "places_of",
    "priority_of",
    "priority_rank",
    "run_key",
]

_NUMBER_BITS: Final = 40  # a queue may number a million million jobs
_NUMBERS: Final = 1 << _NUMBER_BITS
_TIE_BITS: Final = 20  # order among a million entries of one millisecond
_TIES: Final = 1 << _TIE_BITS
_MIDDLE: Final = 1 << 39  # of the range of one priority; entries at the front count down from here
PAGE_BYTES: Final = 4 * 1024 * 1024  # of jobs, after which a page takes no more
# Of `queues.stepping`: in which tables jobs of the queue may have rows.
RECORDED: Final = 1
STEPS: Final = 2
SIGNALS: Final = 4
AWAITED: Final = 8
_DIGITS: Final = 13  # of the largest number
_ENDINGS: Final = {ending: number for number, ending in enumerate(RunStatus)}


class Place:
    """The place of a job in `line`. Suspects are waiting jobs that have stalled and are claimed alone. These are plain
    numbers, because sqlite3 binds members of an enum several times slower."""

    PARKED_SUSPECT: Final = -2  # a parked suspect of a group
    PARKED: Final = -1
    WAITING: Final = 0
    SUSPECT: Final = 1
    PRIORITIZED: Final = 2
    DELAYED: Final = 3
    WAITING_CHILDREN: Final = 4
    COMPLETED: Final = 5
    FAILED: Final = 6


STATE_OF: Final[dict[int, State]] = {
    Place.PARKED: State.WAITING,
    Place.PARKED_SUSPECT: State.WAITING,
    Place.WAITING: State.WAITING,
    Place.SUSPECT: State.WAITING,
    Place.PRIORITIZED: State.PRIORITIZED,
    Place.DELAYED: State.DELAYED,
    Place.WAITING_CHILDREN: State.WAITING_CHILDREN,
    Place.COMPLETED: State.COMPLETED,
    Place.FAILED: State.FAILED,
}


def places_of(state: State) -> list[int]:
    """The places that make up a state. Active jobs are in none."""
    return [place for place, its_state in STATE_OF.items() if its_state is state]


def first_key(queue: int) -> int:
    """The key below all keys of this queue's jobs, and below all of its events."""
    return queue << _NUMBER_BITS


def job_key(queue: int, job_id: str) -> int | None:
    """The key of a job whose id is its number; None for an id that a user chose."""
    if not job_id.isdecimal() or job_id[0] == "0" or len(job_id) > _DIGITS or not job_id.isascii():
        return None
    number = int(job_id)
    return (queue << _NUMBER_BITS) + number if number < _NUMBERS else None


def job_id(key: int, chosen: str | None) -> str:
    """The id of a job: the one chosen, else its number."""
    return str(key & (_NUMBERS - 1)) if chosen is None else chosen


def run_key(queue: int, ending: RunStatus, number: int) -> int:
    """The key of a queue's run record: those of each ending are numbered apart."""
    return (((queue << 2) + _ENDINGS[ending]) << _NUMBER_BITS) + number


def delayed_rank(due: int, last: int | None) -> int:
    """By due time, and within a millisecond after `last`, the rank before. Beyond a million in one millisecond, which
    share the last rank, the order is that of adding."""
    first = due << _TIE_BITS
    return first if last is None else min(last + 1, first + _TIES - 1)


def due_of(rank: int) -> int:
    """The due time in a delayed job's rank."""
    return rank >> _TIE_BITS


def due_bound(now: int) -> int:
    """The rank below which delayed jobs are due."""
    return (now + 1) << _TIE_BITS


def finished_rank(finished_at: int, moved: int) -> int:
    """By the time of ending."""
    return (finished_at << _TIE_BITS) + (moved & (_TIES - 1))


def finished_bound(cutoff: int) -> int:
    """The rank up to which jobs had ended by `cutoff`."""
    return ((cutoff + 1) << _TIE_BITS) - 1


def priority_rank(priority: int, step: int) -> int:
    """By priority, then in order of arrival; a negative `step` is an entry at the front of its priority."""
    return (priority << _NUMBER_BITS) + _MIDDLE + step


def priority_of(rank: int) -> int:
    """The priority in a rank."""
    return rank >> _NUMBER_BITS


def first_rank(priority: int) -> int:
    """The rank below all of this priority."""
    return priority << _NUMBER_BITS


class JobFacts(NamedTuple):
    """The facts of a job that a step needs; `chosen` is the id if a user chose it. Other rows of jobs begin with
    these."""

    key: int
    chosen: str | None
    name: str
    priority: int
    max_attempts: int
    attempts_made: int
    stalls: int
    starts: int
    fence: int
    added_at: int
    started_at: int | None
    worker: str | None
    logs: int
    options_text: str | None

    @property
    def id(self) -> str:
        return job_id(self.key, self.chosen)

    @property
    def stored(self) -> StoredOptions:
        return NOTHING_STORED if self.options_text is None else load_options(self.options_text)


class ReadyJob(NamedTuple):
    """The next job of a place, as a claim needs it."""

    job: JobFacts
    rank: int
    expires_at: int | None
    delay: int
    metadata: str | None
    checkpoint: str | None
    data: str
    group_name: str | None


class HeldJob(NamedTuple):
    """A job that an earlier claim took and that is still held, as it was before that claim."""

    job: JobFacts
    delay: int
    metadata: str | None
    checkpoint: str | None
    data: str
    held_fence: int
    alone: int


class Held(NamedTuple):
    """A running job and its lease, as a settlement needs them."""

    job: JobFacts
    delay: int
    alone: int
    cancelling: str | None
    token: str
    deadline: int


class LeasedJob(NamedTuple):
    """A running job and its lease, as its recovery needs them."""

    job: JobFacts
    alone: int
    max_stalls: int
    cancelling: str | None
