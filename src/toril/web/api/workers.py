"""Workers: who is alive, and telling one to be quiet or to stop."""

from typing import Any, Final

from toril.documents import of_worker
from toril.errors import NotFound, shown
from toril.model import Order
from toril.web.access import Role
from toril.web.endpoint import Asking, Endpoint

__all__ = ["WORKERS"]


async def list_workers(asking: Asking) -> dict[str, Any]:
    return {"items": [of_worker(view) for view in await asking.app.store.workers()]}


async def quiet_worker(asking: Asking) -> dict[str, Any]:
    return await _told(asking, Order.QUIET)


async def stop_worker(asking: Asking) -> dict[str, Any]:
    return await _told(asking, Order.STOP)


async def _told(asking: Asking, order: Order) -> dict[str, Any]:
    name = asking.path["worker"]
    if not await asking.app.store.signal(name, order):
        raise NotFound(f"no worker {shown(name)} is alive")
    return {"worker": name, "told": order.value}


WORKERS: Final = (
    Endpoint(method="GET", path="/workers", role=Role.READ, run=list_workers, does="The workers that are alive."),
    Endpoint(
        method="POST", path="/workers/{worker}/quiet", role=Role.OPERATE, run=quiet_worker,
        does="Have a worker claim nothing more; what it runs goes on.",
    ),
    Endpoint(
        method="POST", path="/workers/{worker}/stop", role=Role.ADMIN, run=stop_worker,
        does="Have a worker drain and end.",
    ),
)  # fmt: skip
