"""A shop on Flask. Its code is blocking, so it uses the queues through `.sync`.

flask --app shop:web run         the site; or:  gunicorn --preload --workers 4 shop:web
toril run shop:app               the worker, in another terminal
curl -X POST localhost:5000/orders/17
"""

from flask import Flask
from flask.typing import ResponseReturnValue

from toril import App, SyncJobContext

app = App()  # the store: $TORIL_URL, or a file in this folder


def pack(ctx: SyncJobContext[int]) -> str:
    return f"order {ctx.data} is packed"


orders = app.queue("orders", [pack])
web = Flask(__name__)


@web.post("/orders/<int:number>")
def order(number: int) -> ResponseReturnValue:
    job = orders.sync.add(pack, number, job_id=f"order-{number}", keep_completed=1000)
    return {"job": job.id}, 202


@web.get("/orders/<int:number>")
def state(number: int) -> ResponseReturnValue:
    job = orders.sync.job(f"order-{number}")
    if job is None:
        return {"error": "there is no such order"}, 404
    return {"state": job.state()}, 200
