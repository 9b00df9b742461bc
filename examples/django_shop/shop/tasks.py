"""Tasks of django-tasks, which Toril runs."""

from django_tasks import task

from shop.models import Order
from toril import PermanentError


@task(priority=10)
def receipt(number: int) -> str:
    order = Order.objects.filter(number=number).first()
    if order is None:
        raise PermanentError(f"there is no order {number}")  # and there will be none at the next attempt
    return f"order {number}: {'packed' if order.packed else 'not yet packed'}"
