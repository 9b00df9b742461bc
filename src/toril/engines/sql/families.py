"""The flows of the seam, as steps for the runner."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeVar

from toril.engines.sql import flows
from toril.engines.sql.transaction import Op
from toril.model import BUILDING, Added, Call, Child, Family, FlowNode, JobRef, Kept, Lease, Page, Verdict, whole

__all__ = ["SqliteFlows"]

T = TypeVar("T")
_MOST: Final = 1_000  # in one page
_FEW: Final = 10  # open children that are named


class SqliteFlows:
    """Jobs that wait for others."""

    @abstractmethod
    async def _write(self, op: Op[T], now: int | None, *, grows: bool = False) -> T: ...

    @abstractmethod
    async def _read_now(self, op: Op[T]) -> T: ...

    async def add_flow(
        self, nodes: Sequence[FlowNode], *, held: Sequence[JobRef] = (), hold_for: int = BUILDING,
        closed: Sequence[JobRef] = (), call: Call | None = None, now: int | None = None,
    ) -> list[Added]:  # fmt: skip
        op = partial(flows.add_flow, nodes=nodes, held=held, hold_for=hold_for, closed=closed, call=call)
        return await self._write(op, now, grows=True)

    async def add_children(
        self, lease: Lease, nodes: Sequence[FlowNode], *, call: Call | None = None, now: int | None = None
    ) -> Verdict:
        return await self._write(partial(flows.add_children, lease=lease, nodes=nodes, call=call), now, grows=True)

    async def family(self, job: JobRef, *, where: Kept = "queue") -> Family:
        return await self._read_now(partial(flows.family, ref=job, where=where, few=_FEW))

    async def children(
        self, job: JobRef, *, cursor: str | None = None, limit: int = 100, where: Kept = "queue"
    ) -> Page[Child]:
        most = min(whole("limit", limit, 1, 2**53), _MOST)
        return await self._read_now(partial(flows.children, ref=job, where=where, cursor=cursor, limit=most))

    async def child_names(self, job: JobRef) -> list[tuple[JobRef, str]]:
        return await self._read_now(partial(flows.child_names, ref=job))
