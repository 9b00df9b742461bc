"""What the arguments of a store must be, checked once, in front of every engine.

The protocols in `engine` and `capabilities` say it in their annotations. `@implements(Engine)` on a class checks what
its methods are called with, so that all engines refuse alike, before they send or store anything, and trust what they
get.
"""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from toril.errors import InvalidOption, preview
from toril.model import (
    BATCH,
    DELIVERED_AT_ONCE,
    EXCHANGE,
    MAX_DELAY,
    MAX_REASON_BYTES,
    RECORDED_AT_ONCE,
    WAITED_AT_ONCE,
    JobRef,
    Keep,
    MetricsWindow,
    NewSignal,
    RunStatus,
    Settlement,
    SignalWait,
    StepReport,
    TransferPart,
    check_digest,
    check_int,
    known,
    storable,
)
from toril.model.names import (
    check_app_name,
    check_circuit_key,
    check_group,
    check_label,
    check_queue_name,
    check_signal_name,
    check_stored_key,
    check_worker_name,
)
from toril.model.states import FINISHED, NOT_STARTED, State
from toril.policy.metrics import AT_ONCE, check_window
from toril.policy.retention import MINUTES

__all__ = ["implements"]

T = TypeVar("T")
Check: TypeAlias = Callable[[Any], Any]
_LONGEST: Final = 2**42  # ms that anything may last
_PAGE: Final = 1_000  # items in one page; whoever asks for more gets as many
_ANY: Final = 2**53


def implements(protocol: type) -> Callable[[type[T]], type[T]]:
    """Check the arguments of those of a class's methods that `protocol` has, as it says."""

    def decorate(cls: type[T]) -> type[T]:
        for name, promise in vars(protocol).items():
            checks = _checks_of(promise)
            if checks and name in vars(cls):
                setattr(cls, name, _checking(vars(cls)[name], checks))
        return cls

    return decorate


def _checks_of(promise: object) -> list[tuple[int, str, Check]]:
    """Which arguments are checked and how: their places, names and checks."""
    annotations: dict[str, Any] = getattr(promise, "__annotations__", {})
    return [
        (place, name, check)
        for place, (name, annotation) in enumerate(annotations.items())
        for check in getattr(annotation, "__metadata__", ())
    ]


def _checking(method: Callable[..., Any], checks: Sequence[tuple[int, str, Check]]) -> Callable[..., Any]:
    @wraps(method)
    async def checking(self: object, *args: Any, **named: Any) -> Any:
        values = list(args)
        for place, name, check in checks:
            if name in named:
                named[name] = check(named[name])
            elif place < len(values):
                values[place] = check(values[place])
        return await method(self, *values, **named)

    return checking


# Names


def _or_none(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _each_queue(names: Sequence[str]) -> list[str]:
    return [check_queue_name(name) for name in at_most(AT_ONCE, "queues")(names)]


def _each_waited(names: Sequence[str]) -> list[str]:
    """Queues, and the control of a worker, which no queue can be called as."""
    return [name if isinstance(name, str) and name.startswith(":") else check_queue_name(name) for name in names]


def _ref(job: JobRef) -> JobRef:
    return JobRef(check_queue_name(job.queue), job.id)


QueueName: TypeAlias = Annotated[str, check_queue_name]
QueueNames: TypeAlias = Annotated[Sequence[str], _each_queue]
WaitedFor: TypeAlias = Annotated[Sequence[str], _each_waited]
Ref: TypeAlias = Annotated[JobRef, _ref]
WorkerName: TypeAlias = Annotated[str, check_worker_name]
AppName: TypeAlias = Annotated[str, check_app_name]
Role: TypeAlias = Annotated[str, partial(check_label, "a role")]
OnceKey: TypeAlias = Annotated[str, partial(check_label, "a key")]
StoredKey: TypeAlias = Annotated[str, check_stored_key]
StoredKeyOrNone: TypeAlias = Annotated[str | None, _or_none(check_stored_key)]
SignalNameOrNone: TypeAlias = Annotated[str | None, _or_none(check_signal_name)]
CircuitKey: TypeAlias = Annotated[str, check_circuit_key]
GroupName: TypeAlias = Annotated[str, check_group]
GroupCursor: TypeAlias = Annotated[str | None, _or_none(check_group)]

# Numbers


def _whole(name: str, low: int, high: int) -> Check:
    return partial(check_int, name, low=low, high=high)


def _page_size(limit: object) -> int:
    return min(check_int("limit", limit, 1, _ANY), _PAGE)


Ttl: TypeAlias = Annotated[int, _whole("ttl", 1, _LONGEST)]
TtlOrGone: TypeAlias = Annotated[int, _whole("ttl", 0, _LONGEST)]
Grace: TypeAlias = Annotated[int, _whole("grace", 0, _LONGEST)]
CircuitPause: TypeAlias = Annotated[int | None, _or_none(_whole("pause", 1, MAX_DELAY))]
Minutes: TypeAlias = Annotated[int, _whole("minutes", 1, MINUTES)]
Limit: TypeAlias = Annotated[int, _whole("limit", 1, 10_000)]
PageSize: TypeAlias = Annotated[int, _page_size]

# Batches


def at_most(most: int, what: str = "jobs") -> Callable[[Sequence[T]], Sequence[T]]:
    """Refuse a batch of more than this."""

    def check(batch: Sequence[T]) -> Sequence[T]:
        if len(batch) > most:
            raise InvalidOption(f"one call takes at most {most} {what}, not {len(batch)}")
        return batch

    return check


Batch: TypeAlias = Annotated[Sequence[T], at_most(BATCH)]
DeadLetterBatch: TypeAlias = Annotated[Sequence[T], at_most(BATCH, "dead letters")]
StepReports: TypeAlias = Annotated[Sequence[StepReport], at_most(RECORDED_AT_ONCE, "steps")]
NewSignals: TypeAlias = Annotated[Sequence[NewSignal], at_most(DELIVERED_AT_ONCE, "signals")]
SignalWaits: TypeAlias = Annotated[Sequence[SignalWait], at_most(WAITED_AT_ONCE, "signals")]
Settlements: TypeAlias = Annotated[Sequence[Settlement], at_most(EXCHANGE)]

# Choices, texts and values


def _drained(states: frozenset[State]) -> frozenset[State]:
    if not states <= NOT_STARTED:
        raise InvalidOption(f"drain removes {_words(NOT_STARTED)} jobs, not {_words(states - NOT_STARTED)}")
    return states


def _cleaned(state: State) -> State:
    if state not in FINISHED | NOT_STARTED:
        raise InvalidOption(f"clean removes {_words(FINISHED | NOT_STARTED)} jobs, not {state} jobs")
    return state


def _words(states: frozenset[State]) -> str:
    return ", ".join(sorted(states))


def _running(running: object) -> object:
    if running not in ("refuse", "remove"):
        raise InvalidOption(f"running must be 'refuse' or 'remove', not {preview(running)}")
    return running


def _keep(keep: object) -> object:
    if not isinstance(keep, Keep):
        raise InvalidOption(f"keep must be a Keep(…), not {preview(keep)}")
    return keep


def _digest(digest: T) -> T:
    check_digest(digest)
    return digest


_REASON: Final = partial(storable, limit=MAX_REASON_BYTES)

OneState: TypeAlias = Annotated[State, partial(known, State)]
DrainedStates: TypeAlias = Annotated[frozenset[State], _drained]
CleanedState: TypeAlias = Annotated[State, _cleaned]
OneStatus: TypeAlias = Annotated[RunStatus, partial(known, RunStatus)]
OnePart: TypeAlias = Annotated[TransferPart, partial(known, TransferPart)]
IfRunning: TypeAlias = Annotated[Literal["refuse", "remove"], _running]
Reason: TypeAlias = Annotated[str, _REASON]
DigestOrNone: TypeAlias = Annotated[str | None, _digest]
ReasonOrNone: TypeAlias = Annotated[str | None, _or_none(_REASON)]
KeepOrNone: TypeAlias = Annotated[Keep | None, _or_none(_keep)]
Window: TypeAlias = Annotated[MetricsWindow, check_window]
