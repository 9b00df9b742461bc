"""Jobs that are added one by one at the same time share calls to the store; each is answered for itself."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from toril.client.producer import AddBatcher
from toril.errors import AddUncertain, EngineUnavailable, QueueFull
from toril.model import Added, AddOutcome, NewJob
from toril.model.states import State


class Store:
    """Notes what it is given at once, and refuses what does not fit."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.calls: list[int] = []
        self.room = room
        self._stored = 0

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        self.calls.append(len(jobs))
        await asyncio.sleep(0)
        if self._stored + len(jobs) > self.room:
            raise QueueFull("full")
        self._stored += len(jobs)
        return [Added(job.name, AddOutcome.ADDED, State.WAITING) for job in jobs]


async def names(together: AddBatcher, store: Store, count: int, data: str = "") -> list[object]:
    adding = [together.add(store.add, NewJob(name=f"n{n}", data=data)) for n in range(count)]
    found = await asyncio.gather(*adding, return_exceptions=True)
    return [each.id if isinstance(each, Added) else type(each) for each in found]


async def test_a_lone_job_goes_at_once_and_those_of_the_same_tick_follow_in_one_call() -> None:
    store, together = Store(), AddBatcher()

    assert await names(together, store, 1) == ["n0"]
    assert await names(together, store, 50) == [f"n{n}" for n in range(50)]
    assert await names(together, store, 1) == ["n0"]

    assert store.calls == [1, 1, 49, 1]


async def test_one_call_carries_a_bounded_number_and_size() -> None:
    store, together = Store(), AddBatcher()

    await names(together, store, 251)
    await names(together, store, 4, data="x" * 600_000)

    assert store.calls == [1, 100, 100, 50, 1, 1, 1, 1]


async def test_where_not_all_fit_as_many_are_stored_as_one_by_one() -> None:
    store, together = Store(room=3), AddBatcher()

    assert await names(together, store, 5) == ["n0", "n1", "n2", QueueFull, QueueFull]


async def test_a_failure_is_told_to_all_and_what_is_uncertain_to_each_by_its_own_id() -> None:
    together = AddBatcher()

    async def away(jobs: Sequence[NewJob]) -> list[Added]:
        raise EngineUnavailable("away")

    async def uncertain(jobs: Sequence[NewJob]) -> list[Added]:
        raise AddUncertain("uncertain", job_ids=[job.name for job in jobs])

    async def added(store: object, count: int) -> list[BaseException | Added]:
        adding = [together.add(store, NewJob(name=f"n{n}")) for n in range(count)]  # type: ignore[arg-type]
        return await asyncio.gather(*adding, return_exceptions=True)

    refused = await added(away, 3)
    assert [str(error) for error in refused] == ["away"] * 3
    assert len({id(error) for error in refused}) == 3  # each is raised elsewhere, and grows by where
    found = await added(uncertain, 3)
    assert [error.job_ids for error in found if isinstance(error, AddUncertain)] == [("n0",), ("n1",), ("n2",)]


def test_a_loop_that_ended_in_the_middle_of_a_tick_keeps_nobody_waiting() -> None:
    together, store = AddBatcher(), Store()

    async def refused(jobs: Sequence[NewJob]) -> list[Added]:
        raise EngineUnavailable("away")

    with pytest.raises(EngineUnavailable):
        asyncio.run(together.add(refused, NewJob(name="n")))

    assert asyncio.run(names(together, store, 2)) == ["n0", "n1"]


async def test_a_caller_who_gives_up_within_the_tick_adds_nothing_and_takes_nobody_along() -> None:
    store, together = Store(), AddBatcher()
    tasks = [asyncio.create_task(together.add(store.add, NewJob(name=f"n{n}"))) for n in range(4)]
    asyncio.get_running_loop().call_soon(tasks[2].cancel)  # after all of them have asked, before the tick is over

    found = await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(each) for each in found] == [Added, Added, asyncio.CancelledError, Added]
    assert store.calls == [1, 2]


async def test_a_caller_who_gives_up_while_it_is_stored_takes_nobody_along() -> None:
    store, together, under_way = Store(), AddBatcher(), asyncio.Event()

    async def slowly(jobs: Sequence[NewJob]) -> list[Added]:
        under_way.set()
        await asyncio.sleep(0.01)
        return await store.add(jobs)

    tasks = [asyncio.create_task(together.add(slowly, NewJob(name=f"n{n}"))) for n in range(4)]
    await under_way.wait()
    await asyncio.sleep(0)
    tasks[2].cancel()

    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in found] == [Added, Added, asyncio.CancelledError, Added]


async def test_nobody_waits_for_what_is_cancelled_where_not_all_fit() -> None:
    together, first = AddBatcher(), asyncio.Event()

    async def full(jobs: Sequence[NewJob]) -> list[Added]:
        if len(jobs) > 1:
            first.set()
            raise QueueFull("full")
        await asyncio.sleep(3600)
        return []

    tasks = [asyncio.create_task(together.add(full, NewJob(name=f"n{n}"))) for n in range(4)]
    await first.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task()} - set(tasks):
        task.cancel()  # as a loop does that ends

    found = await asyncio.wait_for(asyncio.gather(*tasks[1:], return_exceptions=True), 60)
    assert [type(each) for each in found] == [asyncio.CancelledError] * 3
    tasks[0].cancel()


def test_two_loops_in_one_tick_keep_nobody_waiting() -> None:
    together, store, other = AddBatcher(), Store(), asyncio.new_event_loop()

    async def both() -> list[object]:
        adding = [asyncio.create_task(together.add(store.add, NewJob(name=f"n{n}"))) for n in range(3)]
        await asyncio.sleep(0)  # they have asked, and two of them wait for the end of the tick
        with ThreadPoolExecutor(1) as thread:
            thread.submit(other.run_until_complete, together.add(store.add, NewJob(name="other"))).result()
        found = await asyncio.wait_for(asyncio.gather(*adding), 60)
        return [each.id for each in found]

    assert asyncio.run(both()) == ["n0", "n1", "n2"]
    other.close()
