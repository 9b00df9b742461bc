"""A shop on FastAPI: it takes orders over HTTP, and a worker packs them.

uvicorn shop:web                 the site, with the dashboard at /jobs/
toril run shop:app               the worker, in another terminal
curl -X POST localhost:8000/orders/17
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException

from toril import App, JobContext, Queue
from toril.integrations.starlette import lifespan, mount, queue_of
from toril.web import Open

app = App()  # the store: $TORIL_URL, or a file in this folder


async def pack(ctx: JobContext[int]) -> str:
    return f"order {ctx.data} is packed"


app.queue("orders", [pack])


@asynccontextmanager
async def own(_: FastAPI) -> AsyncIterator[dict[str, str]]:
    """What the shop itself opens and closes. The queues are open here."""
    yield {"shop": "open"}


Orders = Annotated[Queue, Depends(queue_of(app, "orders", about=lambda request: {"path": request.url.path}))]

web = FastAPI(lifespan=lifespan(app, own))
mount(web, app, "/jobs", access=Open())  # anyone on this machine may look; docs/http.md says who may make changes


@web.post("/orders/{number}", status_code=202)
async def order(number: int, orders: Orders) -> dict[str, str]:
    job = await orders.add(pack, number, job_id=f"order-{number}", keep_completed=1000)
    return {"job": job.id}


@web.get("/orders/{number}")
async def state(number: int, orders: Orders) -> dict[str, str]:
    job = await orders.job(f"order-{number}")
    if job is None:
        raise HTTPException(404, "there is no such order")
    return {"state": await job.state() or "gone", "from": job.metadata["path"]}
