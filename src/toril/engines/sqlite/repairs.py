"""What is wrong with the file, and how it is mended."""

import sqlite3
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from itertools import groupby
from typing import Final, Literal, TypeVar

from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.faults import GROWING, LOOKS, Looked, dead_workers, is_place, is_there, numbers_of, true_counts
from toril.engines.sql.flows import free_if_done
from toril.engines.sql.leases import recover
from toril.engines.sql.schema import STATE_OF, Place
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import Op, QueueRow, Steps, Transaction
from toril.engines.sqlite.disk_space import free_bytes, size_of
from toril.engines.sqlite.url import FileAddress, filesystem_of, is_network
from toril.model import Fault, FaultKind, FileFacts, Page
from toril.policy.doctor import ScanOrder, ScanPosition, cursor_of, unknown
from toril.runtime.clock import SYSTEM

__all__ = ["SqliteRepairs"]

T = TypeVar("T")

_SQL = {name: statement("repairs", name) for name in (
    "job", "leave", "leave_active", "enter", "stand", "free_id", "bury_worker", "close", "dedup", "waits",
)}  # fmt: skip
_AT_ONCE: Final = 100  # faults a transaction
_DAMAGE: Final = 10  # lines of it


class SqliteRepairs:
    """Repairs of the seam."""

    def __init__(self, steps: Steps, address: FileAddress) -> None:
        self._steps = steps
        self._address = address

    async def facts(self, *, quick: bool = False) -> FileFacts:
        return await self._steps.read(partial(_facts, address=self._address, quick=quick))

    async def scan(
        self, queues: Sequence[str], *, cursor: str | None = None, quick: bool = False
    ) -> AsyncGenerator[Page[Fault], None]:
        course = ScanOrder(queues, [*LOOKS], ["workers"])
        spot: ScanPosition | None = course.first(cursor)
        while spot is not None:
            if spot.at is not None and not is_place(spot.step, spot.at):
                raise unknown(cursor)
            left_out = quick and spot.step in GROWING  # but a step all the same: its cursors are good for either walk
            found, at = ([], None) if left_out else await self._steps.read(partial(_looked, spot=spot))
            spot = course.after(spot, at)
            yield Page(tuple(found), cursor_of(spot))

    async def repair(
        self, faults: Sequence[Fault], *, mode: Literal["look", "mend"], now: int | None = None
    ) -> list[bool]:
        answers: dict[Fault, bool] = {}
        for queue, group in groupby(sorted(faults, key=lambda fault: fault.queue), key=lambda fault: fault.queue):
            left = list(group)
            for start in range(0, len(left), _AT_ONCE):
                batch = left[start : start + _AT_ONCE]
                look: Op[list[bool]] = partial(_looked_for, faults=batch)
                mend: Op[list[bool]] = partial(_mended, queue=queue, faults=batch)
                found = await (self._steps.read(look, now) if mode == "look" else self._steps.write(mend, now))
                answers |= dict(zip(batch, found, strict=True))
        return [answers[fault] for fault in faults]


def _looked(tx: Transaction, spot: ScanPosition) -> Looked:
    if not spot.queue:
        return dead_workers(tx), None
    row = tx.find(spot.queue)
    return ([], None) if row is None else LOOKS[spot.step](tx, row, spot.at)


def _looked_for(tx: Transaction, faults: Sequence[Fault]) -> list[bool]:
    return [is_there(tx, fault) for fault in faults]


def _mended(tx: Transaction, queue: str, faults: Sequence[Fault]) -> list[bool]:
    """Those of one queue, in one transaction. The counts are counted anew: who mends by hand must not guess them."""
    found, row = [], tx.find(queue)
    for fault in faults:
        there = is_there(tx, fault)
        found.append(there)
        if there and row is None:
            tx.run(_SQL["bury_worker"], (fault.subject,))
        elif there and row is not None:
            _mend(tx, row, fault)
    if row is not None and any(found):
        for name, count in true_counts(tx, row).items():
            setattr(row, name, count)
        QueueChanges(tx, row).arrived()
    return found


def _mend(tx: Transaction, row: QueueRow, fault: Fault) -> None:
    match fault.kind:
        case FaultKind.GHOST | FaultKind.DOUBLE:
            key, *entry = numbers_of(fault)
            if entry:
                tx.run(_SQL["leave"], (row.key, *entry, key))
            else:
                tx.run(_SQL["leave_active"], (key,))
        case FaultKind.PARENT:
            tx.run(_SQL["close"], numbers_of(fault)[:1])
            free_if_done(tx, row.name, fault.subject)
        case FaultKind.ORPHAN:
            _put_back(tx, row, numbers_of(fault)[0])
        case FaultKind.LOST:
            recover(tx, row.name, (), None, 1_000)
        case FaultKind.ID:
            tx.run(_SQL["free_id"], (row.key, fault.subject))
        case FaultKind.DEDUP:
            step = QueueChanges(tx, row)
            step.ended_keys = [(key, fault.subject) for (key,) in tx.all(_SQL["dedup"], (row.key, fault.subject))]
            step.flush()  # as if its owner ended now: a job that was kept for that moment is stored
        case _:
            pass  # counts


def _put_back(tx: Transaction, row: QueueRow, key: int) -> None:
    """Have a job stand where its own row says; if there is no such place, with those that wait
    for children if it does, else at the end of the line."""
    _, priority, place, rank = tx.one(_SQL["job"], (key,))
    if place not in STATE_OF:
        waits = tx.one(_SQL["waits"], (key,)) is not None
        place, rank = (Place.WAITING_CHILDREN, row.moves + 1) if waits else row.back(priority)
        tx.run(_SQL["stand"], (place, rank, key))
    row.moves += 1
    tx.run(_SQL["enter"], (row.key, place, rank, key, row.moves))


def _facts(tx: Transaction, address: FileAddress, *, quick: bool) -> FileFacts:
    path = address.path
    pings = []
    for _ in range(5):
        began = SYSTEM.monotonic()
        tx.one("SELECT 1")
        pings.append((SYSTEM.monotonic() - began) * 1000)
    lines = () if quick else tx.all(f"PRAGMA integrity_check({_DAMAGE})")
    damage = None if quick else tuple(line for (line,) in lines if line != "ok")
    kind = "" if path is None else filesystem_of(path.resolve().parent)
    return FileFacts(
        place="memory://" if path is None else str(path),
        version=sqlite3.sqlite_version,
        damage=damage,
        journal=tx.one("PRAGMA journal_mode")[0],
        synchronous=address.synchronous,
        log=0 if path is None else size_of(path.with_name(path.name + "-wal")),
        free=None if path is None else free_bytes(path),
        mode=None if path is None else path.stat().st_mode & 0o777,
        filesystem=kind,
        network=is_network(kind),
        pings=tuple(pings),
    )
