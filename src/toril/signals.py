"""Signals to jobs: `SignalKind` declares one, `Signalled` says what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from toril.codec.encoding import Serializer
from toril.codec.payload import payload_for
from toril.errors import InboxFull, InvalidOption, NotFound, preview
from toril.model import SIGNAL_TTL, WAITED_AT_ONCE, NewSignal, SignalOutcome, SignalWait
from toril.model.names import check_signal_key, check_signal_name

if TYPE_CHECKING:
    from toril.runtime.services import Services

__all__ = ["SignalKind", "Signalled", "new_signal", "one_kind", "send_signal", "several_kinds", "signal_text"]

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class SignalKind(Generic[S]):
    """A signal, by its name, and the type of its payload: `SignalKind("approval", Approval)`.

    Whoever sends it and the handler that waits for it share this, so that a payload of another type is refused.
    """

    name: str
    type: type[S]

    def __post_init__(self) -> None:
        check_signal_name(self.name)


@dataclass(frozen=True, slots=True)
class Signalled:
    """What became of a signal.

    `outcome` is `woken` if a job that rested for it runs now, `kept` if it is there for when a job asks for it, and
    `duplicate` if one with its id came before. Nothing is stored if it is `ended`, because its job has ended, or
    `not_waiting`. `job_id` is the job that got it, as far as that is known.
    """

    outcome: SignalOutcome
    job_id: str | None = None


def signal_text(signal: "str | SignalKind[Any]", payload: Any, serializer: Serializer | None) -> tuple[str, str]:
    """The name of a signal and its payload as text, which is checked against its type."""
    name, annotation = (signal.name, signal.type) if isinstance(signal, SignalKind) else (signal, Any)
    made = payload_for(annotation, what=f"the signal {preview(check_signal_name(name))}", serializer=serializer)
    return name, made.encode(payload)


def new_signal(
    signal: "str | SignalKind[Any]",
    payload: Any,
    serializer: Serializer | None,
    *,
    job_id: str | None = None,
    key: str | None = None,
    signal_id: str | None = None,
    ttl: int = SIGNAL_TTL,
    unless_waiting: Literal["keep", "refuse"] = "keep",
) -> NewSignal:
    """A signal as stores take it."""
    if unless_waiting not in ("keep", "refuse"):
        raise InvalidOption(f"unless_waiting must be 'keep' or 'refuse', not {preview(unless_waiting)}")
    name, text = signal_text(signal, payload, serializer)
    refused = unless_waiting == "refuse"
    return NewSignal(name=name, payload=text, job_id=job_id, key=key, id=signal_id, ttl=ttl, only_if_waiting=refused)


async def send_signal(services: "Services", queue: str, signal: NewSignal) -> Signalled:
    """Send a signal. Raises `InboxFull`, and `NotFound` if its job is gone."""
    store = services.store
    (found,) = await services.call(lambda call: store.steps.deliver(queue, [signal], call=call))
    match found.outcome:
        case SignalOutcome.MISSING:
            raise NotFound(f"there is no job {signal.job_id!r} in queue {queue!r}")
        case SignalOutcome.FULL if signal.key is not None and found.job_id is None:
            raise InboxFull(f"queue {queue!r} keeps as many signals as it may for jobs that do not wait for them yet")
        case SignalOutcome.FULL:
            job = signal.job_id or found.job_id
            raise InboxFull(f"job {job!r} of queue {queue!r} has as many signals that it has not read as it may")
        case outcome:
            return Signalled(outcome, found.job_id)


def one_kind(signal: "str | SignalKind[Any]", kind: Any, key: str | None) -> dict[SignalWait, Any]:
    """What a wait for one signal is for, with the type of its payload."""
    if isinstance(signal, SignalKind):
        if kind is not Any:
            raise InvalidOption(f"SignalKind {signal.name!r} has a type already; leave out {preview(kind)}")
        return {SignalWait(signal.name, _checked(key)): signal.type}
    return {SignalWait(signal, _checked(key)): kind}


def several_kinds(kinds: "Sequence[str | SignalKind[Any]]") -> dict[SignalWait, Any]:
    """The same for several."""
    if isinstance(kinds, str) or not 1 <= len(kinds) <= WAITED_AT_ONCE:
        raise InvalidOption(f"a wait is for a list of 1 to {WAITED_AT_ONCE} signals, not {preview(kinds)}")
    found = {wait: kind for each in kinds for wait, kind in one_kind(each, Any, None).items()}
    if len(found) < len(kinds):
        raise InvalidOption("a wait names each signal once")
    return found


def _checked(key: str | None) -> str | None:
    return None if key is None else check_signal_key(key)
