"""Jobs that are added if, and only if, the application's own transaction commits."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Protocol, Unpack

from toril.client.adding import AddOptions
from toril.codec.new_jobs import written
from toril.errors import UsageError, shown
from toril.outbox.connections import writer_of
from toril.outbox.tables import DDL, INSERT
from toril.queue import Queue
from toril.runtime.clock import Clock
from toril.runtime.services import Tracing

__all__ = ["Outbox", "Sender"]


class Sender(Protocol):
    """What an outbox needs of its app."""

    @property
    def queues(self) -> Mapping[str, Queue]: ...

    @property
    def tracing(self) -> Tracing | None: ...


class Outbox:
    """`app.outbox(connection)`: writes into the transaction of that connection, and leaves commit and rollback to
    whoever has it."""

    def __init__(self, app: Sender, connection: Any, clock: Clock, written_to: Callable[[], object]) -> None:
        self._app = app
        self._clock = clock
        self._writer = writer_of(connection)
        self._written_to = written_to

    def create(self) -> None:
        """Make the tables, unless they are there; in the transaction, as everything here."""
        for statement in DDL[self._writer.dialect]:
            self._writer.execute(statement, ())

    def add(
        self, job: Any, data: Any = None, *, queue: Queue | str | None = None, **options: Unpack[AddOptions]
    ) -> str:
        """Write a job, by its handler or by its name, with the options of `Queue.add` and its checks. Returns the id
        that it will have. `queue` can be left out where only one can be meant."""
        home = self._queue(job, queue)
        if options.get("job_id") is None:
            options["job_id"] = self._clock.unique()
        planned, tracing = home.new(job, data, **options).job, self._app.tracing
        with nullcontext([planned]) if tracing is None else tracing.sending(home.name, [planned]) as (new,):
            self._writer.execute(INSERT, (home.name, str(new.id), written(new)))
        self._written_to()
        return str(new.id)

    def _queue(self, job: Any, given: Queue | str | None) -> Queue:
        queues = self._app.queues
        if given is not None:
            return queues[given if isinstance(given, str) else given.name]
        fitting = list(queues.values())
        if len(fitting) != 1 and callable(job):
            fitting = [queue for queue in fitting if _handles(queue, job)]
        if len(fitting) != 1:
            raise UsageError(f"say for which queue {shown(job)} is: add(…, queue=…)")
        return fitting[0]


def _handles(queue: Queue, job: Callable[..., Any]) -> bool:
    try:
        return bool(queue.handlers.name_of(job))
    except UsageError:
        return False
