"""What happened, as it happens and afterwards."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from toril import App, Fixed, Gap, JobContext, Retry
from toril.model import EventKind
from toril.records import EventRecord
from toril.testing import drain


async def take(events: AsyncIterator[EventRecord | Gap], until: EventKind) -> list[EventRecord]:
    found = []
    async for happening in events:
        assert isinstance(happening, EventRecord)
        found.append(happening)
        if happening.kind is until:
            return found
    raise AssertionError("events end only when nobody asks for more")


async def test_events_are_followed_from_now_on(tmp_path: Path) -> None:
    async def work(_: JobContext[Any]) -> None: ...

    app = App(f"sqlite:///{tmp_path}/t.db")
    queue = app.queue("q", {"work": work})
    async with app:
        await queue.add("work", job_id="before")
        following = asyncio.ensure_future(take(queue.events(), EventKind.COMPLETED))
        while (await queue.counts()).waiting == 1 and not following.done():
            await queue.add("work", job_id="after")  # once the listener has found its place
            await asyncio.sleep(0.05)
        await drain(app)
        seen = await asyncio.wait_for(following, 20)

    assert seen[-1].kind is EventKind.COMPLETED
    assert EventKind.ACTIVE in {event.kind for event in seen}


async def test_who_was_away_reads_on_from_where_they_were() -> None:
    app = App("memory://")
    queue = app.queue("q")
    async with app:
        await queue.add("a")
        first = await take(queue.events("0"), EventKind.WAITING)
        await queue.add("b")
        rest = await take(queue.events(first[-1].at), EventKind.WAITING)

    assert {event.job_id for event in first} == {"1"}
    assert {event.job_id for event in rest} == {"2"}


async def test_what_was_trimmed_away_unseen_is_told_as_a_gap() -> None:
    app = App("memory://")
    queue = app.queue("q")
    async with app:
        await queue.add("first")
        place = (await take(queue.events("0"), EventKind.WAITING))[-1].at
        for _ in range(8):
            await queue.add_many([("x", None)] * 1000)
        async for happening in queue.events(place):
            assert isinstance(happening, Gap)
            break


async def test_a_job_knows_what_became_of_it() -> None:
    async def breaks(ctx: JobContext[Any]) -> None:
        if ctx.attempt == 1:
            raise ValueError("not yet")

    app = App("memory://")
    queue = app.queue("q", {"breaks": breaks}, retry=Retry(2, Fixed(0)), keep_completed=True)
    async with app:
        job = await queue.add("breaks")
        await queue.add("breaks")
        await drain(app)
        kinds = [event.kind.value for event in await job.history()]

    assert kinds[0] == "added"
    assert kinds.count("active") == 2
    assert kinds[-1] == "completed"
