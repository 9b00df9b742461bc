"""Whom the groups of a queue let into the line, and when.

As many of a group as its weight says stand in the line, or run, whatever the others do; so a group that had nothing
there comes next in line. More of one start only where a claim finds nothing else: by turns.
"""

import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from toril.engines.sql.rate_limits import slot
from toril.engines.sql.schema import Place
from toril.engines.sql.statements import statement
from toril.model import GroupLimits, per_ms

if TYPE_CHECKING:
    from toril.engines.sql.step import Step
    from toril.engines.sql.transaction import QueueRow, Tx

__all__ = [
    "Group",
    "by_turns",
    "count_starts",
    "look_at_due",
    "make_ready",
    "may_start_again",
    "next_till",
    "read",
    "refill",
    "touched",
]

_SQL: Final = {name: statement("groups", name) for name in (
    "state", "in_line", "first", "of_jobs", "of_job", "trim_starts", "starts", "start", "queue_up", "next_turns", "due",
    "next_till", "leave_ring", "any_turn",
)}  # fmt: skip
_EXACT: Final = 100  # starts up to which a rate is counted to the millisecond
_PASSES: Final = 100  # groups that a claim looks at beyond what it takes


@dataclass(slots=True)
class Group:
    """A group as it stands, kept in step with what is done to it. `left` is what its rate still allows; `till` until
    when it allows nothing."""

    name: str
    limits: GroupLimits
    paused: bool
    seats: int
    parked: bool
    left: float = inf
    till: int | None = None

    @property
    def weight(self) -> int:
        return self.limits.weight or 1

    @property
    def room(self) -> float:
        """How many more may be let in now."""
        if self.paused:
            return 0
        return max(0, min((self.limits.concurrency or inf) - self.seats, self.left))

    def let_in(self, count: int = 1) -> None:
        self.seats += count
        self.left -= count


def read(tx: "Tx", row: "QueueRow", names: Iterable[str]) -> dict[str, Group]:
    """These groups, in this order."""
    common = GroupLimits.load(row.groups_set or row.groups_declared)
    found = {}
    key, wanted = row.key, json.dumps(list(names))
    for name, own, paused, seats, put_off, parked in tx.all(_SQL["state"], (key, key, key, wanted, key)):
        limits = GroupLimits.load(own).over(common)
        kept = put_off if limits.concurrency == 1 else 0
        group = found[name] = Group(name, limits, bool(paused), seats + kept, bool(parked))
        if limits.rate_limit is not None:
            _read_rate(tx, row, group)
    return found


def _read_rate(tx: "Tx", row: "QueueRow", group: Group) -> None:
    rate = group.limits.rate_limit
    assert rate is not None  # noqa: S101 - asked for by the caller
    count, oldest = tx.one(_SQL["starts"], (row.key, group.name, tx.now - per_ms(rate)))
    (in_line,) = tx.one(_SQL["in_line"], (row.key, group.name))  # each may start at any moment
    group.left = rate.max - count - in_line
    group.till = None if oldest is None else oldest + per_ms(rate)


def touched(tx: "Tx", keys: Sequence[int]) -> list[str]:
    """The groups of these jobs."""
    return [name for (name,) in tx.all(_SQL["of_jobs"], (json.dumps(keys),))]


def make_ready(step: "Step", key: int, spot: tuple[int, int]) -> None:
    """Make a job claimable, at this spot; one of a group when its turn comes."""
    step.stand_at(key, _grouped_spot(step, key, spot) if step.row.grouped else spot)


def _grouped_spot(step: "Step", key: int, spot: tuple[int, int]) -> tuple[int, int]:
    """Where a job goes that is ready: parked, if it has a group. One that has stalled keeps its seat, unless its group
    is paused."""
    found = step.tx.one(_SQL["of_job"], (key,))
    if found is None:
        return spot
    name, order, _ = found
    step.touch(name)
    if spot[0] != Place.SUSPECT:
        return Place.PARKED, order
    return (Place.PARKED_SUSPECT, order) if read(step.tx, step.row, [name])[name].paused else spot


def refill(step: "Step", names: Iterable[str]) -> None:
    """Let in what may be; the writes before this are made."""
    groups = read(step.tx, step.row, names)
    sizes = {name: int(min(g.room, g.weight - g.seats)) for name, g in groups.items() if g.parked}
    first = _first(step, [name for name, size in sizes.items() if size > 0], max(sizes.values(), default=0) + 1)
    for name, size in sizes.items():
        group, parked = groups[name], first.get(name)
        if parked is not None:
            group.parked = len(parked) > size
            _let_in(step, group, parked[:size])
        _queue_up(step, group)


def _first(step: "Step", names: Sequence[str], count: int) -> dict[str, list[Any]]:
    """The first so many parked jobs of each: key, place, rank, priority."""
    if not names:
        return {}
    found = step.tx.all(_SQL["first"], (step.row.key, count, json.dumps(names)))
    return {name: json.loads(parked) for name, parked in found}


def _let_in(step: "Step", group: Group, parked: Iterable[Any]) -> None:
    for key, place, rank, priority in parked:
        step.row.count(place, -1)
        step.write("leave", [(step.row.key, place, rank, key)])
        suspect = place == Place.PARKED_SUSPECT
        step.stand_at(key, (Place.SUSPECT, step.row.moves + 1) if suspect else step.row.back(priority))
        group.let_in()


def _queue_up(step: "Step", group: Group) -> None:
    """What is left of it waits for its turn, or for its rate."""
    row, tx = step.row, step.tx
    if not group.parked or (not group.room and (group.paused or group.left >= 1 or group.till is None)):
        return
    row.turns += 1
    tx.run(_SQL["queue_up"], (row.key, group.name, 0 if group.room else group.till, row.turns))
    step.arrived()


def look_at_due(step: "Step") -> None:
    """Groups whose rate lets more start, a bounded number."""
    due = [name for (name,) in step.tx.all(_SQL["due"], (step.row.key, step.tx.now, _PASSES))]
    if due:
        step.tx.run_all(_SQL["leave_ring"], [(name,) for name in due], step.row.key)
        refill(step, due)
        step.flush()


def by_turns(step: "Step", want: int) -> int:
    """Let in up to `want`. How many that were."""
    names = [name for (name,) in step.tx.all(_SQL["next_turns"], (step.row.key, want + _PASSES))]
    if not names:
        return 0
    step.tx.run_all(_SQL["leave_ring"], [(name,) for name in names], step.row.key)
    groups = read(step.tx, step.row, names)
    able = [name for name in names if groups[name].room and groups[name].parked]
    share = max([-(-want // len(able)), *(groups[name].weight for name in able)]) if able else 0
    parked = {name: deque(found) for name, found in _first(step, able, min(want, share) + 1).items()}
    given = _deal(step, [groups[name] for name in able], parked, want)
    for name in names:
        groups[name].parked = bool(parked.get(name)) if name in parked else groups[name].parked
        _queue_up(step, groups[name])
    step.flush()
    return given


def _deal(step: "Step", groups: Sequence[Group], parked: "dict[str, deque[Any]]", want: int) -> int:
    """Round after round, as many of each as its weight says."""
    turns, given = deque(groups), 0
    while turns and given < want:
        group = turns.popleft()
        mine = parked[group.name]
        size = int(min(group.weight if turns else want, group.room, want - given, max(0, len(mine))))
        _let_in(step, group, [mine.popleft() for _ in range(size)])
        given += size
        if size and mine and group.room:
            turns.append(group)
    return given


def may_start_again(step: "Step", entry: Sequence[Any]) -> bool:
    """Whether a suspect may start as far as its group's rate goes. If not, it is parked until that allows it."""
    _, key, *_, name = entry
    if name is None or read(step.tx, step.row, [name])[name].left > 0:
        return True
    step.stand_at(key, (Place.PARKED_SUSPECT, step.tx.one(_SQL["of_job"], (key,))[1]))
    step.touch(name)
    return False


def count_starts(step: "Step", names: Sequence[str]) -> None:
    """Jobs of these groups start now: one for each time that a name is there."""
    for name, group in read(step.tx, step.row, dict.fromkeys(names)).items():
        rate = group.limits.rate_limit
        if rate is not None:
            time = slot(rate, step.tx.now, exact=_EXACT)
            step.tx.run(_SQL["trim_starts"], (step.row.key, name, step.tx.now - per_ms(rate)))
            step.tx.run(_SQL["start"], (step.row.key, name, time, names.count(name)))
            step.touch(name)


def next_till(step: "Step") -> int | None:
    """When the next claim may find something of a group: now, or when a rate lets more start."""
    row, tx = step.row, step.tx
    if tx.one(_SQL["any_turn"], (row.key,)) is not None:
        return tx.now
    (till,) = tx.one(_SQL["next_till"], (row.key,))
    return None if till is None else max(int(till), tx.now)
