"""Which jobs leave for another store, and how they are taken out of this one: a family together, or not yet."""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from toril.engines.sql.options import load_options
from toril.engines.sql.schema import Place, job_id
from toril.engines.sql.statements import statement
from toril.engines.sql.step import Step
from toril.engines.sql.transaction import QueueRow, Tx, exists, keys_of
from toril.model import LOAD_BYTES, letter_id

__all__ = ["Loader", "Member", "is_held_up"]

_SQL: Final = {name: statement("moving", name) for name in (
    "job", "children", "is_open", "lines", "keys", "runs", "letter",
)}  # fmt: skip
_DELETE_LETTER: Final = statement("letters", "delete")
_FORGET_KIN: Final = statement("letters", "forget_kin")
_FORGET_LOG: Final = statement("letters", "forget_log")
_RUNNING: Final = -1  # the last of a job's columns
_LOGS: Final = -2


class Member(NamedTuple):
    """A job that may leave, as its row is, and what it knows of children."""

    queue: str
    row: tuple[Any, ...]
    children: list[Any]

    @property
    def key(self) -> int:
        return int(self.row[0])

    @property
    def chosen(self) -> str | None:
        return None if self.row[1] is None else str(self.row[1])

    @property
    def id(self) -> str:
        return job_id(self.key, self.chosen)

    @property
    def place(self) -> int:
        return int(self.row[4])

    @property
    def starts(self) -> int:
        return int(self.row[9])

    @property
    def is_running(self) -> bool:
        return bool(self.row[_RUNNING])

    @property
    def has_ended(self) -> bool:
        return not self.is_running and self.place in {Place.COMPLETED, Place.FAILED}


def is_held_up(row: QueueRow) -> bool:
    """Whether nothing may leave while something runs: else more would run at once than may, or out of turn."""
    return bool(row.active and (row.grouped or row.concurrency is not None))


class Loader:
    """Takes jobs out of the store, until there are enough. What it has taken is `parcels`."""

    def __init__(self, tx: Tx, limit: int) -> None:
        self._tx = tx
        self._left = limit
        self._room = LOAD_BYTES
        self._steps: dict[str, Step] = {}
        self._settled: set[int] = set()  # taken, or known to stay
        self._runs: dict[str, set[int]] = {}
        self.parcels: list[str] = []

    @property
    def is_full(self) -> bool:
        return self._left <= 0 or self._room <= 0

    def member(self, queue: str, key: int) -> Member | None:
        found = self._tx.one(_SQL["job"], (key,))
        return None if found is None else Member(queue, found, [])

    def take(self, queue: str, key: int, *, for_schedule: bool = False) -> bool:
        """Take a job, and whom it waits for or who waits for it. False: one of them runs, so all of them stay."""
        if key in self._settled:
            return False
        members: dict[int, Member] = {}
        letters: list[str] = []
        stays = not all(self._may_leave(each, for_schedule=for_schedule) for each in self._walk(queue, key, members))
        self._settled |= members.keys()
        if stays:
            return False
        for each in members.values():
            letters += [
                letter_id(q, i) for standing, q, i, *_ in each.children if not standing and self._key(q, i) is None
            ]
        for each in members.values():
            self._take_out(each)
        for letter in letters:
            self.take_letter(letter)
        return True

    def _walk(self, queue: str, key: int, members: dict[int, Member]) -> Iterator[Member]:
        """All of a family: along what parents wait for, both ways."""
        ahead = [(queue, key)]
        while ahead:
            name, at = ahead.pop()
            found = None if at in members else self.member(name, at)
            if found is None:
                continue
            options = load_options(found.row[14])
            if options.parked is not None:
                found.children.extend(self._tx.all(_SQL["children"], (at,)))
            members[at] = found
            yield found
            parent = None if options.parent is None else self._key(options.parent.queue, options.parent.id)
            if options.parent is not None and parent is not None and not found.has_ended and self._tx.one(
                _SQL["is_open"], (parent, name, found.id)
            ):  # fmt: skip
                ahead.append((options.parent.queue, parent))
            for standing, child_queue, child, *_ in found.children:
                open_child = self._key(child_queue, child) if not standing else None
                if open_child is not None:
                    ahead.append((child_queue, open_child))

    def _may_leave(self, member: Member, *, for_schedule: bool) -> bool:
        """Not what runs, or is still being added, or has to leave with its schedule."""
        row = self._tx.find(member.queue)
        if (
            member.is_running
            or member.key in self._settled
            or row is None
            or (not member.has_ended and is_held_up(row))
        ):
            return False
        if any(not standing and not child for standing, _, child, *_ in member.children):
            return False
        return for_schedule or member.has_ended or member.key not in self._runs_of(row)

    def _runs_of(self, row: QueueRow) -> set[int]:
        if row.name not in self._runs:
            self._runs[row.name] = {key for runs in self._tx.all(_SQL["runs"], (row.key,)) for key in runs}
        return self._runs[row.name]

    def _key(self, queue: str, identity: str) -> int | None:
        row = self._tx.find(queue)
        key = None if row is None or not identity else keys_of(self._tx, row, (identity,)).get(identity)
        return key if key is not None and exists(self._tx, key, identity) else None

    def step(self, queue: str) -> Step:
        if queue not in self._steps:
            self._steps[queue] = Step(self._tx, self._tx.queue(queue))
        return self._steps[queue]

    def _take_out(self, member: Member) -> None:
        step, row, key = self.step(member.queue), member.row, member.key
        lines = [line for (line,) in self._tx.all(_SQL["lines"], (key,))] if row[_LOGS] else []
        held = self._tx.all(_SQL["keys"], (key,))
        step.leave(key, row[4], row[5])
        step.delete(key, row[1], row[_LOGS])
        if held:
            step.write("disown", [(key,)])
        if member.children:
            step.write("orphan", [(key,)])
        self._put("job", [member.queue, row, lines, member.children, held])
        self._left -= 1

    def take_letter(self, identity: str) -> bool:
        found = self._tx.one(_SQL["letter"], (identity,))
        if found is None:
            return False
        *_, log, kin = found
        children = self._tx.all(_SQL["children"], (kin,))
        lines = [line for (line,) in self._tx.all(_SQL["lines"], (log,))]
        self._tx.run(_DELETE_LETTER, (identity,))
        self._tx.run(_FORGET_KIN, (kin,))
        self._tx.run(_FORGET_LOG, (log,))
        self._put("letter", [found, children, lines])
        self._left -= 1
        return True

    def put(self, kind: str, content: list[Any]) -> None:
        """Add what is no job."""
        self._put(kind, content)
        self._left -= 1

    def _put(self, kind: str, content: list[Any]) -> None:
        text = json.dumps([kind, *content], ensure_ascii=False)
        self.parcels.append(text)
        self._room -= len(text)

    def flush(self) -> list[str]:
        for step in self._steps.values():
            step.flush()
        return self.parcels
