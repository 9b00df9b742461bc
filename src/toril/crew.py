"""The workers of a store, wherever they run: who is alive, and what one of them is told."""

from abc import abstractmethod

from toril.engine import Store
from toril.errors import NotFound, shown
from toril.model import Order, WorkerView

__all__ = ["Crew"]


class Crew:
    """A part of `App`, which has what is declared here."""

    @property
    @abstractmethod
    def store(self) -> Store: ...

    async def workers(self) -> list[WorkerView]:
        """The worker processes that are alive."""
        return await self.store.workers()

    async def quiet_worker(self, worker: str) -> None:
        """Have one worker process claim nothing more; what it runs goes on. `NotFound` if it is not alive."""
        await self._order(worker, Order.QUIET)

    async def stop_worker(self, worker: str) -> None:
        """Have one worker process drain and end; its supervisor does not start it anew. `NotFound` if it is not
        alive."""
        await self._order(worker, Order.STOP)

    async def _order(self, worker: str, order: Order) -> None:
        if not await self.store.signal(worker, order):
            raise NotFound(f"no worker {shown(worker)} is alive")
