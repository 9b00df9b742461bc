"""Handlers: which function runs which job, with which payload and options."""

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from toril.client.priorities import MixedPriorities
from toril.codec.encoding import Serializer, Undecodable
from toril.codec.payload import Payload, payload_for, result_for
from toril.errors import InvalidName, InvalidOption, InvalidPayload, PermanentError, UsageError, preview
from toril.model import MAX_TIMEOUT
from toril.model.durations import Duration, milliseconds
from toril.model.names import check_job_name, near_name
from toril.policy.breaker import Breaker
from toril.policy.retry import Retry

if TYPE_CHECKING:
    from toril.context import AnyHandler
    from toril.job import Job

__all__ = [
    "Executor",
    "Handler",
    "RegisteredHandler",
    "Registry",
    "handler",
    "only_if",
    "own_name",
    "result_of_handler",
]

Executor: TypeAlias = Literal["auto", "loop", "thread", "process"]
Function: TypeAlias = Callable[[Any], Any]
F = TypeVar("F", bound="AnyHandler")

_EXECUTORS = ("auto", "loop", "thread", "process")


@dataclass(frozen=True)
class Handler:
    """A function and how it is to be run. It can still be called as the function that it is."""

    fn: Function
    timeout: int | None = None
    retry: Retry | None = None
    executor: Executor = "auto"
    aliases: tuple[str, ...] = ()
    raw: bool = False
    breaker: Breaker | None = None
    runs_if: Callable[[], bool] | None = None
    skip_reason: str = ""

    def __call__(self, ctx: Any) -> Any:
        return self.fn(ctx)

    @cached_property
    def is_async(self) -> bool:
        return any(map(inspect.iscoroutinefunction, (self.fn, _innermost(self.fn))))

    @cached_property
    def runs_in(self) -> Literal["loop", "thread", "process"]:
        """Coroutines run on the event loop and plain functions in threads, unless the executor says otherwise."""
        if self.executor == "auto":
            return "loop" if self.is_async else "thread"
        return self.executor


def handler(
    fn: F,
    *,
    timeout: Duration | None = None,
    retry: Retry | None = None,
    executor: Executor = "auto",
    aliases: Iterable[str] = (),
    raw: bool = False,
    breaker: Breaker | None = None,
) -> F:
    """Give one handler options of its own: `{"send": handler(send, timeout="30s")}`. Type checkers still see the
    function.

    Args:
        fn: The function.
        timeout: Stop an attempt that takes longer than this, in place of the queue's `timeout`.
        retry: How its jobs are retried, in place of the queue's `retry`.
        executor: Where it runs. `"auto"` runs coroutines on the event loop and plain functions in threads; `"process"`
            runs a plain function in a child process.
        aliases: Further job names that it handles.
        raw: Pass the `Job` to the function, in place of a context.
        breaker: A circuit breaker, in place of the queue's.
    """
    made = replace(
        _as_handler(fn),
        timeout=None if timeout is None else milliseconds("timeout", timeout, 1, MAX_TIMEOUT),
        retry=retry,
        executor=executor,
        aliases=_names(aliases),
        raw=raw,
        breaker=breaker,
    )
    _check(made)
    return cast("F", made)


def only_if(predicate: Callable[[], bool], reason: str) -> Callable[[F], F]:
    """Run the handler only while `predicate()` is true; otherwise its jobs complete at once as skipped.

    `reason` is logged for each skipped job; `{job}` in it is replaced by the job's name.
    """
    if not callable(predicate) or inspect.iscoroutinefunction(predicate):
        raise TypeError(f"predicate must be a plain function without arguments, not {preview(predicate)}")
    if not isinstance(reason, str):
        raise TypeError(f"reason must be a string, not {preview(reason)}")

    def wrap(fn: F) -> F:
        return cast("F", replace(_as_handler(fn), runs_if=predicate, skip_reason=reason))

    return wrap


@dataclass(frozen=True, slots=True)
class RegisteredHandler:
    """A handler under one job name, with all that is needed to run its jobs."""

    name: str
    handler: Handler
    payload: Payload
    result: Payload

    def returned(self, value: Any) -> Any:
        """The handler's result. A coroutine would be work that nobody awaits."""
        if not inspect.iscoroutine(value):
            return value
        value.close()
        raise PermanentError(
            f"the handler of {self.name!r} returned a coroutine that nothing awaits; make it `async def`, or await it"
        )


class Registry:
    """The handlers of one queue by job name, and other functions of the user that its workers call."""

    def __init__(self, queue: str, serializer: Serializer | None = None) -> None:
        self._queue = queue
        self._serializer = serializer
        self._entries: dict[str, RegisteredHandler] = {}
        self._names: dict[Hashable, str] = {}
        self._otherwise: str | None = None
        self._plain: Payload = payload_for(Any, serializer=serializer)
        self.lease_lost_hooks: list[tuple[Callable[..., Any], Callable[[Job[Any]], bool] | None]] = []
        self.priorities = MixedPriorities(queue)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    @property
    def names(self) -> list[str]:
        """Every job name that has a handler, aliases included."""
        return list(self._entries)

    @property
    def retries(self) -> dict[str, Retry | None]:
        """The `retry` of each handler itself, by job name."""
        return {name: entry.handler.retry for name, entry in self._entries.items()}

    @property
    def any_name(self) -> str | None:
        """The name of the handler that also runs jobs of unknown names, if there is one."""
        return self._otherwise

    def prepare(self) -> None:
        """Build the validators of payloads and results now, so that the first job does not wait for that."""
        for entry in self._entries.values():
            entry.payload.prepare()
            entry.result.prepare()

    def find(self, name: str) -> RegisteredHandler | None:
        entry = self._entries.get(name)
        return entry if entry is not None or self._otherwise is None else self._entries[self._otherwise]

    def payload_of(self, name: str) -> Payload:
        """How payloads of jobs with this name are encoded."""
        entry = self.find(name)
        return entry.payload if entry else self._plain

    def encode(self, name: str, data: Any) -> str:
        """A payload as text, checked against the handler's type if that is known."""
        try:
            return self.payload_of(name).encode(data)
        except InvalidPayload as error:
            raise InvalidPayload(f"job {name!r}: {error}") from None

    def decode(self, name: str, text: str) -> Any:
        """The stored payload of a job of this name, or the text itself if it is not of the handler's type."""
        try:
            return self.payload_of(name).decode(text)
        except (Undecodable, InvalidPayload):
            return text

    def decode_result(self, name: str, text: str) -> Any:
        """The stored result of a job of this name, as the handler declares it."""
        entry = self.find(name)
        return (entry.result if entry else self._plain).decode(text)

    def show_result(self, name: str, text: str) -> Any:
        """The stored result, or the text itself if it is not of the handler's type."""
        try:
            return self.decode_result(name, text)
        except (Undecodable, InvalidPayload):
            return text

    def register_all(self, handlers: Mapping[str, Function] | Iterable[Function]) -> None:
        """Register a mapping of names to functions, or functions under their own names."""
        if isinstance(handlers, Mapping):
            for name, fn in handlers.items():
                self.register(name, fn)
        elif isinstance(handlers, str | bytes) or not isinstance(handlers, Iterable):
            raise TypeError(f"handlers must be a mapping of names to functions, or a list, not {preview(handlers)}")
        else:
            for fn in handlers:
                self.register(own_name(fn), fn)

    def register(self, name: str, fn: Function) -> None:
        """Register a function under a name and the aliases of its handler."""
        made = _as_handler(fn)
        _check(made)
        if made.executor == "process" and self._serializer is not None:
            raise InvalidOption(
                f"{_called(made)!r} cannot have executor='process': queue {self._queue!r} has a serializer, "
                "which cannot be sent to another process; use executor='thread'"
            )
        name = check_job_name(name)
        payload, result = _types(made)
        entry = RegisteredHandler(
            name,
            made,
            payload_for(payload, serializer=self._serializer),
            result_for(result, serializer=self._serializer),
        )
        names = (name, *made.aliases)
        for known in names:
            if known in self._entries or names.count(known) > 1:
                raise InvalidOption(f"queue {self._queue!r} has two handlers for {preview(known)}")
        self._entries.update(dict.fromkeys(names, entry))
        self._names.setdefault(_key(made.fn), name)

    def otherwise(self, name: str, fn: Function) -> None:
        """Register a function that also runs all jobs whose names have no handler."""
        self.register(name, fn)
        self._otherwise = name

    def around_threads(self, around: Callable[[Function], Function]) -> None:
        """Wrap each function that runs in a thread with `around`. Jobs are still added by the function itself."""
        for name, entry in self._entries.items():
            if entry.handler.runs_in == "thread":
                self._entries[name] = replace(entry, handler=replace(entry.handler, fn=around(entry.handler.fn)))

    def check_spelling(self, name: str) -> None:
        """Raise for a job whose name has no handler here but resembles one that has: a worker would fail it."""
        if name in self._entries or not self._entries or self._otherwise is not None:
            return
        near = near_name(check_job_name(name), self._entries)
        if near is not None:
            raise UsageError(
                f"queue {self._queue!r} has no handler for {name!r}; did you mean {near!r}? "
                "If workers elsewhere have one, declare the queue with unknown='release'"
            )

    def name_of(self, fn: Function) -> str:
        """The job name of a registered function."""
        if not callable(fn):
            raise InvalidName(f"job must be a handler or the name of one, not {preview(fn)}")
        known = self._names.get(_key(_as_handler(fn).fn))
        if known is None:
            raise UsageError(
                f"{_called(fn)!r} is not a handler of queue {self._queue!r}; register it, or add the job by its name"
            )
        return known

    def names_of(self, fn: Function) -> frozenset[str]:
        """All job names of a registered function, aliases included."""
        own = self.name_of(fn)
        return frozenset(name for name, entry in self._entries.items() if entry.name == own)


def own_name(fn: Any) -> str:
    """A function's own name, used for its jobs."""
    name = getattr(_innermost(_as_handler(fn).fn), "__name__", None)
    if not isinstance(name, str) or name in {"<lambda>", "__call__"}:
        raise TypeError(f"{preview(fn)} has no name; pass handlers as a mapping of names to functions")
    return name


def result_of_handler(fn: Any) -> Payload:
    """How the result of a function is encoded, according to its annotations."""
    return result_for(_types(_as_handler(fn))[1])


def _as_handler(fn: Any) -> Handler:
    return fn if isinstance(fn, Handler) else Handler(fn)


def _key(fn: Function) -> Hashable:
    """Identifies a handler: a method is a new object each time it is accessed, and a callable object may not be
    hashable."""
    return fn if isinstance(fn, Hashable) else id(fn)


def _innermost(fn: Any) -> Any:
    while isinstance(fn, partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) or not callable(fn) else type(fn).__call__


def _called(fn: Any) -> str:
    """The name of a function in messages."""
    inner = _as_handler(fn).fn
    return str(getattr(inner, "__name__", None) or preview(inner))


def _names(aliases: Iterable[str]) -> tuple[str, ...]:
    if isinstance(aliases, str | bytes) or not isinstance(aliases, Iterable):
        raise InvalidOption(f"aliases must be a list of names, not {preview(aliases)}")
    return tuple(check_job_name(alias) for alias in aliases)


def _check(made: Handler) -> None:
    fn = made.fn
    if not callable(fn) or inspect.isclass(fn):
        raise TypeError(f"a handler must be a function, not {preview(fn)}")
    inner = _innermost(fn)
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        raise TypeError(f"a handler must return its result, but {_called(fn)!r} is a generator")
    try:
        inspect.signature(fn).bind(None)
    except (TypeError, ValueError):  # a builtin may have no signature
        raise TypeError(f"a handler must take one argument, its context; {_called(fn)!r} does not") from None
    if made.retry is not None and not isinstance(made.retry, Retry):
        raise InvalidOption(f"retry must be a Retry(attempts, backoff), not {preview(made.retry)}")
    if type(made.raw) is not bool:
        raise InvalidOption(f"raw must be True or False, not {preview(made.raw)}")
    _check_executor(made)


def _check_executor(made: Handler) -> None:
    if made.breaker is not None and not isinstance(made.breaker, Breaker):
        raise InvalidOption(f"breaker must be a Breaker(…), not {preview(made.breaker)}")
    name, executor = _called(made), made.executor
    if executor not in _EXECUTORS:
        raise InvalidOption(f"executor must be one of {', '.join(_EXECUTORS)}, not {preview(executor)}")
    if executor in {"thread", "process"} and made.is_async:
        raise InvalidOption(
            f"{name!r} is async and runs on the event loop; executor={executor!r} is for plain functions"
        )
    if executor == "loop" and not made.is_async:
        raise InvalidOption(f"{name!r} is a plain function and would block the event loop; use executor='thread'")
    if executor != "process":
        return
    if made.raw:
        raise InvalidOption(
            f"{name!r} cannot be raw and have executor='process': a Job cannot be sent to another process"
        )
    if inspect.ismethod(made.fn) and not inspect.isclass(made.fn.__self__):
        raise InvalidOption(
            f"{name!r} cannot have executor='process': it is a method, and its object cannot be sent to another process"
        )
    if "<" in getattr(made.fn, "__qualname__", "<"):  # <locals>, <lambda>, or no name at all
        raise InvalidOption(
            f"{name!r} cannot have executor='process' unless it is defined at the top level of a module"
        )


def _types(made: Handler) -> tuple[object, object]:
    """The payload's type, from `JobContext[T]`, and the result's, from the return annotation."""
    inner = _innermost(made.fn)
    try:
        hints = get_type_hints(inner)
    except NameError as error:
        raise UsageError(
            f"the annotations of {_called(made)!r} refer to {error.name!r}, which is not defined"
        ) from None
    except (SyntaxError, TypeError, AttributeError) as error:
        raise UsageError(f"the annotations of {_called(made)!r} cannot be read: {error}") from None
    result = hints.pop("return", Any)
    context = hints.get(next(iter(inspect.signature(made.fn).parameters)))
    if not made.raw and not hasattr(inner, "__wrapped__"):  # a wrapper's annotations are those of another function
        _check_context(made, get_origin(context) or context)
    arguments = get_args(context)
    return (arguments[0] if arguments and not made.raw else Any), result


def _check_context(made: Handler, context: object) -> None:
    """Coroutines need a context whose methods are awaited, plain functions one whose methods are not. The classes are
    compared by name, because their module imports this one."""
    if getattr(context, "__module__", None) != "toril.context":
        return
    name = getattr(context, "__name__", "")
    if name == "JobContext" and not made.is_async:
        raise InvalidOption(
            f"{_called(made)!r} is a plain function and cannot await the methods of a JobContext; "
            "make it `async def`, or annotate its context as SyncJobContext"
        )
    if name == "SyncJobContext" and made.is_async:
        raise InvalidOption(
            f"{_called(made)!r} is `async def`, but the methods of a SyncJobContext block; "
            "annotate its context as JobContext, or make it a plain function"
        )
