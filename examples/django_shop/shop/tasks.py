"""Tasks of django-tasks, which Toril runs."""

from django_tasks import task

from shop.models import Order


@task(priority=10)
def receipt(number: int) -> str:
    packed = Order.objects.get(number=number).packed
    return f"order {number}: {'packed' if packed else 'not yet packed'}"
