"""Find a job wherever it is: in its queue, or, when it has failed for good, among the dead letters."""

from toril.errors import InvalidName
from toril.model import JobRef, JobRow, job_of, letter_id
from toril.store.engine import Store

__all__ = ["find_job", "find_linked_job"]


async def find_job(store: Store, queue: str, job_id: str) -> JobRow | None:
    """A job by its id; one that is a dead letter has the letter's id in `dead_letter`."""
    (row,) = await store.jobs(queue, [job_id])
    if row is not None:
        return row
    (letter,) = await store.dead_letters.get([letter_id(queue, job_id)])
    return None if letter is None else job_of(letter)


async def find_linked_job(store: Store, ref: JobRef) -> JobRow | None:
    """A child or a parent, as a job's own keys name it. None too if that is no job of this store: BullMQ's children may
    have another prefix, and other programs may have written anything."""
    try:
        return await find_job(store, ref.queue, ref.id)
    except InvalidName:
        return None
