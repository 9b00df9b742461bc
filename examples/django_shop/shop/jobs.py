"""The queues of the shop. Handlers are plain functions, which run in threads, where the ORM works as usual."""

from django.conf import settings

from shop.models import Order
from toril import App, SyncJobContext

app = App(f"sqlite:///{settings.FOLDER / 'jobs.db'}")


def pack(ctx: SyncJobContext[int]) -> int:
    return Order.objects.filter(number=ctx.data).update(packed=True)  # type: ignore[no-any-return]


orders = app.queue("orders", [pack], concurrency=4)
