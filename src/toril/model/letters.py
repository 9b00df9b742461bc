"""Jobs that failed for good and wait for someone to look at them."""

from dataclasses import dataclass
from typing import Final

from toril.model.flows import JobRef, OnFailure
from toril.model.options import MAX_ATTEMPTS, Backoff, Keep, check_text, whole
from toril.model.views import Cause
from toril.model.work import Failure

DEAD_LETTERS: Final = "dead-letter"  # the queue that other libraries' dashboards show them in
BURIED: Final = frozenset({Cause.FAILED, Cause.STALLED})  # who was cancelled, or came too late, is not mourned


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRow:
    """A job as it was when it failed, with all that running it again needs. `id` is made of its queue and its own id,
    so that a job is here once at most; `attempts_made` and `stalls` tell what was tried."""

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
    backoff: Backoff | None
    timeout: int | None
    keep_completed: Keep
    keep_logs: int
    result_ttl: int | None
    breaker: str | None
    subject: str | None
    metadata: str | None
    checkpoint: str | None
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
            whole("attempts", self.attempts, 1, MAX_ATTEMPTS)


def letter_id(queue: str, job_id: str) -> str:
    """The id of a job's dead letter. A queue's name has neither `/` nor `%`; a `:` would part a key."""
    return f"{queue}/{job_id.replace('%', '%25').replace(':', '%3A')}"


def letter_parts(identity: str) -> tuple[str, str]:
    """The queue and the job of which `letter_id` made this; both empty where it made none."""
    queue, _, escaped = identity.partition("/")
    return (queue, escaped.replace("%3A", ":").replace("%25", "%")) if escaped else ("", "")
