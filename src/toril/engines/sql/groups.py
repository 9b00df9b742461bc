"""Groups in SQL: admission, turns, limits and views."""

import json
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final, TypeVar

from toril.engines.shared import full
from toril.engines.sql.calls import recall, remember
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.rate_limits import slot
from toril.engines.sql.schema import Place, ReadyJob, job_id
from toril.engines.sql.statements import statement, statements
from toril.engines.sql.transaction import QueueRow, Steps, Transaction, keys_of
from toril.model import Call, GroupBlockers, GroupLimits, GroupRow, NewJob, Page, SetGroup, per_ms
from toril.store.capabilities import GroupStore
from toril.store.checked import implements

__all__ = [
    "Group",
    "GroupAdmission",
    "SqlGroups",
    "admit_by_turns",
    "admit_due",
    "can_start",
    "count_starts",
    "group_blockers",
    "make_ready",
    "next_order",
    "next_time",
    "read",
    "refill",
    "refill_all",
    "refuse_overfull_groups",
    "touched",
    "waiting",
]

_SQL: Final = statements("groups")
_EXACT: Final = 100  # starts up to which a rate is counted to the millisecond
_PASSES: Final = 100  # groups that a claim examines beyond those that it takes from


@dataclass(slots=True)
class Group:
    """A group, kept up to date with what is done to it. `left` is how many starts its rate still allows; `till` is
    until when it allows none."""

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
        """How many more may be admitted now."""
        if self.paused:
            return 0
        return max(0, min((self.limits.concurrency or inf) - self.seats, self.left))

    def admit(self, count: int = 1) -> None:
        self.seats += count
        self.left -= count


def read(tx: "Transaction", row: "QueueRow", names: Iterable[str]) -> dict[str, Group]:
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


def _read_rate(tx: "Transaction", row: "QueueRow", group: Group) -> None:
    rate = group.limits.rate_limit
    assert rate is not None  # noqa: S101 - asked for by the caller
    count, oldest = tx.one(_SQL["starts"], (row.key, group.name, tx.now - per_ms(rate)))
    (in_line,) = tx.one(_SQL["in_line"], (row.key, group.name))  # each of these may start at any moment
    group.left = rate.max - count - in_line
    group.till = None if oldest is None else oldest + per_ms(rate)


def touched(tx: "Transaction", keys: Sequence[int]) -> list[str]:
    """The groups of these jobs."""
    return [name for (name,) in tx.all(_SQL["of_jobs"], (json.dumps(keys),))]


def make_ready(step: "QueueChanges", key: int, spot: tuple[int, int]) -> None:
    """Make a job claimable at this position; a job of a group when its turn comes."""
    step.stand_at(key, _grouped_spot(step, key, spot) if step.row.grouped else spot)


def _grouped_spot(step: "QueueChanges", key: int, spot: tuple[int, int]) -> tuple[int, int]:
    """Where a ready job goes: parked, if it has a group. A job that has stalled keeps its seat, unless its group is
    paused."""
    found = step.tx.one(_SQL["of_job"], (key,))
    if found is None:
        return spot
    name, order, _ = found
    step.touch(name)
    if spot[0] != Place.SUSPECT:
        return Place.PARKED, order
    return (Place.PARKED_SUSPECT, order) if read(step.tx, step.row, [name])[name].paused else spot


def refill(step: "QueueChanges", names: Iterable[str]) -> None:
    """Admit what may be admitted; the writes before this must have been made."""
    groups = read(step.tx, step.row, names)
    sizes = {name: int(min(g.room, g.weight - g.seats)) for name, g in groups.items() if g.parked}
    first = _first(step, [name for name, size in sizes.items() if size > 0], max(sizes.values(), default=0) + 1)
    for name, size in sizes.items():
        group, parked = groups[name], first.get(name)
        if parked is not None:
            group.parked = len(parked) > size
            _admit_next(step, group, parked[:size])
        _wait_for_turn(step, group)


def _first(step: "QueueChanges", names: Sequence[str], count: int) -> dict[str, list[Any]]:
    """The first parked jobs of each group: key, place, rank, priority."""
    if not names:
        return {}
    found = step.tx.all(_SQL["first"], (step.row.key, count, json.dumps(names)))
    return {name: json.loads(parked) for name, parked in found}


def _admit_next(step: "QueueChanges", group: Group, parked: Iterable[Any]) -> None:
    for key, place, rank, priority in parked:
        step.row.count(place, -1)
        step.write("leave", [(step.row.key, place, rank, key)])
        suspect = place == Place.PARKED_SUSPECT
        step.stand_at(key, (Place.SUSPECT, step.row.moves + 1) if suspect else step.row.back(priority))
        group.admit()


def _wait_for_turn(step: "QueueChanges", group: Group) -> None:
    """Let the rest of a group wait for its turn, or for its rate."""
    row, tx = step.row, step.tx
    if not group.parked or (not group.room and (group.paused or group.left >= 1 or group.till is None)):
        return
    row.turns += 1
    tx.run(_SQL["wait_for_turn"], (row.key, group.name, 0 if group.room else group.till, row.turns))
    step.arrived()


def admit_due(step: "QueueChanges") -> None:
    """Admit jobs of groups whose rate allows more starts, a bounded number."""
    due = [name for (name,) in step.tx.all(_SQL["due"], (step.row.key, step.tx.now, _PASSES))]
    if due:
        step.tx.run_all(_SQL["leave_ring"], [(name,) for name in due], step.row.key)
        refill(step, due)
        step.flush()


def admit_by_turns(step: "QueueChanges", want: int) -> int:
    """Admit up to `want` jobs in turns. Returns how many."""
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
        _wait_for_turn(step, groups[name])
    step.flush()
    return given


def _deal(step: "QueueChanges", groups: Sequence[Group], parked: "dict[str, deque[Any]]", want: int) -> int:
    """Round after round, as many of each group as its weight says."""
    turns, given = deque(groups), 0
    while turns and given < want:
        group = turns.popleft()
        mine = parked[group.name]
        size = int(min(group.weight if turns else want, group.room, want - given, max(0, len(mine))))
        _admit_next(step, group, [mine.popleft() for _ in range(size)])
        given += size
        if size and mine and group.room:
            turns.append(group)
    return given


def can_start(step: "QueueChanges", ready: ReadyJob) -> bool:
    """Whether its group's rate allows a suspect to start. If not, it is parked until the rate does."""
    name, key = ready.group_name, ready.job.key
    if name is None or read(step.tx, step.row, [name])[name].left > 0:
        return True
    _, order, _ = step.tx.one(_SQL["of_job"], (key,))
    step.stand_at(key, (Place.PARKED_SUSPECT, order))
    step.touch(name)
    return False


def count_starts(step: "QueueChanges", names: Sequence[str]) -> None:
    """Count starts of these groups, one for each occurrence of a name."""
    for name, group in read(step.tx, step.row, dict.fromkeys(names)).items():
        rate = group.limits.rate_limit
        if rate is not None:
            time = slot(rate, step.tx.now, exact=_EXACT)
            step.tx.run(_SQL["trim_starts"], (step.row.key, name, step.tx.now - per_ms(rate)))
            step.tx.run(_SQL["start"], (step.row.key, name, time, names.count(name)))
            step.touch(name)


def next_time(step: "QueueChanges") -> int | None:
    """When the next claim may find a job of a group: now, or when a rate allows more."""
    row, tx = step.row, step.tx
    if tx.one(_SQL["any_turn"], (row.key,)) is not None:
        return tx.now
    (till,) = tx.one(_SQL["next_till"], (row.key,))
    return None if till is None else max(int(till), tx.now)


class GroupAdmission:
    """The groups of one add's jobs, updated as jobs are added."""

    def __init__(self, step: QueueChanges, names: Sequence[str]) -> None:
        self._step = step
        if names:
            step.row.grouped = 1
        self._groups = read(step.tx, step.row, dict.fromkeys(names)) if names else {}

    def order(self, job: NewJob) -> int:
        return next_order(self._step.row, job)

    def spot(self, name: str, priority: int, order: int) -> tuple[int, int]:
        """Where a ready job goes."""
        group = self._groups[name]
        if group.room and not group.parked and group.seats < group.weight:
            group.admit()
            return self._step.row.back(priority)
        group.parked = True
        self._step.touch(name)
        return Place.PARKED, order


def next_order(row: QueueRow, job: NewJob) -> int:
    """A position behind all jobs of its group, or in front of them."""
    row.grouped, row.orders = 1, row.orders + 1
    return -row.orders if job.lifo else row.orders


def waiting(tx: Transaction, row: QueueRow, name: str) -> int:
    """How many jobs of a group have not started."""
    return int(tx.value(_SQL["in_line"], (row.key, name))) + int(tx.value(_SQL["out_of_line"], (row.key, name)))


def refuse_overfull_groups(tx: Transaction, row: QueueRow, added: "Counter[str]") -> None:
    """Raise if these jobs exceed the limit of a group; then none of them is stored."""
    for name, group in (read(tx, row, added) if added else {}).items():
        most = group.limits.max_waiting
        if most is not None and (held := waiting(tx, row, name)) > most:
            raise full(row.name, name, most=most, held=held - added[name], refused=added[name])


T = TypeVar("T")
_PLACE_OF: Final = statement("inspector", "place_of")
_AT_ONCE: Final = 1_000  # groups that one query reads


@implements(GroupStore)
class SqlGroups:
    """Groups of the seam."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def set(self, queue: str, change: SetGroup, *, call: Call | None = None, now: int | None = None) -> GroupRow:
        return await self._steps.write(partial(_set_group, queue=queue, change=change, call=call), now)

    async def get(self, queue: str, name: str, *, now: int | None = None) -> GroupRow:
        return await self._steps.read(partial(_group, queue=queue, name=name), now)

    async def page(
        self, queue: str, *, cursor: str | None = None, limit: int = 100, now: int | None = None
    ) -> Page[GroupRow]:
        return await self._steps.read(partial(_page, queue=queue, after=cursor or "", limit=limit), now)


def _set_group(tx: Transaction, queue: str, change: SetGroup, call: Call | None) -> GroupRow:
    if recall(tx, call) is not None or (change.limits is None and change.paused is None):
        return _group(tx, queue, change.name)
    remember(tx, call, [])
    row = tx.queue(queue)
    before = _own(tx, row, change.name)
    limits = before.own if change.limits is None else change.limits
    paused = before.paused if change.paused is None else change.paused
    if limits == GroupLimits() and not paused:
        tx.run(_SQL["unset"], (row.key, change.name))
    else:
        tx.run(_SQL["set"], (row.key, change.name, limits.dump(), int(paused)))
    step = QueueChanges(tx, row)
    if paused:
        _put_back(step, change.name)
    step.touch(change.name)
    step.flush()
    return _group_row(tx, row, change.name)


def _put_back(step: QueueChanges, name: str) -> None:
    """Move admitted jobs of a paused group that have not started back to where they were."""
    for key, place, rank in step.tx.all(_SQL["admitted"], (step.row.key, name)):
        _, order, _ = step.tx.one(_SQL["of_job"], (key,))
        step.leave(key, place, rank)
        step.stand_at(key, (Place.PARKED_SUSPECT if place == Place.SUSPECT else Place.PARKED, order))


def refill_all(step: QueueChanges) -> None:
    """The limits of all groups have changed: check each one that has parked jobs."""
    names, after = [], ""
    while found := [name for (name,) in step.tx.all(_SQL["parked_groups"], (step.row.key, after, _AT_ONCE))]:
        names += found
        after = found[-1]
    for name in names:
        step.touch(name)
    step.flush()


def _group(tx: Transaction, queue: str, name: str) -> GroupRow:
    row = tx.find(queue)
    return GroupRow(name=name) if row is None else _group_row(tx, row, name)


def _page(tx: Transaction, queue: str, after: str, limit: int) -> Page[GroupRow]:
    row = tx.find(queue)
    found: list[GroupRow] = []
    while row is not None and len(found) <= limit and (name := tx.value(_SQL["next_name"], (row.key, after) * 2)):
        after = name
        if tx.value(_SQL["unfinished"], (row.key, name) * 2):
            found.append(_group_row(tx, row, name))
    return Page(tuple(found[:limit]), found[limit - 1].name if len(found) > limit else None)


def _own(tx: Transaction, row: QueueRow, name: str) -> GroupRow:
    ((_, own, paused, *_),) = tx.all(_SQL["state"], (row.key, row.key, row.key, json.dumps([name]), row.key))
    return GroupRow(name=name, own=GroupLimits.load(own), paused=bool(paused))


def _group_row(tx: Transaction, row: QueueRow, name: str) -> GroupRow:
    group = read(tx, row, [name])[name]
    return GroupRow(
        name=name,
        waiting=waiting(tx, row, name),
        running=int(tx.value(_SQL["running"], (row.key, name))),
        limits=group.limits,
        own=_own(tx, row, name).own,
        paused=group.paused,
        till=group.till if group.left < 1 else None,
    )


def group_blockers(tx: Transaction, row: QueueRow, identity: str) -> GroupBlockers | None:
    """What in its group keeps a job from starting; None if it has no group."""
    key = keys_of(tx, row, [identity]).get(identity)
    found = None if key is None else tx.one(_SQL["of_job"], (key,))
    if found is None:
        return None
    name, order, priority = found
    view = _group_row(tx, row, name)
    parked = tx.value(_PLACE_OF, (key,)) <= Place.PARKED
    holders = tx.all(_SQL["holders"], (row.key, name, view.limits.concurrency or 0))
    return GroupBlockers(
        name=name,
        let_in=not parked,
        holders=tuple(job_id(each, chosen) for each, chosen in holders),
        ahead=int(tx.value(_SQL["ahead"], (row.key, name, priority, order))) if parked else 0,
        limits=view.limits,
        paused=view.paused,
        till=view.till,
    )
