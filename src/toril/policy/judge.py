"""What became of an attempt that raised. Pure: the error and the job's counts decide, chance is an argument."""

from toril.errors import JobCancelled, RateLimited, Resting, Snooze, TransientError
from toril.model import Cancelled, Claimed, Failed, Failure, Outcome, Parked, Released, Retried, Snoozed
from toril.model.durations import milliseconds
from toril.policy.classify import DEFAULTS, Nature, Table, nature_of
from toril.policy.retry import delay_before_retry

__all__ = ["judge", "own_table"]


def judge(
    error: BaseException,
    failure: Failure,
    job: Claimed,
    *,
    chance: float,
    table: Table = DEFAULTS,
    delay: int | None = None,
) -> Outcome:
    """Retry while attempts are left, unless the error, or the table of errors, says otherwise. `delay` is what a
    strategy of the app's own has decided."""
    match error:
        case Snooze():
            return Snoozed(milliseconds("a snooze", error.seconds))
        case Resting(parked=Parked() as parked):
            return parked
        case RateLimited():
            return Released()  # the queue is held meanwhile
        case JobCancelled(job_id=None):  # else it is another job that was cancelled, while this one waited for it
            return Cancelled(error.reason)
        case _ if nature_of(error, own_table(job) or table) is Nature.PERMANENT:
            return Failed(failure)
        case _:
            return _retried(error, failure, job, chance, delay)


def own_table(job: Claimed) -> Table:
    """What the job's own options say of errors."""
    return DEFAULTS if job.backoff is None else Table(job.backoff.on, job.backoff.give_up_on)


def _retried(error: BaseException, failure: Failure, job: Claimed, chance: float, delay: int | None) -> Outcome:
    failures = job.attempts_made + 1
    if failures >= job.max_attempts:
        return Failed(failure)
    if delay is None:
        delay = delay_before_retry(job.backoff, failures=failures, previous=job.delay, chance=chance)
    if isinstance(error, TransientError) and error.retry_after is not None:
        delay = max(delay, milliseconds("retry_after", error.retry_after))
    return Retried(failure, delay)
