"""Jobs that are added when the transaction around them commits, and dropped with it."""

from functools import partial
from typing import Any, Unpack

from django.db import transaction

from toril.client.adding import AddOptions
from toril.queue import Planned, Queue

__all__ = ["add", "on_commit"]


def on_commit(
    queue: Queue, job: Any, data: Any = None, *, using: str | None = None, **options: Unpack[AddOptions]
) -> None:
    """Add a job once the transaction of the database `using` has committed; at once where there is none. It is checked
    here and now. A process that dies between the commit and the add takes the job with it."""
    transaction.on_commit(partial(add, queue.new(job, data, **options)), using=using)


def add(planned: Planned[Any]) -> None:
    planned.queue.sync.add_many([planned])
