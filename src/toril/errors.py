"""The errors that Toril raises, grouped by what you should do about them.

::

    TorilError
    ├── UsageError            correct the call
    │   ├── InvalidName         a name or id that cannot be used
    │   ├── InvalidOption       an option with a value that is not allowed
    │   ├── NotSerializable     a payload or result that JSON cannot represent exactly
    │   ├── InvalidPayload      a payload that is not of the declared type
    │   ├── PayloadTooLarge     a payload above the size limit
    │   ├── UnknownQueue        a queue that the app does not declare
    │   ├── WrongState          the job is in a state that does not allow this
    │   ├── StepClash           two durable steps would have the same name
    │   ├── InboxFull           the job, or the queue, has no room for another signal
    │   ├── NotFound            there is no such job, schedule, worker or dead letter
    │   └── Closed              used before it was opened, or after it was closed
    ├── EngineUnavailable     try again: it is unknown whether the call took effect
    │   ├── EngineFull          the store has no room
    │   ├── EngineRefused       the store denies access, or is not what the URL says
    │   ├── QueueFull           the queue has as many waiting jobs as it may have
    │   ├── CallTooLate         a later call of the same sender has been answered
    │   └── AddUncertain        it may be stored; too few replicas have confirmed it
    ├── EngineUnusable        stop: corrupt, newer schema, unsafe settings
    ├── PartialAdd            a large add stopped halfway; lists what was stored
    ├── ResultGone            the job has ended, its result was not kept
    ├── JobFailed             the job whose result was awaited failed
    ├── Undecodable           stored data cannot be read
    └── HandlerError          raised in handlers, to say what should become of the job
        ├── PermanentError      do not retry
        │   ├── ChildrenFailed  some of the children whose results were asked for failed
        │   └── StepsTooLarge   the durable steps of the job take more room than they may
        ├── TransientError      retry, but not before `retry_after`
        ├── Snooze              run again later; no attempt is spent
        ├── RateLimited         start nothing of the queue for a while; no attempt is spent
        ├── StepFailed          a durable step has failed, now or in an earlier run
        ├── StepChanged         what is recorded of a durable step does not fit the code
        ├── JobCancelled        the job was cancelled
        └── LeaseLost           another worker may be running the job

`Resting` is a `BaseException`: the job waits, and its handler is called again; let it through.

A lost lease and a taken id are answers, not errors: see `toril.model`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toril.model.durations import Duration

__all__ = [
    "AddUncertain",
    "CallTooLate",
    "ChildrenFailed",
    "Closed",
    "EngineFull",
    "EngineRefused",
    "EngineUnavailable",
    "EngineUnusable",
    "HandlerError",
    "InboxFull",
    "InvalidName",
    "InvalidOption",
    "InvalidPayload",
    "JobCancelled",
    "JobFailed",
    "LeaseLost",
    "NotFound",
    "NotSerializable",
    "PartialAdd",
    "PayloadTooLarge",
    "PermanentError",
    "QueueFull",
    "RateLimited",
    "Resting",
    "ResultGone",
    "Snooze",
    "StepChanged",
    "StepClash",
    "StepFailed",
    "StepsTooLarge",
    "TorilError",
    "TransientError",
    "Undecodable",
    "UnknownQueue",
    "UsageError",
    "WrongState",
    "error_text",
    "preview",
    "unknown_cursor",
]

_SHOWN = 80


def preview(value: object) -> str:
    """A value for error messages: at most 80 characters, control characters escaped."""
    if isinstance(value, str | bytes | bytearray):
        value = value[:_SHOWN]  # do not copy 100 MB to show 80 characters
    try:
        text = repr(value) if type(value) is str else ascii(value)
    except Exception:  # a `__repr__` may raise anything, and an int of 5,000 digits has none
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def error_text(error: BaseException) -> str:
    """The text of an error, or its type if it has none."""
    kind = type(error).__name__
    try:
        return str(error) or kind
    except BaseException:  # a `__str__` may raise anything, and must not end a worker
        return f"{kind} (its message cannot be read)"


class TorilError(Exception):
    """The base class of every error that Toril raises."""


class UsageError(TorilError):
    """The call is wrong. Sending it again will not help: correct it."""


class InvalidName(UsageError, ValueError):
    """A name or id that cannot be used. The message says which rule it breaks."""


class InvalidOption(UsageError, ValueError):
    """An option with a value that is not allowed. The message says which values are."""


def unknown_cursor(cursor: object) -> InvalidOption:
    """The error for a cursor that no page ended with."""
    return InvalidOption(f"unknown cursor {preview(cursor)}; pass the cursor of the page before")


class NotSerializable(UsageError, TypeError):
    """A value that JSON cannot represent exactly. The message gives the path to it."""


class InvalidPayload(UsageError, ValueError):
    """A payload that is not of the type its handler declares. The message names the field."""


class PayloadTooLarge(UsageError, ValueError):
    """A payload above the size limit. Nothing was sent."""


class UnknownQueue(UsageError, LookupError):
    """A queue that the app does not declare."""


class WrongState(UsageError):
    """The job is in a state that does not allow this. The message names the state."""


class NotFound(UsageError, LookupError):
    """There is no such job, schedule, worker or dead letter."""


class StepClash(UsageError):
    """Two durable steps of a run, or two jobs that wait for a signal by key, would have the same name. The message says
    how to tell them apart."""


class InboxFull(UsageError):
    """The job has as many unread signals as it may have, or the queue as many that nobody waits for yet."""


class Closed(UsageError):
    """The store was used before it was opened, or after it was closed."""


class EngineUnavailable(TorilError):
    """The store did not answer, so it is unknown whether the call took effect. Try again."""


class EngineFull(EngineUnavailable):
    """The store has no room. Nothing was written."""


class EngineRefused(EngineUnavailable):
    """The store denies access, cannot be trusted, or is not what the URL says. Correct that, then try again."""


class QueueFull(EngineUnavailable):
    """The queue or group has as many waiting jobs as it may have. Nothing was written; try again later."""


class CallTooLate(EngineUnavailable):
    """A later call of the same sender has already been answered, so this one has no effect."""


class AddUncertain(EngineUnavailable):
    """The jobs with these `job_ids` may be stored, but too few replicas confirmed them in time.

    It is safe to add them again with the same ids.
    """

    def __init__(self, message: str, *, job_ids: Sequence[str]) -> None:
        super().__init__(message)
        self.job_ids = tuple(job_ids)


class EngineUnusable(TorilError):
    """The store cannot be used as it is. The message says what to do."""


class PartialAdd(TorilError):
    """A large add stopped halfway. `stored` has the ids of the jobs that were stored."""

    def __init__(self, message: str, *, stored: Sequence[str]) -> None:
        super().__init__(message)
        self.stored = tuple(stored)


class ResultGone(TorilError):
    """The job has ended, but its result was not kept. Add the job with `result_ttl` to keep it."""


class Undecodable(TorilError):
    """Stored data cannot be read. A job with such data fails with this error, at once."""


class JobFailed(TorilError):
    """The job whose result you awaited failed, for `reason`."""

    def __init__(self, message: str, *, job_id: str, reason: str) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.reason = reason


class HandlerError(TorilError):
    """The base class of the errors that a handler raises to say what should become of its job."""


class PermanentError(HandlerError):
    """Retrying will not help: the job fails at once, whatever attempts it has left."""


class ChildrenFailed(PermanentError):
    """Raised by `ctx.children` if some of the children failed. `failed` has a `FailedChild` for each of them."""

    def __init__(self, message: str, *, failed: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.failed = tuple(failed)


class StepsTooLarge(PermanentError):
    """A durable step's value is too large, or the job has recorded too many. What is recorded stays, so the job can be
    replayed after a fix."""


class TransientError(HandlerError):
    """Retrying may help: the job is retried, but not before `retry_after` if that is given."""

    def __init__(self, message: str = "", *, retry_after: "Duration | None" = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Snooze(HandlerError):
    """Not now: the job runs again after `seconds`, and no attempt is spent."""

    def __init__(self, seconds: "Duration", message: str = "") -> None:
        super().__init__(message or f"snoozed for {seconds}")
        self.seconds = seconds


class RateLimited(HandlerError):
    """A service that the job calls has refused it: no job of the queue starts for `seconds`, in any process. The job
    keeps its place at the front, and no attempt is spent."""

    def __init__(self, seconds: "Duration", message: str = "") -> None:
        super().__init__(message or f"rate limited for {seconds}")
        self.seconds = seconds


class StepFailed(HandlerError):
    """A durable step has failed. In the run in which it happened, `__cause__` is its error.

    `step` names the step, `kind` and `reason` tell of the error, and `lineage` has the full names of the error's class
    and its base classes.
    """

    def __init__(self, step: str, kind: str, reason: str, lineage: Sequence[str] = ()) -> None:
        super().__init__(f"step {step!r} failed: {kind}: {reason}")
        self.step = step
        self.kind = kind
        self.reason = reason
        self.lineage = tuple(lineage)

    def caused_by(self, error: type[BaseException] | str) -> bool:
        """Whether the step failed by an error of this class, given as a class or its full name."""
        name = error if isinstance(error, str) else f"{error.__module__}.{error.__qualname__}"
        return name in self.lineage


class StepChanged(HandlerError):
    """What is recorded of a durable step is of another kind, or of another type, than the code says now."""


class Resting(BaseException):
    """Ends a handler whose job waits; it is called again when what it waits for has come. Let this error through.

    It is not an `Exception`, so `except Exception` does not catch it.
    """

    def __init__(self, rested: object) -> None:
        super().__init__("the job rests, and its handler will be called again")
        self.rested = rested


class JobCancelled(HandlerError):
    """The job was cancelled, for `reason`. `job_id` is set if you awaited its result."""

    def __init__(self, reason: str | None = None, *, job_id: str | None = None) -> None:
        self.reason = reason or "No reason provided"
        self.job_id = job_id
        super().__init__(f"Job cancelled: {self.reason}")


class LeaseLost(HandlerError):
    """This attempt has lost its lease, so another worker may be running the job."""
