"""Dead letters in SQL: page, replay, discard, prune."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeVar

from toril.engines.sql.calls import recall, recall_changed, remember_changed
from toril.engines.sql.flows import child_discarded
from toril.engines.sql.options import load_failure, load_options
from toril.engines.sql.replay import DETAIL_KEYS, StoredDeadLetter, dead_letter_of, find_dead_letters, replay
from toril.engines.sql.schema import PAGE_BYTES
from toril.engines.sql.statements import query, statements
from toril.engines.sql.transaction import Steps, Transaction
from toril.model import (
    DEAD_LETTERS,
    KEEP_ALL,
    AttemptFailure,
    Call,
    ControlResult,
    DeadLetterRow,
    Keep,
    Page,
    Refused,
    Replay,
    age_ms,
)
from toril.policy.attempts import all_errors, load_errors
from toril.policy.search import cursor_of, place_of
from toril.store.capabilities import DeadLetterStore, SortOrder
from toril.store.checked import implements

__all__ = [
    "SqlDeadLetters",
    "count",
    "discard",
    "errors",
    "keep_dead_letters",
    "log_key",
    "of_ids",
    "page",
    "prune_dead_letters",
]

T = TypeVar("T")


@implements(DeadLetterStore)
class SqlDeadLetters:
    """Jobs that failed for good."""

    def __init__(self, steps: Steps, queue: str = DEAD_LETTERS) -> None:
        self._steps = steps
        self.queue = queue

    async def page(
        self, *, order: SortOrder = "newest", cursor: str | None = None, limit: int = 50
    ) -> Page[DeadLetterRow]:
        return await self._steps.read(partial(page, order=order, cursor=cursor, limit=limit))

    async def get(self, ids: Sequence[str]) -> list[DeadLetterRow | None]:
        return await self._steps.read(partial(of_ids, ids=ids))

    async def count(self) -> int:
        return await self._steps.read(count)

    async def replay(
        self, queue: str, replays: Sequence[Replay], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        return await self._steps.write(partial(replay, queue=queue, replays=replays, call=call), now)

    async def discard(self, ids: Sequence[str], *, call: Call | None = None, now: int | None = None) -> ControlResult:
        return await self._steps.write(partial(discard, ids=ids, call=call), now)

    async def keep(self, keep: Keep | None, *, now: int | None = None) -> Keep:
        return await self._steps.write(partial(keep_dead_letters, keep=keep), now)


_SQL: Final = statements("dead_letters")
_ORDERED: Final = {
    "newest": query("dead_letters", "newest", StoredDeadLetter),
    "oldest": query("dead_letters", "oldest", StoredDeadLetter),
}


def page(tx: Transaction, order: SortOrder, cursor: str | None, limit: int) -> Page[DeadLetterRow]:
    """By the time of failing, then by id."""
    place = place_of(order, cursor)
    items: list[DeadLetterRow] = []
    room = PAGE_BYTES
    for row in tx.each(_ORDERED[order], (*place, limit + 1)):
        if len(items) == limit or room < 0:
            return Page(tuple(items), cursor_of(items[-1]))
        items.append(dead_letter_of(row))
        room -= len(items[-1].data)
    return Page(tuple(items))


def of_ids(tx: Transaction, ids: Sequence[str]) -> list[DeadLetterRow | None]:
    found = find_dead_letters(tx, ids)
    return [found.get(identity) for identity in ids]


def log_key(tx: Transaction, identity: str) -> int | None:
    """The key of a dead letter's log lines."""
    found = tx.row(DETAIL_KEYS, (identity,))
    return None if found is None else found.log_key


def errors(tx: Transaction, identity: str) -> tuple[AttemptFailure, ...]:
    found = tx.one(_SQL["errors"], (identity,))
    if found is None:
        return ()
    text, failure, made, failed_at = found
    return all_errors(load_errors(text), load_failure(failure), made=made, at=failed_at)


def count(tx: Transaction) -> int:
    return int(tx.value(_SQL["count"]))


def discard(tx: Transaction, ids: Sequence[str], call: Call | None) -> ControlResult:
    before = recall(tx, call)
    if before is not None:
        return recall_changed(before)
    unique = list(dict.fromkeys(ids))
    done = [identity for identity in unique if _discard(tx, identity)]
    refused = tuple(Refused(identity, None) for identity in unique if identity not in set(done))
    return remember_changed(tx, call, ControlResult(tuple(done), (), refused))


def _discard(tx: Transaction, identity: str) -> bool:
    found = tx.row(DETAIL_KEYS, (identity,))
    if found is None:
        return False
    tx.run(_SQL["delete"], (identity,))
    tx.run(_SQL["forget_children"], (found.children_key,))
    tx.run(_SQL["forget_log"], (found.log_key,))
    parent = load_options(found.options_text).parent
    if parent is not None:
        child_discarded(tx, found.queue, found.job, parent)
    return True


def keep_dead_letters(tx: Transaction, keep: Keep | None) -> Keep:
    if keep is not None:
        tx.run(_SQL["set_keeping"], (json.dumps([keep.count, keep.age]),))
    kept = tx.value(_SQL["keeping"])
    return KEEP_ALL if kept is None else Keep(*json.loads(kept))


def prune_dead_letters(tx: Transaction, limit: int) -> int:
    """Remove dead letters beyond the retention, oldest first."""
    keep = keep_dead_letters(tx, None)
    removed = 0
    if (age := age_ms(keep)) is not None:
        for details in ("children_of_overdue", "log_of_overdue"):
            tx.run(_SQL[details], (tx.now - age, limit))
        removed += tx.run(_SQL["overdue"], (tx.now - age, limit))
    if keep.count is not None and (over := count(tx) - keep.count) > 0:
        for details in ("children_of_surplus", "log_of_surplus"):
            tx.run(_SQL[details], (min(over, limit),))
        removed += tx.run(_SQL["surplus"], (min(over, limit),))
    return removed
