"""Every error that Toril raises, split by what the caller should do.

::

    TorilError
    ├── UsageError            mend the call
    │   ├── InvalidName         a queue, job or worker name, or an id, that cannot be used
    │   ├── InvalidOption       an option outside its range
    │   ├── NotSerializable     a payload or result that JSON cannot carry faithfully
    │   ├── InvalidPayload      a payload that is not of the declared type
    │   ├── PayloadTooLarge
    │   ├── UnknownQueue
    │   ├── WrongState          the job is not in a state that allows this
    │   ├── NotFound
    │   └── Closed              used before it was opened, or after it was closed
    ├── EngineUnavailable     try again: it is not known to have happened
    │   ├── EngineFull          the store has no room
    │   ├── EngineRefused       the store does not let us in, or is not what the URL says
    │   ├── QueueFull           the queue holds as many waiting jobs as it may
    │   ├── CallTooLate         a later call of the same sender has been answered
    │   └── AddUncertain        it may be stored; too few replicas have confirmed it
    ├── EngineUnusable        stop: corrupt, newer schema, unsafe settings
    ├── PartialAdd            a large add stopped half-way; names what is stored
    ├── ResultGone            the job ended, its result was not kept
    ├── JobFailed             the job whose result was awaited has failed
    ├── Undecodable           what is stored is not what it should be
    └── HandlerError          raised in handlers, to say what should become of the job
        ├── PermanentError      do not try again
        │   └── ChildrenFailed  children whose results were asked for have failed
        ├── TransientError      try again, not before `retry_after`
        ├── Snooze              run again later; no attempt is spent
        ├── RateLimited         nothing of the queue starts for a while; no attempt is spent
        ├── Resting             it waits for its children; raised by `ctx.wait_for_children`, to be let through
        ├── JobCancelled        it was asked to stop
        └── LeaseLost           it is another's by now

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
    "TorilError",
    "TransientError",
    "Undecodable",
    "UnknownQueue",
    "UsageError",
    "WrongState",
    "error_text",
    "preview",
]

_SHOWN = 80


def preview(value: object) -> str:
    """A value as error messages show it: at most 80 characters, control characters escaped."""
    if isinstance(value, str | bytes | bytearray):
        value = value[:_SHOWN]  # a mistake of 100 MB is not copied in order to be shown
    try:
        text = repr(value) if type(value) is str else ascii(value)
    except Exception:  # another's `__repr__` may do anything, and a number of 5,000 digits has none
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def error_text(error: BaseException) -> str:
    """What an error says, or its type where it says nothing or cannot."""
    kind = type(error).__name__
    try:
        return str(error) or kind
    except BaseException:  # another's `__str__` may raise anything, and must not end a worker
        return f"{kind} (its message could not be made)"


class TorilError(Exception):
    """The root of every error that Toril raises."""


class UsageError(TorilError):
    """The call is wrong and will stay wrong: mend it."""


class InvalidName(UsageError, ValueError):
    """A name or id that cannot be used; the message says which rule it breaks."""


class InvalidOption(UsageError, ValueError):
    """An option outside its range; the message gives the range."""


class NotSerializable(UsageError, TypeError):
    """A value that JSON cannot carry faithfully; the message names the path to it."""


class InvalidPayload(UsageError, ValueError):
    """A payload that is not of the type its handler declares; the message names the field."""


class PayloadTooLarge(UsageError, ValueError):
    """A payload over the limit, refused before anything was sent."""


class UnknownQueue(UsageError, LookupError):
    """A queue that was never declared."""


class WrongState(UsageError):
    """The job is in a state that does not allow this; the message names the state."""


class NotFound(UsageError, LookupError):
    """No such job, schedule or dead letter."""


class Closed(UsageError):
    """Used before it was opened, or after it was closed."""


class EngineUnavailable(TorilError):
    """The store did not answer: what was asked is not known to have happened. Send the same call again."""


class EngineFull(EngineUnavailable):
    """The store has no room; nothing was written."""


class EngineRefused(EngineUnavailable):
    """The store does not let us in, cannot be trusted, or is not what the URL says: mend that, then try again."""


class QueueFull(EngineUnavailable):
    """The queue holds as many waiting jobs as it may; nothing was written."""


class CallTooLate(EngineUnavailable):
    """A later call of the same sender has been answered: this one will have no effect any more."""


class AddUncertain(EngineUnavailable):
    """The jobs of these ids may be stored, but too few replicas have said in time that they have them too. Adding again
    with the same id is safe: it finds the job, or stores it."""

    def __init__(self, message: str, *, job_ids: Sequence[str]) -> None:
        super().__init__(message)
        self.job_ids = tuple(job_ids)


class EngineUnusable(TorilError):
    """The store must not be used as it is; the message says what to do."""


class PartialAdd(TorilError):
    """A large add stopped half-way: `stored` names the ids that are in the queue."""

    def __init__(self, message: str, *, stored: Sequence[str]) -> None:
        super().__init__(message)
        self.stored = tuple(stored)


class ResultGone(TorilError):
    """The job ended and its result was not kept; give `result_ttl` to keep it."""


class Undecodable(TorilError):
    """Stored text that is not what it should be. A job with such data fails with this reason; it never loops."""


class JobFailed(TorilError):
    """The job whose result was awaited has failed, for `reason`."""

    def __init__(self, message: str, *, job_id: str, reason: str) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.reason = reason


class HandlerError(TorilError):
    """The root of what handlers raise to say what should become of their job."""


class PermanentError(HandlerError):
    """Trying again will not help: the job fails at once, with whatever attempts it had left."""


class ChildrenFailed(PermanentError):
    """Children whose results were asked for have failed, and the job goes on in spite of that. `failed` has them, as
    `FailedChild`."""

    def __init__(self, message: str, *, failed: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.failed = tuple(failed)


class TransientError(HandlerError):
    """It may work later: the job is tried again, and not before `retry_after` has passed, if that is given."""

    def __init__(self, message: str = "", *, retry_after: "Duration | None" = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Snooze(HandlerError):
    """Not now: the job runs again after `seconds`, and no attempt is spent."""

    def __init__(self, seconds: "Duration", message: str = "") -> None:
        super().__init__(message or f"snoozed for {seconds}")
        self.seconds = seconds


class RateLimited(HandlerError):
    """Whom the job called has had enough: nothing of its queue starts for `seconds`, anywhere. The job itself keeps its
    place at the front, and no attempt is spent."""

    def __init__(self, seconds: "Duration", message: str = "") -> None:
        super().__init__(message or f"rate limited for {seconds}")
        self.seconds = seconds


class Resting(HandlerError):
    """The job waits for its children, and its handler will be called again when they have ended. Let it through."""

    def __init__(self, parked: object) -> None:
        super().__init__("the job waits for its children")
        self.parked = parked


class JobCancelled(HandlerError):
    """The job was asked to stop, for `reason`. `job_id` is that of a job whose result was awaited."""

    def __init__(self, reason: str | None = None, *, job_id: str | None = None) -> None:
        self.reason = reason or "No reason provided"
        self.job_id = job_id
        super().__init__(f"Job cancelled: {self.reason}")


class LeaseLost(HandlerError):
    """The attempt went on for too long without a sign of life: the job is another's by now."""
