"""Groups as operators see and set them."""

import json
from abc import abstractmethod
from functools import partial
from typing import Final, TypeVar

from toril.engines.sql.calls import answered, remember
from toril.engines.sql.doors import waiting
from toril.engines.sql.groups import read
from toril.engines.sql.schema import Place, job_id
from toril.engines.sql.statements import statement
from toril.engines.sql.step import Step
from toril.engines.sql.transaction import Op, QueueRow, Tx, keys_of
from toril.model import Call, GroupLimits, GroupRow, GroupStanding, Page, SetGroup, whole
from toril.model.names import check_group, check_queue_name

__all__ = ["SqliteGroups", "let_in_more", "standing"]

T = TypeVar("T")
_SQL: Final = {name: statement("groups", name) for name in (
    "state", "running", "let_in_line", "set", "unset", "next_name", "unfinished", "holders", "ahead", "of_job",
    "parked_groups",
)}  # fmt: skip
_PLACE: Final = statement("explain", "place")
_MOST: Final = 1_000  # in one page


class SqliteGroups:
    """Groups of the seam."""

    @abstractmethod
    async def _write(self, op: Op[T], now: int | None, *, grows: bool = False) -> T: ...

    @abstractmethod
    async def _read(self, op: Op[T], now: int | None = None) -> T: ...

    async def set_group(
        self, queue: str, change: SetGroup, *, call: Call | None = None, now: int | None = None
    ) -> GroupRow:
        return await self._write(partial(_set_group, queue=check_queue_name(queue), change=change, call=call), now)

    async def group(self, queue: str, name: str, *, now: int | None = None) -> GroupRow:
        return await self._read(partial(_group, queue=check_queue_name(queue), name=check_group(name)), now)

    async def groups(
        self, queue: str, *, cursor: str | None = None, limit: int = 100, now: int | None = None
    ) -> Page[GroupRow]:
        most = min(whole("limit", limit, 1, 2**53), _MOST)
        after = "" if cursor is None else check_group(cursor)
        return await self._read(partial(_page, queue=check_queue_name(queue), after=after, limit=most), now)


def _set_group(tx: Tx, queue: str, change: SetGroup, call: Call | None) -> GroupRow:
    if answered(tx, call) is not None or (change.limits is None and change.paused is None):
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
    step = Step(tx, row)
    if paused:
        _put_back(step, change.name)
    step.touch(change.name)
    step.flush()
    return _view(tx, row, change.name)


def _put_back(step: Step, name: str) -> None:
    """Those of a paused group that were let in and have not started go back to where they were."""
    for key, place, rank in step.tx.all(_SQL["let_in_line"], (step.row.key, name)):
        _, order, _ = step.tx.one(_SQL["of_job"], (key,))
        step.leave(key, place, rank)
        step.stand_at(key, (Place.PARKED_SUSPECT if place == Place.SUSPECT else Place.PARKED, order))


def let_in_more(step: Step) -> None:
    """Limits have changed for all groups: each that has parked jobs is looked at."""
    names, after = [], ""
    while found := [name for (name,) in step.tx.all(_SQL["parked_groups"], (step.row.key, after, _MOST))]:
        names += found
        after = found[-1]
    for name in names:
        step.touch(name)
    step.flush()


def _group(tx: Tx, queue: str, name: str) -> GroupRow:
    row = tx.find(queue)
    return GroupRow(name=name) if row is None else _view(tx, row, name)


def _page(tx: Tx, queue: str, after: str, limit: int) -> Page[GroupRow]:
    row = tx.find(queue)
    found: list[GroupRow] = []
    while row is not None and len(found) <= limit and (name := tx.one(_SQL["next_name"], (row.key, after) * 2)[0]):
        after = name
        if tx.one(_SQL["unfinished"], (row.key, name) * 2)[0]:
            found.append(_view(tx, row, name))
    return Page(tuple(found[:limit]), found[limit - 1].name if len(found) > limit else None)


def _own(tx: Tx, row: QueueRow, name: str) -> GroupRow:
    ((_, own, paused, *_),) = tx.all(_SQL["state"], (row.key, row.key, row.key, json.dumps([name]), row.key))
    return GroupRow(name=name, own=GroupLimits.load(own), paused=bool(paused))


def _view(tx: Tx, row: QueueRow, name: str) -> GroupRow:
    group = read(tx, row, [name])[name]
    return GroupRow(
        name=name, waiting=waiting(tx, row, name), running=int(tx.one(_SQL["running"], (row.key, name))[0]),
        limits=group.limits, own=_own(tx, row, name).own, paused=group.paused,
        till=group.till if group.left < 1 else None,
    )  # fmt: skip


def standing(tx: Tx, row: QueueRow, identity: str) -> GroupStanding | None:
    """What its group keeps a job from; None where it has none."""
    key = keys_of(tx, row, [identity]).get(identity)
    found = None if key is None else tx.one(_SQL["of_job"], (key,))
    if found is None:
        return None
    name, order, priority = found
    view = _view(tx, row, name)
    parked = tx.one(_PLACE, (key,))[0] <= Place.PARKED
    holders = tx.all(_SQL["holders"], (row.key, name, view.limits.concurrency or 0))
    return GroupStanding(
        name=name, let_in=not parked, holders=tuple(job_id(each, chosen) for each, chosen in holders),
        ahead=int(tx.one(_SQL["ahead"], (row.key, name, priority, order))[0]) if parked else 0, limits=view.limits,
        paused=view.paused, till=view.till,
    )  # fmt: skip
