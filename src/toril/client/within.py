"""`queue.within(connection)`: adds jobs in your own transaction, in the database that contains the store."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Unpack

from toril.client.connections import Dialect, async_writer_of, writer_of
from toril.client.options import AddOptions
from toril.codec.new_jobs import dump_new_job
from toril.errors import UsageError
from toril.model import NewJob

if TYPE_CHECKING:
    from toril.queue import Queue

__all__ = ["AsyncWithin", "Within"]

_WHAT = "within"


class _Prepared:
    """Prepares jobs of a queue, and knows the statement that writes them."""

    def __init__(self, queue: "Queue", dialect: Dialect) -> None:
        table = queue.services.inbox
        if table is None:
            raise UsageError("within needs a store in PostgreSQL; for other stores there is app.outbox(connection)")
        if dialect != "postgresql":
            raise UsageError("within needs a connection to the store's own database, which is PostgreSQL")
        self._queue = queue
        self.sql = f"INSERT INTO {table} (queue, job_id, request) VALUES (?, ?, ?)"

    def job(self, job: Any, data: Any, options: AddOptions) -> NewJob:
        if options.get("job_id") is None:
            options["job_id"] = self._queue.services.clock.unique()
        return self._queue.new(job, data, **options).job

    def parameters(self, planned: NewJob) -> tuple[str, str, str]:
        tracing, name = self._queue.services.tracing, self._queue.name
        with nullcontext([planned]) if tracing is None else tracing.sending(name, [planned]) as (new,):
            return name, str(new.id), dump_new_job(new)


class Within:
    """Adds jobs in the transaction of a blocking connection. It never commits; you do."""

    def __init__(self, queue: "Queue", connection: Any) -> None:
        self._writer = writer_of(connection, _WHAT)
        self._prepared = _Prepared(queue, self._writer.dialect)

    def add(self, job: Any, data: Any = None, **options: Unpack[AddOptions]) -> str:
        """Add a job, with the options and checks of `Queue.add`. Returns the id that the job will have."""
        planned = self._prepared.job(job, data, options)
        self._writer.execute(self._prepared.sql, self._prepared.parameters(planned))
        return str(planned.id)


class AsyncWithin:
    """The same in the transaction of an asynchronous connection."""

    def __init__(self, queue: "Queue", connection: Any) -> None:
        self._writer = async_writer_of(connection, _WHAT)
        self._prepared = _Prepared(queue, self._writer.dialect)

    async def add(self, job: Any, data: Any = None, **options: Unpack[AddOptions]) -> str:
        """Add a job, with the options and checks of `Queue.add`. Returns the id that the job will have."""
        planned = self._prepared.job(job, data, options)
        await self._writer.execute(self._prepared.sql, self._prepared.parameters(planned))
        return str(planned.id)
