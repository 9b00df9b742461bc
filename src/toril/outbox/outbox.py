"""`Outbox`: adds jobs in your application's own transaction."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Unpack

from toril.client.connections import is_async, writer_of
from toril.client.options import AddOptions
from toril.codec.new_jobs import dump_new_job
from toril.errors import UsageError, preview
from toril.outbox.database import DDL, INSERT
from toril.queue import Queue
from toril.runtime.services import Services

__all__ = ["Outbox"]

_WHAT = "an outbox"


class Outbox:
    """`app.outbox(connection)`: adds jobs in the transaction of that connection. It never commits; you do."""

    def __init__(self, services: Services, connection: Any, written_to: Callable[[], object]) -> None:
        self._services = services
        if is_async(connection):
            raise UsageError(
                f"an outbox needs a blocking connection, and {preview(connection)} is asynchronous; with SQLAlchemy "
                "use `await session.run_sync(lambda s: app.outbox(s).add(…))`"
            )
        self._writer = writer_of(connection, _WHAT)
        self._written_to = written_to

    def create(self) -> None:
        """Create the outbox's tables if they do not exist, in the same transaction."""
        for statement in DDL[self._writer.dialect]:
            self._writer.execute(statement, ())

    def add(
        self, job: Any, data: Any = None, *, queue: Queue | str | None = None, **options: Unpack[AddOptions]
    ) -> str:
        """Add a job, by its handler or by its name, with the options and checks of `Queue.add`. Returns the id that the
        job will have.

        You can leave out `queue` if only one queue of the app can be meant.
        """
        home = self._queue(job, queue)
        if options.get("job_id") is None:
            options["job_id"] = self._services.clock.unique()
        planned, tracing = home.new(job, data, **options).job, self._services.tracing
        with nullcontext([planned]) if tracing is None else tracing.sending(home.name, [planned]) as (new,):
            self._writer.execute(INSERT, (home.name, str(new.id), dump_new_job(new)))
        self._written_to()
        return str(new.id)

    def _queue(self, job: Any, given: Queue | str | None) -> Queue:
        queues = self._services.queues
        if given is not None:
            return queues[given if isinstance(given, str) else given.name]
        fitting = list(queues.values())
        if len(fitting) != 1 and callable(job):
            fitting = [queue for queue in fitting if _handles(queue, job)]
        if len(fitting) != 1:
            raise UsageError(f"several queues could run {preview(job)}; name one, as in add(…, queue='emails')")
        return fitting[0]


def _handles(queue: Queue, job: Callable[..., Any]) -> bool:
    try:
        return bool(queue.handlers.name_of(job))
    except UsageError:
        return False
