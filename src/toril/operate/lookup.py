"""Finds queues and jobs wherever they are: queues without jobs, and jobs among the dead letters."""

from toril.errors import InvalidName
from toril.model import JobRef, JobRow, job_of, letter_id
from toril.model.names import check_queue_name
from toril.store.engine import Store

__all__ = ["find_job", "find_linked_job", "find_queues"]


async def find_queues(store: Store) -> list[str]:
    """The queues that the store has or a live worker serves; on Redis, the store has a queue from its first job on."""
    served = {name for worker in await store.workers() for name in worker.queues if _is_queue_name(name)}
    return sorted(served.union(await store.queues()))


def _is_queue_name(name: str) -> bool:
    """Other programs can write heartbeats too, with any names in them."""
    try:
        return check_queue_name(name) == name
    except InvalidName:
        return False


async def find_job(store: Store, queue: str, job_id: str) -> JobRow | None:
    """A job by its id; one that is a dead letter has the letter's id in `dead_letter`."""
    (row,) = await store.jobs(queue, [job_id])
    if row is not None:
        return row
    (letter,) = await store.dead_letters.get([letter_id(queue, job_id)])
    return None if letter is None else job_of(letter)


async def find_linked_job(store: Store, ref: JobRef) -> JobRow | None:
    """A child or a parent, as named in a job's own keys. None too if it is not a job of this store: BullMQ's children
    may have another prefix, and other programs may have written anything."""
    try:
        return await find_job(store, ref.queue, ref.id)
    except InvalidName:
        return None
