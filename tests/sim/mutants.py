"""Bugs to plant, so that it is known that the simulator finds such. They live here only; the source has no switch."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from toril.engines.sql import add, calls, changes, claim, control, dead_letters, engine, exchange, leases, settle
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.schema import Held, JobFacts, Place
from toril.engines.sql.statements import Query
from toril.engines.sql.transaction import Transaction, keys_of
from toril.engines.sqlite import hot_path
from toril.errors import EngineUnavailable
from toril.model import Call, Cause, Released, Settlement

__all__ = ["MUTANTS", "Change", "Make", "Mutant", "Unplantable", "instead", "known", "nothing", "planted", "reworded"]

Make = Callable[[Any], Any]
Change = tuple[object, str, Make]


class Unplantable(BaseException):
    """The code is no longer what this bug was made for. No check of the simulator may take that for a finding."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug: what is wrong, and for each thing to replace, where it is and what is made of it. `seed` is known to find
    it, by the check of `row`."""

    name: str
    wrong: str
    changes: tuple[Change, ...]
    seed: int = 0
    row: str = ""

    def __str__(self) -> str:
        return self.name


def known(found_by: Mapping[str, tuple[int, str]], mutants: Iterable[Mutant]) -> dict[str, Mutant]:
    """By name, each with the seed and the check that are known to find it."""
    by_name = {mutant.name: mutant for mutant in mutants}
    for name, (seed, row) in found_by.items():
        by_name[name] = replace(by_name[name], seed=seed, row=row)
    return by_name


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The bug is there within, and gone afterwards."""
    with ExitStack() as stack:
        for owner, name, make in mutant.changes:
            names = owner if isinstance(owner, dict) else vars(owner)
            if name not in names:  # not even if it is inherited: nobody else's is changed
                raise Unplantable(f"{mutant.name}: {getattr(owner, '__name__', owner)} has no {name}")
            original = names[name]
            changed = make(original)
            if changed == original:
                raise Unplantable(f"{mutant.name}: {name} is as it was")
            stack.callback(_put, owner, name, original)
            _put(owner, name, changed)
        yield


def _put(owner: object, name: str, value: object) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)


def instead(replacement: Callable[..., Any]) -> Make:
    """Something else in place of the original."""
    return lambda _: replacement


def instead_of(value: object) -> Make:
    """Another value in place of the original."""
    return lambda _: value


def nothing(*_: Any, **__: Any) -> None:
    """Do not do it."""


def reworded(old: str, new: str) -> Make:
    """A statement with other words in it."""

    def make(found: str | Query[Any]) -> str | Query[Any]:
        sql = found if isinstance(found, str) else found.sql
        if old not in sql:
            raise Unplantable(f"the statement no longer says {old!r}: {sql}")
        changed = sql.replace(old, new)
        return changed if isinstance(found, str) else replace(found, sql=changed)

    return make


def _before_settling(sql: str, *values: Callable[[QueueChanges, Settlement], object]) -> Make:
    """Bend each lease into shape before it is looked at: as good as not looking."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def settle_all(step: QueueChanges, batch: Sequence[Settlement]) -> Any:
            keys = keys_of(step.tx, step.row, [each.lease.id for each in batch])
            for each in batch:
                step.tx.run(sql, (*(value(step, each) for value in values), keys.get(each.lease.id, 0)))
            return original(step, batch)

        return settle_all

    return make


_ANY_TOKEN = _before_settling("UPDATE active SET token = ? WHERE key = ?", lambda _, each: each.lease.token)
_ANY_TIME = _before_settling(
    "UPDATE active SET deadline = max(deadline, ?) WHERE key = ?", lambda step, _: step.tx.now + 1
)


def _one_more_attempt(original: Callable[..., Any]) -> Callable[..., Any]:
    """The function gets, or gives, jobs that count one attempt more than they made."""

    def changed(*args: Any) -> Any:
        return _spent(original(*(_spent(each) for each in args)))

    return changed


def _spent(value: Any) -> Any:
    match value:
        case JobFacts():
            return value._replace(attempts_made=value.attempts_made + 1)
        case Held():
            return value._replace(job=_spent(value.job))
        case _:
            return value


def _released_only(original: Callable[..., Any]) -> Callable[..., Any]:
    spent = _one_more_attempt(original)

    def settle_one(step: QueueChanges, row: Held, outcome: object, released: list[Any]) -> None:
        (spent if isinstance(outcome, Released) else original)(step, row, outcome, released)

    return settle_one


def _forgetful(original: object) -> Callable[..., None]:
    return lambda *_: None


def _accepts_late(original: Callable[..., Any]) -> Callable[..., Any]:
    def recall(tx: Transaction, call: Call | None) -> Any:
        try:
            return original(tx, call)
        except EngineUnavailable:
            return None

    return recall


_CALLERS = (add, exchange, leases, control)


def _memory_of_the_process() -> tuple[Change, ...]:
    """Answers are remembered beside the store: a restart forgets them."""
    kept: dict[tuple[object, str], tuple[int, Any]] = {}

    def remember(tx: Transaction, call: Call | None, answer: Any) -> None:
        if call is not None:
            kept[tx._connection, call.sender] = (call.seq, json.loads(json.dumps(answer)))

    def recall(tx: Transaction, call: Call | None) -> Any:
        seq, answer = kept.get((tx._connection, call.sender), (0, None)) if call else (0, None)
        if call is not None and seq > call.seq:
            raise EngineUnavailable("too late")
        return answer if call is not None and seq == call.seq else None

    return (
        *((module, "recall", lambda _: recall) for module in _CALLERS),
        *((module, "remember", lambda _: remember) for module in (add, hot_path, exchange, leases, calls)),
    )


def _answer_first() -> tuple[Change, ...]:
    """Adds are answered at once and written with the next exchange, if the store lives to see it."""
    owed: dict[object, list[Callable[[Transaction], Any]]] = {}

    def later(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_later(tx: Transaction, **what: Any) -> Any:
            tx.run("SAVEPOINT unwritten")
            answers = original(tx, **what)
            tx.run("ROLLBACK TO unwritten")
            tx.rollback()
            owed.setdefault(tx._connection, []).append(lambda tx: original(tx, **what))
            return answers

        return add_later

    def pay(original: Callable[..., Any]) -> Callable[..., Any]:
        def exchange_after(tx: Transaction, **what: Any) -> Any:
            for write in owed.pop(tx._connection, ()):
                write(tx)
            return original(tx, **what)

        return exchange_after

    return ((hot_path, "add", later), (engine, "exchange", pay))


def _left_active(original: Callable[[QueueChanges, int], None]) -> Callable[[QueueChanges, int], None]:
    def leave_active(step: QueueChanges, key: int) -> None:
        original(step, key)
        step._writes["leave_active"].pop()

    return leave_active


class _NoIsolation(Place):
    SUSPECT = Place.WAITING  # type: ignore[misc]


def _lease_mutants() -> Iterator[Mutant]:
    settles = (exchange, "settle")
    yield Mutant(
        "settle_without_lease_check",
        "a settlement counts whoever holds the lease",
        ((*settles, _ANY_TOKEN), (*settles, _ANY_TIME)),
    )
    yield Mutant("settle_without_token", "a settlement counts under any token", ((*settles, _ANY_TOKEN),))
    yield Mutant("settle_too_late", "a settlement counts after its lease ran out", ((*settles, _ANY_TIME),))
    yield Mutant(
        "recover_takes_the_living",
        "recover takes leases that have not run out",
        ((leases, "_OVERDUE", reworded("a.deadline <= ?", "a.deadline <= ? + 500")),),
    )
    yield Mutant(
        "recover_forgets",
        "recover never takes back the second lease of a job",
        ((leases, "_OVERDUE", reworded("a.deadline <= ?", "a.deadline <= ? AND j.starts <> 1")),),
    )
    yield Mutant(
        "extend_revives",
        "a lease that ran out can be renewed",
        ((leases._SQL, "renew", reworded("deadline > ?", "deadline > ? - 60000")),),
    )


def _call_mutants() -> Iterator[Mutant]:
    yield Mutant("add_again", "an add that is sent again adds again", ((add, "recall", _forgetful),))
    yield Mutant("exchange_again", "an exchange sent again acts again", ((exchange, "recall", _forgetful),))
    yield Mutant(
        "late_call_accepted",
        "a call that comes after its successor takes effect",
        tuple((module, "recall", _accepts_late) for module in _CALLERS),
    )
    yield Mutant("calls_forgotten", "a restart forgets which calls were answered", _memory_of_the_process())
    yield Mutant("add_answered_first", "an add is answered before it is written", _answer_first())


def _move_mutants() -> Iterator[Mutant]:
    yield Mutant("release_counts", "giving a job back spends an attempt", ((settle, "_settle_one", _released_only),))
    yield Mutant(
        "retry_counts_twice",
        "a retry spends two attempts",
        ((settle, "_retry", _one_more_attempt),),
    )
    yield Mutant(
        "stall_counts",
        "a stall spends an attempt",
        ((leases, "_stalled", _one_more_attempt),),
    )
    yield Mutant("left_active", "a settled job stays among the active", ((QueueChanges, "leave_active", _left_active),))
    yield Mutant(
        "never_woken", "who waits is not told of arrivals", ((QueueChanges, "arrived", lambda _: lambda _: None),)
    )
    yield Mutant(
        "starts_early",
        "delayed jobs start 200 ms early",
        ((claim, "due_bound", lambda original: lambda now: original(now + 200)),),
    )
    yield Mutant("no_isolation", "a job that stalled runs beside others", ((leases, "Place", lambda _: _NoIsolation),))


def _letter_mutants() -> Iterator[Mutant]:
    yield Mutant("no_letter", "a job that failed for good is gone", ((QueueChanges, "_dead_letter", instead(nothing)),))
    yield Mutant(
        "stalled_leaves_no_letter",
        "a job that stalled out is gone",
        ((changes, "DEAD_LETTER_CAUSES", instead_of(frozenset({Cause.FAILED}))),),
    )
    yield Mutant(
        "cancelled_leaves_a_letter",
        "a cancelled job is a dead letter",
        ((changes, "DEAD_LETTER_CAUSES", instead_of(frozenset(Cause))),),
    )
    yield Mutant(
        "letter_stays",
        "a replayed job is in its queue, and a dead letter too",
        ((dead_letters._SQL, "delete", reworded("WHERE id = ?", "WHERE id = ? AND id LIKE '%/no such'")),),
    )


# Which seed finds which bug, so that no time is spent on looking for one.
_FOUND_BY: Final[dict[str, tuple[int, str]]] = {
    "settle_without_lease_check": (18, "I4"), "settle_without_token": (26, "I4"), "settle_too_late": (18, "I4"),
    "recover_takes_the_living": (3, "I1"), "recover_forgets": (3, "I1"), "extend_revives": (18, "I4"),
    "add_again": (8, "G2"), "exchange_again": (1, "G2"), "late_call_accepted": (1, "G2"),
    "calls_forgotten": (14, "G2"), "add_answered_first": (1, "I1"), "release_counts": (1, "I6"),
    "retry_counts_twice": (0, "I6"), "stall_counts": (1, "I6"), "left_active": (0, "I1"), "never_woken": (0, "I15"),
    "starts_early": (1, "I1"), "no_isolation": (1, "G6"), "no_letter": (0, "letters"),
    "stalled_leaves_no_letter": (3, "letters"), "cancelled_leaves_a_letter": (1, "letters"), "letter_stays": (46, "I1"),
}  # fmt: skip

MUTANTS: dict[str, Mutant] = known(
    _FOUND_BY, (*_lease_mutants(), *_call_mutants(), *_move_mutants(), *_letter_mutants())
)
