"""What became of an attempt that raised. Pure: the error and the job's counts decide, chance is an argument."""

from toril.errors import InvalidPayload, JobCancelled, PermanentError, RateLimited, Snooze, TransientError, Undecodable
from toril.model import Cancelled, Claimed, Failed, Failure, Outcome, Released, Retried, Snoozed
from toril.policy.retry import delay_before_retry, milliseconds

__all__ = ["judge"]

_NEVER_AGAIN = (PermanentError, InvalidPayload, Undecodable)


def judge(error: BaseException, failure: Failure, job: Claimed, *, chance: float) -> Outcome:
    """Retry while attempts are left, unless the error says otherwise."""
    match error:
        case Snooze():
            return Snoozed(milliseconds("a snooze", error.seconds))
        case RateLimited():
            return Released()  # the queue is held meanwhile
        case JobCancelled(job_id=None):  # else it is another job that was cancelled, while this one waited for it
            return Cancelled(error.reason)
        case _ if isinstance(error, _NEVER_AGAIN):
            return Failed(failure)
        case _:
            return _retried(error, failure, job, chance)


def _retried(error: BaseException, failure: Failure, job: Claimed, chance: float) -> Outcome:
    failures = job.attempts_made + 1
    if failures >= job.attempts:
        return Failed(failure)
    delay = delay_before_retry(job.backoff, failures=failures, previous=job.delay, chance=chance)
    if isinstance(error, TransientError) and error.retry_after is not None:
        delay = max(delay, milliseconds("retry_after", error.retry_after))
    return Retried(failure, delay)
