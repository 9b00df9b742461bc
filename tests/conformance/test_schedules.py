"""Schedules: every step is one of compare and set, and a schedule has one run that has not started."""

from dataclasses import replace

import pytest

from tests.conformance.jobs import EVERY_OPTION, claim, claim_one, ids, job, settle
from toril.errors import InvalidName
from toril.model import (
    REMOVE,
    CatchUp,
    EventKind,
    Failed,
    Failure,
    JobOptions,
    Keep,
    Moved,
    NewJob,
    Overlap,
    Pause,
    Resume,
    Schedule,
    ScheduleRow,
    SetMaxWaiting,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock

MINUTE = 60_000


def every(ms: int = MINUTE, **options: object) -> Schedule:
    return Schedule(id="tick", job=NewJob(name="n", data='{"v": 1}'), every=ms, **options)  # type: ignore[arg-type]


async def put(engine: Store, schedule: Schedule, slot: int) -> Moved:
    before = (await engine.schedules.get("q", schedule.id)).view
    return await engine.schedules.put("q", schedule, slot, expects=before.slot if before else None)


async def view(engine: Store, schedule: str = "tick") -> ScheduleRow:
    found = (await engine.schedules.get("q", schedule)).view
    assert found is not None
    return found


async def pending(engine: Store) -> list[str]:
    """The runs that have not started."""
    states = (State.WAITING, State.PRIORITIZED, State.DELAYED)
    return [record.id for state in states for record in (await engine.page("q", state)).items]


@pytest.mark.covers("R213", "R215", "R200")
async def test_a_schedule_comes_back_as_it_was_put(engine: Store, clock: ManualClock) -> None:
    template = NewJob(
        name="report",
        data='{"to": "é"}',
        priority=5,
        attempts=3,
        options=EVERY_OPTION,
        expires=5000,
        metadata='{"tenant": 7}',
    )
    schedule = Schedule(
        id="nightly", job=template, cron="0 2 * * *", tz="Europe/Berlin", start=5, end=clock.now() * 2, limit=9,
        jitter=1000, min_interval=60_000, overlap=Overlap.SKIP, catch_up=CatchUp.ALL, window=7000, owner="jobs",
    )  # fmt: skip

    assert await put(engine, schedule, clock.now() + 500) is Moved.DONE

    found = await view(engine, "nightly")
    assert found == ScheduleRow(queue="q", schedule=schedule, slot=clock.now() + 500, count=1)
    run = await job(engine, f"repeat:nightly:{clock.now() + 500}")
    assert (run.name, run.data, run.state, run.due) == ("report", template.data, State.DELAYED, clock.now() + 500)
    assert (run.max_attempts, run.options, run.priority) == (3, template.options, 5)
    assert (run.metadata, run.expires_at) == ('{"tenant": 7}', clock.now() + 5000)


async def test_there_is_no_schedule_that_nobody_put(engine: Store) -> None:
    assert (await engine.schedules.get("q", "tick")).view is None
    assert (await engine.schedules.page("q")).items == ()
    assert await engine.schedules.overdue("q") == []
    assert not await engine.schedules.remove("q", "tick")
    assert not await engine.schedules.pause("q", "tick")
    assert await engine.schedules.advance("q", "tick", since=1, to=2) is Moved.STALE
    assert await engine.queues() == []


@pytest.mark.covers("R214")
async def test_of_many_who_put_one_schedule_one_succeeds(engine: Store, clock: ManualClock) -> None:
    outcomes = [await engine.schedules.put("q", every(), clock.now() + n, expects=None) for n in range(3)]

    assert outcomes == [Moved.DONE, Moved.STALE, Moved.STALE]
    assert await pending(engine) == [f"repeat:tick:{clock.now()}"]


@pytest.mark.covers("R214", "F12")
async def test_of_many_who_make_the_next_run_one_succeeds(engine: Store, clock: ManualClock) -> None:
    slot = clock.now()
    await put(engine, every(), slot)
    run = await claim_one(engine)

    moves = [
        await engine.schedules.advance("q", "tick", since=slot, to=slot + MINUTE, started=run.lease.id)
        for _ in range(3)
    ]

    assert moves == [Moved.DONE, Moved.STALE, Moved.STALE]
    found = await view(engine)
    assert (found.slot, found.count, found.busy) == (slot + MINUTE, 2, True)
    assert await pending(engine) == [f"repeat:tick:{slot + MINUTE}"]


async def test_a_schedule_is_busy_until_the_run_started_last_has_ended(engine: Store, clock: ManualClock) -> None:
    kept = Schedule(id="tick", job=NewJob(name="n", options=JobOptions(keep_failed=Keep())), every=MINUTE)
    await put(engine, kept, clock.now())
    run = await claim_one(engine)
    await engine.schedules.advance("q", "tick", since=clock.now(), to=clock.now() + MINUTE, started=run.lease.id)
    before = await view(engine)

    await settle(engine, run.lease, Failed(Failure("no")))

    assert (before.busy, (await view(engine)).busy) == (True, False)


async def test_a_run_that_is_due_waits_at_once(engine: Store, clock: ManualClock) -> None:
    await put(engine, every(), clock.now() - 5)

    assert ids((await claim(engine)).jobs) == [f"repeat:tick:{clock.now() - 5}"]


@pytest.mark.parametrize("paused", ["open", "paused"])
async def test_a_change_replaces_the_run_that_has_not_started(engine: Store, clock: ManualClock, paused: str) -> None:
    if paused == "paused":
        await engine.configure("q", [Pause()])
    await put(engine, every(), clock.now())
    other = Schedule(id="tick", job=NewJob(name="n", data="2"), every=MINUTE)

    assert await put(engine, other, clock.now()) is Moved.DONE
    assert await put(engine, other, clock.now() + MINUTE) is Moved.DONE

    assert await pending(engine) == [f"repeat:tick:{clock.now() + MINUTE}"]
    assert (await job(engine, f"repeat:tick:{clock.now() + MINUTE}")).data == "2"
    await engine.configure("q", [Resume()])
    assert (await claim(engine)).jobs == ()


async def test_a_change_leaves_a_run_alone_that_has_started(engine: Store, clock: ManualClock) -> None:
    slot = clock.now()
    await put(engine, every(), slot)
    run = await claim_one(engine)

    assert await put(engine, every(2 * MINUTE), slot) is Moved.TAKEN
    assert await put(engine, every(2 * MINUTE), slot + MINUTE) is Moved.DONE

    assert await engine.schedules.advance("q", "tick", since=slot, to=slot + 9, started=run.lease.id) is Moved.STALE
    assert await pending(engine) == [f"repeat:tick:{slot + MINUTE}"]
    assert (await job(engine, run.lease.id)).state is State.ACTIVE


async def test_a_slot_has_one_run_even_if_it_is_kept(engine: Store, clock: ManualClock) -> None:
    slot = clock.now()
    kept = Schedule(id="tick", job=NewJob(name="n", options=JobOptions(keep_completed=Keep())), every=MINUTE)
    await put(engine, kept, slot)
    await settle(engine, (await claim_one(engine)).lease)

    assert await engine.schedules.advance("q", "tick", since=slot, to=slot) is Moved.TAKEN
    assert await engine.schedules.advance("q", "tick", since=slot, to=slot + 1) is Moved.DONE


async def test_a_change_does_not_run_a_slot_again_whose_run_is_gone(engine: Store, clock: ManualClock) -> None:
    """The worker that ran it could not make the next one, and the code has changed since."""
    slot = clock.now()
    gone = Schedule(id="tick", job=NewJob(name="n", options=JobOptions(keep_completed=REMOVE)), every=MINUTE)
    await put(engine, gone, slot)
    await settle(engine, (await claim_one(engine)).lease)

    again = await put(engine, replace(gone, job=NewJob(name="other")), slot)

    assert again is Moved.TAKEN
    assert await pending(engine) == []


async def test_a_schedule_that_is_over_makes_no_more_runs(engine: Store, clock: ManualClock) -> None:
    slot = clock.now()
    await put(engine, every(limit=1), slot)
    run = await claim_one(engine)

    assert await engine.schedules.advance("q", "tick", since=slot, to=None, started=run.lease.id) is Moved.DONE

    assert ((await view(engine)).over, (await view(engine)).next) == (True, None)
    assert await engine.schedules.advance("q", "tick", since=slot, to=slot + 1) is Moved.STALE
    assert await engine.schedules.overdue("q", now=slot + 9 * MINUTE) == []


@pytest.mark.parametrize("fate", ["ended", "removed", "cancelled"])
async def test_a_schedule_whose_run_is_gone_without_a_next_one_is_overdue(
    engine: Store, clock: ManualClock, fate: str
) -> None:
    slot = clock.now()
    await put(engine, every(), slot)
    waiting = await engine.schedules.overdue("q")
    run = f"repeat:tick:{slot}"
    match fate:
        case "removed":
            await engine.remove("q", [run])
        case "cancelled":
            await engine.cancel("q", [run], reason="no")
        case _:
            claimed = await claim_one(engine)
            waiting += await engine.schedules.overdue("q")  # whoever runs it makes the next one
            await settle(engine, claimed.lease)

    found = await engine.schedules.overdue("q")

    assert waiting == []
    assert [each.slot for each in found] == [slot]
    assert await engine.schedules.advance("q", "tick", since=slot, to=slot + MINUTE) is Moved.DONE
    assert await engine.schedules.overdue("q") == []


async def test_a_paused_schedule_has_no_run_until_it_goes_on(engine: Store, clock: ManualClock) -> None:
    slot = clock.now() + 10
    await put(engine, every(), slot)

    assert await engine.schedules.pause("q", "tick")
    assert await engine.schedules.pause("q", "tick")

    found = await view(engine)
    assert (found.paused, found.next, await pending(engine)) == (True, None, [])
    assert await put(engine, every(2 * MINUTE), slot + 5) is Moved.DONE
    assert await pending(engine) == []
    assert await engine.schedules.overdue("q", now=slot + MINUTE) == []
    assert await engine.schedules.resume("q", "tick", since=slot + 5, to=slot + MINUTE) is Moved.DONE
    assert await engine.schedules.resume("q", "tick", since=slot + MINUTE, to=slot + MINUTE) is Moved.STALE
    assert ((await view(engine)).paused, await pending(engine)) == (False, [f"repeat:tick:{slot + MINUTE}"])


async def test_removing_a_schedule_removes_its_run_that_has_not_started(engine: Store, clock: ManualClock) -> None:
    slot = clock.now()
    await put(engine, every(), slot)

    assert await engine.schedules.remove("q", "tick")

    assert (await engine.schedules.get("q", "tick")).view is None
    assert await pending(engine) == []
    kinds = [(event.kind, event.job_id) for event in (await engine.events("q")).items]
    assert kinds[-1] == (EventKind.REMOVED, f"repeat:tick:{slot}")


@pytest.mark.covers("X18")
async def test_what_the_code_no_longer_declares_is_removed_and_nothing_else(engine: Store, clock: ManualClock) -> None:
    for name, owner in (("old", "jobs"), ("kept", "jobs"), ("theirs", "billing"), ("dynamic", None)):
        made = Schedule(id=name, job=NewJob(name="n"), every=MINUTE, owner=owner)
        await put(engine, made, clock.now() + MINUTE)

    assert await engine.schedules.sync("q", "jobs", ["kept", "new"]) == ["old"]
    assert await engine.schedules.sync("q", "jobs", ["kept", "new"]) == []
    assert await engine.schedules.sync("q", "nobody", []) == []
    with pytest.raises(InvalidName, match="an app's name"):
        await engine.schedules.sync("q", "", [])

    assert [each.schedule.id for each in (await engine.schedules.page("q")).items] == ["dynamic", "kept", "theirs"]
    assert len(await pending(engine)) == 3


async def test_schedules_are_listed_page_by_page(engine: Store, clock: ManualClock) -> None:
    for n in range(5):
        await put(engine, Schedule(id=f"s{n}", job=NewJob(name="n"), every=MINUTE), clock.now() + 100 - n)

    first = await engine.schedules.page("q", limit=3)
    second = await engine.schedules.page("q", limit=3, cursor=first.cursor)

    assert [each.schedule.id for each in first.items] == ["s0", "s1", "s2"]
    assert [each.schedule.id for each in second.items] == ["s3", "s4"]
    assert second.cursor is None


@pytest.mark.parametrize("due", [0, MINUTE])
async def test_draining_and_cleaning_leave_a_schedule_its_run(engine: Store, clock: ManualClock, due: int) -> None:
    await engine.add("q", [NewJob(name="before"), NewJob(name="later", delay=1000)])
    await put(engine, every(), clock.now() + due)
    await engine.add("q", [NewJob(name="after"), NewJob(name="later", delay=1000)])
    clock.advance(10)
    not_started = frozenset({State.WAITING, State.DELAYED})

    swept = await engine.drain("q", states=not_started)
    for state in not_started:
        await engine.clean("q", state=state, grace=0)

    assert sorted(swept.ids) == ["1", "2", "4", "5"]
    assert await pending(engine) == [f"repeat:tick:{clock.now() - 10 + due}"]


async def test_obliterating_a_queue_takes_its_schedules_along(engine: Store, clock: ManualClock) -> None:
    await put(engine, every(), clock.now())
    await engine.schedules.pause("q", "tick")

    await engine.obliterate("q")

    assert (await engine.schedules.page("q")).items == ()
    assert await put(engine, every(), clock.now()) is Moved.DONE
    assert not (await view(engine)).paused


async def test_a_full_queue_does_not_stop_its_schedules(engine: Store, clock: ManualClock) -> None:
    await engine.configure("q", [SetMaxWaiting(1)])
    await engine.add("q", [NewJob(name="n")])

    assert await put(engine, every(), clock.now()) is Moved.DONE
