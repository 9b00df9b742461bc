"""What workers declare about their queues, for programs that do not have their code."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from toril.errors import TorilError
from toril.model.groups import GroupLimits
from toril.model.jobs import Backoff, Keep, RateLimit, per_ms

MAX_DECLARATION: Final = 32 * 1024  # characters of one as text; longer ones leave out schemas, or handlers
MAX_SCHEMA: Final = 4 * 1024  # characters of a signal's schema as text; larger ones are left out


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerDeclaration:
    """How jobs of one handler are retried, instead of the queue's defaults."""

    max_attempts: int
    backoff: Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What a worker's code declares about a queue, in the units of the store. `concurrency` is that of one worker, and
    `rate` applies unless the queue's settings have another. `handlers` are the job names with a handler, None if there
    are too many to list; `any_name` is the handler that also runs jobs with other names. `subject` is the payload field
    that has a job's subject; `serializer` says that the application serializes payloads in its own way. `signals` are
    the JSON schemas of the payloads of signals, by name; None stands for one that is too large."""

    concurrency: int
    lease: int
    max_stalls: int
    max_attempts: int
    backoff: Backoff
    keep_completed: Keep
    keep_failed: Keep
    target_wait: int
    timeout: int | None = None
    rate: RateLimit | None = None
    max_waiting: int | None = None
    groups: GroupLimits | None = None
    priority_first: bool = False
    subject: str | None = None
    serializer: bool = False
    any_name: str | None = None
    handlers: Mapping[str, HandlerDeclaration | None] | None = None
    signals: Mapping[str, Any] | None = None

    def retry_of(self, name: str) -> tuple[int, Backoff]:
        """How many attempts jobs with this name get, and how long they wait between them."""
        handlers = self.handlers or {}
        own = handlers.get(name) if name in handlers or self.any_name is None else handlers.get(self.any_name)
        return (self.max_attempts, self.backoff) if own is None else (own.max_attempts, own.backoff)

    def dump(self) -> str:
        """The text that stores keep; equal declarations give the same text. If it would be too long, the schemas of
        signals are left out, or the handlers, or both."""
        unnamed = replace(self, handlers=None)
        for each in (self, _without_schemas(self), unnamed):
            if len(text := _dumped(each)) <= MAX_DECLARATION:
                return text
        return _dumped(_without_schemas(unnamed))

    @classmethod
    def load(cls, text: str) -> "Declaration | None":
        """A worker's declaration; None if it cannot be read, as from a later version of Toril."""
        try:
            found: dict[str, Any] = json.loads(text)
            rate, groups, handlers = found["rate"], found["groups"], found["handlers"]
            return cls(
                **{name: found[name] for name in _PLAIN},
                backoff=_load_backoff(found["backoff"]),
                keep_completed=Keep(*found["keep_completed"]),
                keep_failed=Keep(*found["keep_failed"]),
                rate=None if rate is None else RateLimit(rate[0], rate[1] / 1000, rate[2]),
                groups=None if groups is None else GroupLimits.load(groups),
                handlers=None if handlers is None else {name: _load_own(own) for name, own in handlers.items()},
                signals=_load_signals(found.get("signals")),
            )
        except (TorilError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return None


_MADE: Final = {"backoff", "keep_completed", "keep_failed", "rate", "groups", "handlers", "signals"}
_PLAIN: Final = tuple(each.name for each in fields(Declaration) if each.name not in _MADE)


def _without_schemas(said: Declaration) -> Declaration:
    return said if said.signals is None else replace(said, signals=dict.fromkeys(said.signals))


def _dumped(said: Declaration) -> str:
    rate, groups, handlers = said.rate, said.groups, said.handlers
    return json.dumps(
        {
            **{name: getattr(said, name) for name in _PLAIN},
            "backoff": asdict(said.backoff),
            "keep_completed": _dump_keep(said.keep_completed),
            "keep_failed": _dump_keep(said.keep_failed),
            "rate": None if rate is None else [rate.max, per_ms(rate), rate.window],
            "groups": None if groups is None else groups.dump(),
            "handlers": None if handlers is None else {name: _dump_own(own) for name, own in handlers.items()},
            "signals": None
            if said.signals is None
            else {name: _dump_schema(kind) for name, kind in said.signals.items()},
        },
        sort_keys=True,
        separators=(",", ":"),
    )


def _dump_schema(schema: Mapping[str, Any] | None) -> str | None:
    """A text of its own, in which the fields keep their order."""
    return None if schema is None else json.dumps(schema, separators=(",", ":"))


def _dump_keep(keep: Keep) -> list[float | None]:
    return [keep.count, keep.age]


def _dump_own(own: HandlerDeclaration | None) -> list[Any] | None:
    return None if own is None else [own.max_attempts, asdict(own.backoff)]


def _load_own(found: list[Any] | None) -> HandlerDeclaration | None:
    return None if found is None else HandlerDeclaration(max_attempts=found[0], backoff=_load_backoff(found[1]))


def _load_backoff(found: dict[str, Any]) -> Backoff:
    return Backoff(**found | {"on": tuple(found["on"]), "give_up_on": tuple(found["give_up_on"])})


def _load_signals(found: dict[str, str | None] | None) -> dict[str, Any] | None:
    return None if found is None else {name: text and json.loads(text) for name, text in found.items()}


@dataclass(frozen=True, slots=True)
class DeclaredBy:
    """A declaration, how many live workers make it, and when the latest of them did."""

    declaration: Declaration
    workers: int
    at: int


@dataclass(frozen=True, slots=True)
class Declarations:
    """What the live workers of a queue declare, newest first, equal declarations once. They may differ during a deploy,
    or if several applications serve the queue."""

    items: tuple[DeclaredBy, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[tuple[str, int, int]]) -> "Declarations":
        """Build it from the texts that stores keep, how many workers made each, and when the latest of them did."""
        found = [DeclaredBy(said, workers, at) for text, workers, at in rows if (said := Declaration.load(text))]
        return cls(tuple(sorted(found, key=lambda each: -each.at)))

    @property
    def newest(self) -> Declaration | None:
        return self.items[0].declaration if self.items else None

    @property
    def workers(self) -> int:
        return sum(each.workers for each in self.items)

    @property
    def slots(self) -> int:
        """How many jobs of the queue they can run at once."""
        return sum(each.workers * each.declaration.concurrency for each in self.items)

    @property
    def differing(self) -> tuple[str, ...]:
        """The names of the fields in which they differ."""
        every = [each.declaration for each in self.items]
        return tuple(
            each.name
            for each in fields(Declaration)
            if any(getattr(one, each.name) != getattr(every[0], each.name) for one in every[1:])
        )

    def handled(self, workers: int) -> frozenset[str] | None:
        """The job names for which this many workers of the queue have handlers; None if not all of them list theirs, or
        if one takes any name."""
        said = [each.declaration for each in self.items]
        if not workers or self.workers < workers or any(each.any_name or each.handlers is None for each in said):
            return None
        return frozenset(name for each in said for name in each.handlers or ())
