"""Who waits for a signal, over all queues of a store."""

import pytest

from tests.conformance.stepping import resting, running, sleep, steps_of, wait
from toril.errors import InvalidOption
from toril.model import JobRow, NewSignal, SignalWait
from toril.operate.steps import SignalWaiter, waiting_for_signals, waiting_job
from toril.store.engine import Store


async def _waiting(engine: Store, queues: list[str], signal: str | None = None, limit: int = 50) -> list[SignalWaiter]:
    """All of them, page by page."""
    found: list[SignalWaiter] = []
    cursor: str | None = None
    while True:
        page = await waiting_for_signals(engine, queues, signal, cursor=cursor, limit=limit)
        assert len(page) <= limit
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


async def _rests(engine: Store, queue: str, *, asks: str | None = None, seconds: int | None = None) -> JobRow:
    lease = (await running(engine, queue=queue)).lease
    first = sleep("s", 500) if asks is None else wait(asks, delay=None if seconds is None else seconds * 1_000)
    return await resting(engine, lease, first)


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_who_waits_for_a_signal_is_listed_queue_by_queue(engine: Store, limit: int) -> None:
    late = await _rests(engine, "b", asks="approval", seconds=90)
    soon = await _rests(engine, "b", asks="approval", seconds=30)
    await _rests(engine, "b")  # sleeps
    paid = await _rests(engine, "a", asks="paid")
    await _rests(engine, "c")

    found = await _waiting(engine, ["c", "b", "a"], limit=limit)
    approvals = await _waiting(engine, ["a", "b", "c"], "approval", limit=limit)

    assert [(each.job.queue, each.job.id) for each in found] == [("a", paid.id), ("b", soon.id), ("b", late.id)]
    assert [each.until for each in found] == [None, soon.due, late.due]
    assert [each.signals for each in approvals] == [(SignalWait("approval"),)] * 2
    assert [each.job.id for each in approvals] == [soon.id, late.id]


async def test_a_job_that_waits_for_several_signals_is_listed_once(engine: Store) -> None:
    lease = (await running(engine)).lease
    both = wait("approval", "withdrawn", key="any", delay=9_000)
    row = await resting(engine, lease, both, wait("paid", key="paid", by="invoice:7", delay=4_000), sleep("s", 1_000))

    (every,) = await _waiting(engine, ["q"])
    (paid,) = await _waiting(engine, ["q"], "paid")

    assert every.since == paid.since == (row.due or 0) - 1_000
    assert (every.until, paid.until) == (every.since + 4_000, every.since + 4_000)
    assert every.signals == (SignalWait("approval"), SignalWait("withdrawn"), SignalWait("paid", "invoice:7"))
    assert [each.key for each in every.waits] == ["any", "paid"]
    assert [each.key for each in paid.waits] == ["paid"]


async def test_who_has_got_the_signal_waits_no_more(engine: Store) -> None:
    row = await _rests(engine, "q", asks="approval")
    await steps_of(engine).deliver("q", [NewSignal(name="approval", job_id=row.id)])

    (woken,) = await engine.jobs("q", [row.id])
    assert await _waiting(engine, ["q"]) == []
    assert woken is not None
    assert waiting_job(woken) is None


async def test_a_listing_goes_on_when_its_queue_is_gone_and_refuses_other_cursors(engine: Store) -> None:
    row = await _rests(engine, "c", asks="approval")

    page = await waiting_for_signals(engine, ["a", "c"], cursor="b:7-7")
    assert [each.job.id for each in page] == [row.id]
    for wrong in ("", "c", "c:not a place"):
        with pytest.raises(InvalidOption, match="cursor"):
            await waiting_for_signals(engine, ["c"], cursor=wrong)
