"""Scanners: what is stuck in the application's own tables gets another chance."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toril import App, InvalidOption, NotFound, UsageError
from toril.testing import ManualClock, memory


class Table:
    """Rows of an application: since when each is in a stage, and how often it was given another chance."""

    def __init__(self, **minutes: float) -> None:
        now = datetime.fromtimestamp(ManualClock().now() / 1000, UTC)
        self.since = {name: now - timedelta(minutes=ago) for name, ago in minutes.items()}
        self.stage = dict.fromkeys(minutes, "importing")
        self.relaunches = dict.fromkeys(minutes, 0)

    def stuck(self, before: datetime) -> list[str]:
        return [name for name, since in self.since.items() if since <= before and self.stage[name] == "importing"]

    async def reset(self, name: str) -> bool:
        """Only what is still in an active stage."""
        if self.stage[name] != "importing":
            return False
        self.stage[name] = "pending"
        return True


@pytest.mark.covers("R111", "R120", "R122", "R124")
async def test_a_scanner_resets_what_has_been_stuck_for_too_long() -> None:
    app, table = App("memory://"), Table(long=16, short=14)
    app.scanner("stale", every=900, threshold=900, find=table.stuck, reset=table.reset)

    async with memory(app) as test:
        await test.drain()
        (run,) = (await app.queues["scanners"].runs("completed")).items
        (coming,) = (await app.queues["scanners"].jobs("delayed")).items

    assert table.stage == {"long": "pending", "short": "importing"}
    assert run.text == "1 found, 1 reset"
    assert coming.record is not None
    assert (coming.record.max_attempts, coming.record.priority) == (1, 10)


@pytest.mark.covers("R124", "X25")
async def test_a_dry_run_finds_and_resets_nothing() -> None:
    app, table = App("memory://"), Table(one=20, two=30)
    app.scanner("stale", every=900, find=table.stuck, reset=table.reset)

    async with memory(app):
        found = await app.scan("stale", dry_run=True)

    assert (found.summary, found.counts["found"]) == ("2 would be reset (dry run)", 2)
    assert set(table.stage.values()) == {"importing"}


@pytest.mark.covers("R111", "R123")
async def test_what_cannot_be_reset_is_told_and_left_to_the_next_run() -> None:
    app, table = App("memory://"), Table(done=20, bad=20, good=20)
    broken = {"bad"}

    async def find(before: datetime) -> Any:
        for name in ("done", *table.stuck(before)):
            yield name

    async def reset(name: str) -> bool:
        if name in broken:
            raise ConnectionError("away")
        return await table.reset(name)

    table.stage["done"] = "completed"
    app.scanner("stale", every=900, find=find, reset=reset, queue=app.queue("mine"))

    async with memory(app) as test:
        first = await app.scan("stale")
        broken.clear()
        await test.drain()

    assert first.counts == {"found": 3, "reset": 1, "unchanged": 1, "failed": 1}
    assert first.warnings == ["'bad': ConnectionError: away"]
    assert table.stage == {"done": "completed", "bad": "pending", "good": "pending"}


@pytest.mark.covers("R123", "R059")
async def test_a_scanner_that_fails_is_not_tried_again_before_its_next_time() -> None:
    app, tries = App("memory://"), list[int]()

    def find(before: datetime) -> list[str]:
        tries.append(test.clock.now())
        if len(tries) == 1:
            raise ConnectionError("away")
        return []

    app.scanner("stale", every=900, find=find, reset=print)
    async with memory(app) as test:
        await test.drain()
        await test.after(899)
        assert len(tries) == 1
        await test.after(1)

    assert tries[1] - tries[0] == 900_000


@pytest.mark.covers("R121")
async def test_a_scanner_relaunches_as_often_as_its_reset_allows() -> None:
    app, table = App("memory://"), Table(flaky=60)

    async def relaunch(name: str) -> bool:
        if table.relaunches[name] == 3:
            return False
        table.relaunches[name] += 1
        return True

    app.scanner("relaunch", every=1800, find=table.stuck, reset=relaunch)
    async with memory(app) as test:
        await test.drain()
        for _ in range(5):
            await test.after(1800)

    assert table.relaunches == {"flaky": 3}


async def test_a_scanner_stops_at_its_limit_and_can_be_cancelled() -> None:
    app, table = App("memory://"), Table(a=20, b=20, c=20)
    app.scanner("stale", every=900, find=table.stuck, reset=table.reset, limit=2)

    async with memory(app):
        assert (await app.scan("stale")).counts["reset"] == 2


async def test_what_a_generator_looks_up_is_looked_up_in_a_thread_and_no_further_than_the_limit() -> None:
    app, threads = App("memory://"), list[object]()

    def find(before: datetime) -> Any:
        for row in range(5):
            threads.append(threading.current_thread())
            yield row

    app.scanner("stale", every=900, find=find, reset=print, limit=2)
    async with memory(app):
        assert (await app.scan("stale")).counts["reset"] == 2

    assert len(threads) == 2
    assert threading.current_thread() not in threads


async def test_a_scanner_is_declared_once_and_rightly() -> None:
    app: Any = App("memory://")
    app.scanner("stale", every=900, find=list, reset=print)

    with pytest.raises(UsageError, match="already declared"):
        app.scanner("stale", every=900, find=list, reset=print)
    with pytest.raises(TypeError, match="find must be a function"):
        app.scanner("other", every=900, find="rows", reset=print)
    with pytest.raises(InvalidOption, match="limit"):
        app.scanner("other", every=900, find=list, reset=print, limit=0)
    with pytest.raises(NotFound, match="it has 'stale'"):
        await app.scan("stlae")
