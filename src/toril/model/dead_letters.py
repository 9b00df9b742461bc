"""Dead letters: jobs that failed for good."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from toril.model.attempts import Failure
from toril.model.flows import JobRef, OnFailure
from toril.model.jobs import MAX_ATTEMPTS, Backoff, JobOptions, check_int, check_text
from toril.model.records import Cause, JobRow
from toril.model.states import State

DEAD_LETTERS: Final = "dead-letter"  # the queue in which other libraries' dashboards show them
Kept: TypeAlias = Literal["queue", "dead_letters"]  # where to look for a job
DEAD_LETTER_CAUSES: Final = frozenset({Cause.FAILED, Cause.STALLED})  # not cancelled or expired ones


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRow:
    """A job as it was when it failed, with everything needed to run it again. `id` combines its queue and its own id,
    so a job is here at most once; `attempts_made` and `stalls` tell what was tried."""

    id: str
    queue: str
    job_id: str
    name: str
    data: str
    cause: Cause
    failure: Failure
    failed_at: int
    max_attempts: int
    attempts_made: int
    stalls: int
    stall_cause: str | None
    worker: str | None
    added_at: int
    started_at: int | None
    priority: int
    options: JobOptions
    metadata: str | None
    checkpoint: str | None
    progress: str | None = None
    parent: JobRef | None = None
    on_failure: OnFailure = OnFailure.FAIL
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """Run a dead letter's job again, under its own id, with all its attempts: those given, or those it had."""

    id: str
    data: str | None = None
    attempts: int | None = None
    backoff: Backoff | None = None

    def __post_init__(self) -> None:
        if self.data is not None:
            check_text("data", self.data)
        if self.attempts is not None:
            check_int("attempts", self.attempts, 1, MAX_ATTEMPTS)


def job_of(letter: DeadLetterRow) -> JobRow:
    """A dead letter as a job that has failed. How often it was started is no longer known."""
    return JobRow(
        queue=letter.queue,
        id=letter.job_id,
        name=letter.name,
        data=letter.data,
        state=State.FAILED,
        max_attempts=letter.max_attempts,
        attempts_made=letter.attempts_made,
        stalls=letter.stalls,
        starts=0,
        fence=0,
        priority=letter.priority,
        delay=0,
        due=None,
        expires_at=None,
        options=letter.options,
        metadata=letter.metadata,
        checkpoint=letter.checkpoint,
        progress=letter.progress,
        result=None,
        failure=letter.failure,
        stall_cause=letter.stall_cause,
        cancelling=None,
        worker=letter.worker,
        added_at=letter.added_at,
        started_at=letter.started_at,
        finished_at=letter.failed_at,
        deadline=None,
        parent=letter.parent,
        group=letter.group,
        dead_letter=letter.id,
    )


def letter_id(queue: str, job_id: str) -> str:
    """The id of a job's dead letter. A queue's name contains neither `/` nor `%`; a `:` would split the key."""
    return f"{queue}/{job_id.replace('%', '%25').replace(':', '%3A')}"


def letter_parts(identity: str) -> tuple[str, str]:
    """The queue and job id in a letter's id; both empty if it is not one."""
    queue, _, escaped = identity.partition("/")
    return (queue, escaped.replace("%3A", ":").replace("%25", "%")) if escaped else ("", "")
