"""`SqlEngine`: each method of the core as one step; the capabilities are attributes."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

from toril.engines.sql import control, maintenance, replay
from toril.engines.sql.add import add
from toril.engines.sql.audit import SqlAudit
from toril.engines.sql.breakers import SqlCircuits
from toril.engines.sql.dead_letters import SqlDeadLetters
from toril.engines.sql.flows import SqlFlows
from toril.engines.sql.groups import SqlGroups
from toril.engines.sql.inspector import SqlInspector, SqlMetrics
from toril.engines.sql.leases import recover, renew, report
from toril.engines.sql.schedules import SqlSchedules
from toril.engines.sql.transaction import Steps
from toril.engines.sql.transfer_import import SqlTransfers
from toril.errors import InvalidOption, preview
from toril.model import (
    BATCH,
    MAX_REASON_BYTES,
    Added,
    Call,
    ControlResult,
    Heartbeat,
    Lease,
    NewJob,
    Recovered,
    Renewed,
    Report,
    Setting,
    Settings,
    Swept,
    Update,
    Verdict,
    WorkerRequest,
    check_int,
    storable,
)
from toril.model.names import check_label, check_queue_name, check_worker_name
from toril.model.states import State

__all__ = ["SqlEngine"]


class SqlEngine(SqlInspector):
    """What engines on SQL have alike. A driver says how steps are made, and how one waits."""

    in_memory = False

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps)
        self.dead_letters = SqlDeadLetters(steps)
        self.circuits = SqlCircuits(steps)
        self.flows = SqlFlows(steps)
        self.groups = SqlGroups(steps)
        self.schedules = SqlSchedules(steps)
        self.metrics = SqlMetrics(steps)
        self.audit = SqlAudit(steps)
        self.transfers = SqlTransfers(steps)

    async def retry(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        queue = check_queue_name(queue)
        return await self._steps.write(partial(replay.retry, queue=queue, ids=ids, call=call), now)

    async def promote(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        queue = check_queue_name(queue)
        return await self._steps.write(partial(control.promote, queue=queue, ids=ids, call=call), now)

    async def cancel(
        self, queue: str, ids: Sequence[str], *, reason: str, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        reason = storable(reason, MAX_REASON_BYTES)
        queue = check_queue_name(queue)
        return await self._steps.write(partial(control.cancel, queue=queue, ids=ids, reason=reason, call=call), now)

    async def remove(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        queue = check_queue_name(queue)
        return await self._steps.write(partial(control.remove, queue=queue, ids=ids, call=call), now)

    async def update(
        self, queue: str, updates: Sequence[Update], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        queue = check_queue_name(queue)
        return await self._steps.write(partial(control.update, queue=queue, updates=updates, call=call), now)

    async def drain(
        self,
        queue: str,
        *,
        states: frozenset[State],
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        queue = check_queue_name(queue)
        return await self._steps.write(partial(control.drain, queue=queue, states=states, limit=limit, call=call), now)

    async def clean(
        self,
        queue: str,
        *,
        state: State,
        grace: int,
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        queue = check_queue_name(queue)
        return await self._steps.write(
            partial(control.clean, queue=queue, state=state, grace=grace, limit=limit, call=call), now
        )

    async def obliterate(
        self,
        queue: str,
        *,
        running: Literal["refuse", "remove"] = "refuse",
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        if running not in {"refuse", "remove"}:
            raise InvalidOption(f"running must be 'refuse' or 'remove', not {preview(running)}")
        queue = check_queue_name(queue)
        return await self._steps.write(
            partial(control.obliterate, queue=queue, running=running, limit=limit, call=call), now
        )

    async def configure(
        self, queue: str, settings: Sequence[Setting], *, call: Call | None = None, now: int | None = None
    ) -> Settings:
        queue = check_queue_name(queue)
        return await self._steps.write(partial(control.configure, queue=queue, settings=settings, call=call), now)

    async def report(
        self, queue: str, reports: Sequence[Report], *, call: Call | None = None, now: int | None = None
    ) -> list[Verdict]:
        _check_batch(reports)
        queue = check_queue_name(queue)
        return await self._steps.write(partial(report, queue=queue, reports=reports, call=call), now)

    async def recover(
        self,
        queue: str,
        *,
        dead: Sequence[Lease] = (),
        cause: str | None = None,
        limit: int = 1000,
        now: int | None = None,
    ) -> Recovered:
        cause = None if cause is None else storable(cause, MAX_REASON_BYTES)
        _check_batch(dead)
        queue = check_queue_name(queue)
        check_int("limit", limit, 1, 10_000)
        return await self._steps.write(partial(recover, queue=queue, dead=dead, cause=cause, limit=limit), now)

    async def prune(self, queue: str, *, limit: int = 1000, now: int | None = None) -> int:
        queue = check_queue_name(queue)
        return await self._steps.write(partial(maintenance.prune, queue=queue, limit=limit), now)

    async def resign(self, role: str, owner: str) -> bool:
        check_label("a role", role)
        check_worker_name(owner)
        return await self._steps.write(partial(maintenance.resign, role=role, owner=owner), None)

    async def signal(self, worker: str, order: WorkerRequest, *, now: int | None = None) -> bool:
        check_worker_name(worker)
        return await self._steps.write(partial(maintenance.signal, worker=worker, order=order), now)

    async def once(self, key: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        check_label("a key", key)
        check_worker_name(owner)
        check_int("ttl", ttl, 1, 2**42)
        return await self._steps.write(partial(maintenance.once, key=key, owner=owner, ttl=ttl), now)

    async def renew(self, leases: Sequence[Lease], *, ttl: int, now: int | None = None) -> Renewed:
        _check_batch(leases)
        check_int("ttl", ttl, 1, 2**42)
        return await self._steps.write(partial(renew, leases=leases, ttl=ttl), now)

    async def heartbeat(self, beat: Heartbeat, *, ttl: int, now: int | None = None) -> tuple[WorkerRequest, ...]:
        check_int("ttl", ttl, 0, 2**42)
        return await self._steps.write(partial(maintenance.heartbeat, beat=beat, ttl=ttl), now)

    async def add(
        self, queue: str, jobs: Sequence[NewJob], *, call: Call | None = None, now: int | None = None
    ) -> list[Added]:
        if not jobs and call is None:
            return []
        queue = check_queue_name(queue)
        return await self._steps.write(partial(add, queue=queue, jobs=jobs, call=call), now, grows=bool(jobs))

    async def lead(self, role: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        check_label("a role", role)
        check_worker_name(owner)
        check_int("ttl", ttl, 1, 2**42)
        if self.in_memory:
            raise InvalidOption(
                "a store in memory has one process, so there is no leader to elect; switch election off"
            )
        return await self._steps.write(partial(maintenance.lead, role=role, owner=owner, ttl=ttl), now)


def _check_batch(batch: Sequence[object]) -> None:
    if len(batch) > BATCH:
        raise InvalidOption(f"one call takes at most {BATCH} jobs, not {len(batch)}")
