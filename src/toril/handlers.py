"""The registry: which function runs which job, with which payload and options."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args, get_type_hints

from toril.codec import Serializer
from toril.errors import InvalidOption, UsageError, shown
from toril.model import MAX_TIMEOUT
from toril.names import check_job_name
from toril.payload import Payload, payload_for
from toril.policy.retry import Retry, Seconds, milliseconds

__all__ = ["Entry", "Executor", "Handler", "Registry", "handler", "only_if"]

Executor: TypeAlias = Literal["auto", "loop", "thread", "process"]
Function: TypeAlias = Callable[[Any], Any]
F = TypeVar("F", bound=Callable[..., Any])

_EXECUTORS = ("auto", "loop", "thread", "process")


@dataclass(frozen=True)
class Handler:
    """A function and how it wants to be run. It can still be called as the function that it is."""

    fn: Function
    timeout: int | None = None
    retry: Retry | None = None
    executor: Executor = "auto"
    aliases: tuple[str, ...] = ()
    raw: bool = False
    runs_if: Callable[[], bool] | None = None
    skip_reason: str = ""

    def __call__(self, ctx: Any) -> Any:
        return self.fn(ctx)

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(_innermost(self.fn))

    @cached_property
    def runs_in(self) -> Literal["loop", "thread", "process"]:
        """Coroutines run on the loop, plain functions in threads, unless told otherwise."""
        if self.executor == "auto":
            return "loop" if self.is_async else "thread"
        return self.executor


def handler(
    fn: F,
    *,
    timeout: Seconds | None = None,
    retry: Retry | None = None,
    executor: Executor = "auto",
    aliases: Iterable[str] = (),
    raw: bool = False,
) -> F:
    """Options of one handler, for use as a mapping's value: `{"send": handler(send, timeout=30)}`.

    `raw=True` hands over the Job instead of a context. To the type checker it is still the function.
    """
    made = replace(
        _as_handler(fn),
        timeout=None if timeout is None else milliseconds("timeout", timeout, 1, MAX_TIMEOUT),
        retry=retry,
        executor=executor,
        aliases=tuple(check_job_name(alias) for alias in aliases),
        raw=raw,
    )
    _check(made)
    return cast("F", made)


def only_if(predicate: Callable[[], bool], reason: str) -> Callable[[F], F]:
    """Run the handler only while `predicate()` holds; else the job completes at once as skipped, for `reason`."""

    def wrap(fn: F) -> F:
        return cast("F", replace(_as_handler(fn), runs_if=predicate, skip_reason=reason))

    return wrap


@dataclass(frozen=True, slots=True)
class Entry:
    """One name on the wire, and all that running its jobs needs."""

    name: str
    handler: Handler
    payload: Payload
    result: Payload


class Registry:
    """The handlers of one queue, by their names on the wire."""

    def __init__(self, queue: str, serializer: Serializer | None = None) -> None:
        self._queue = queue
        self._serializer = serializer
        self._entries: dict[str, Entry] = {}
        self._names: dict[Function, str] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    @property
    def names(self) -> list[str]:
        """Every name that has a handler, aliases included."""
        return list(self._entries)

    def find(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def register_all(self, handlers: Mapping[str, Function] | Iterable[Function]) -> None:
        """A mapping of names to functions, or functions that are called by their own names."""
        if isinstance(handlers, Mapping):
            for name, fn in handlers.items():
                self.register(name, fn)
        else:
            for fn in handlers:
                self.register(_own_name(fn), fn)

    def register(self, name: str, fn: Function) -> None:
        """Give a name, and the aliases of the handler, to a function."""
        made = _as_handler(fn)
        _check(made)
        payload, result = _types(made)
        entry = Entry(
            check_job_name(name),
            made,
            payload_for(payload, serializer=self._serializer),
            payload_for(result, what="the result", serializer=self._serializer),
        )
        for known in (name, *made.aliases):
            if known in self._entries:
                raise InvalidOption(f"queue {self._queue!r} has two handlers for {shown(known)}")
            self._entries[known] = entry
        self._names.setdefault(made.fn, name)

    def name_of(self, fn: Function) -> str:
        """The name on the wire of a registered function."""
        known = self._names.get(fn.fn if isinstance(fn, Handler) else fn)
        if known is None:
            raise UsageError(
                f"{_own_name(fn)!r} is not a handler of queue {self._queue!r}; register it, or add the job by its name"
            )
        return known


def _as_handler(fn: Any) -> Handler:
    return fn if isinstance(fn, Handler) else Handler(fn)


def _innermost(fn: Any) -> Any:
    while isinstance(fn, partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) or not callable(fn) else type(fn).__call__


def _own_name(fn: Any) -> str:
    inner = fn.fn if isinstance(fn, Handler) else fn
    name = getattr(_innermost(inner), "__name__", None)
    if not isinstance(name, str):
        raise TypeError(f"{shown(fn)} has no name of its own; register it in a mapping")
    return name


def _check(made: Handler) -> None:
    fn = made.fn
    if not callable(fn) or inspect.isclass(fn):
        raise TypeError(f"a handler must be a function, not {shown(fn)}")
    inner = _innermost(fn)
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        raise TypeError(f"a handler must return its result, and {_own_name(fn)!r} is a generator")
    if made.executor not in _EXECUTORS:
        raise InvalidOption(f"executor must be one of {', '.join(_EXECUTORS)}, not {shown(made.executor)}")
    if made.executor in {"thread", "process"} and made.is_async:
        raise InvalidOption(
            f"{_own_name(fn)!r} is async and runs on the loop; executor={made.executor!r} is for plain functions"
        )
    if made.executor == "loop" and not made.is_async:
        raise InvalidOption(f"{_own_name(fn)!r} is a plain function and would block the loop; use executor='thread'")
    try:
        inspect.signature(fn).bind(None)
    except TypeError:
        raise TypeError(f"a handler takes one argument, its context, and {_own_name(fn)!r} does not") from None


def _types(made: Handler) -> tuple[object, object]:
    """The payload's type, from `JobContext[T]`, and the result's, from the return annotation."""
    inner = _innermost(made.fn)
    try:
        hints = get_type_hints(inner)
    except NameError as error:
        raise UsageError(f"the annotations of {_own_name(made)!r} name {error.name!r}, which cannot be found") from None
    result = hints.pop("return", Any)
    parameters = [name for name in inspect.signature(made.fn).parameters if name in hints]
    context = hints.get(parameters[0]) if parameters else None
    arguments = get_args(context)
    return (arguments[0] if arguments and not made.raw else Any), result
