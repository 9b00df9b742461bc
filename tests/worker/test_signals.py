"""Signals: sent to jobs by people and webhooks, and read by the handlers that wait for them, on every engine."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.worker import handlers_for_processes as in_processes
from tests.worker.conftest import Seen, Timed, working
from toril import (
    App,
    Fixed,
    InboxFull,
    InvalidOption,
    InvalidPayload,
    Job,
    JobContext,
    NotFound,
    Retry,
    SignalKind,
    Signalled,
    SignalOutcome,
    StepClash,
    SyncJobContext,
    handler,
)
from toril.testing import context, memory, sync_context


@dataclass
class Approval:
    ok: bool
    by: str = "nobody"


APPROVAL = SignalKind("approval", Approval)


async def approve(ctx: JobContext[Any]) -> Approval | None:
    return await ctx.wait_for(APPROVAL)


async def in_an_hour(ctx: JobContext[None]) -> list[Any]:
    return [await ctx.wait_for("paid", int, timeout=3600), await ctx.wait_for("paid", int, timeout=3600)]


async def test_a_job_rests_until_its_signal_comes(timed: Timed) -> None:
    app = App("memory://")
    queue = app.queue("q", {"approve": approve}, keep_completed=True)
    async with timed(app) as test:
        job = await queue.add(approve)
        await test.drain()
        assert await job.state() == "delayed"
        await test.after("400d")
        assert await job.state() == "delayed", "a wait without a timeout is never over"

        assert await job.signal(APPROVAL, Approval(ok=True, by="ada")) == Signalled(SignalOutcome.WOKEN, job.id)
        await test.drain()

        assert await job.result() == Approval(True, "ada")


async def test_signals_that_come_early_are_kept_and_read_in_order_once(timed: Timed) -> None:
    app = App("memory://")
    queue = app.queue("q", {"in_an_hour": in_an_hour}, keep_completed=True)
    async with timed(app) as test:
        job = await queue.add(in_an_hour)
        sent = [(await job.signal("paid", amount, id=once)).outcome for amount, once in ((1, "a"), (9, "a"), (2, "b"))]
        await test.drain()

        assert sent == ["kept", "duplicate", "kept"]
        assert await job.result() == [1, 2]
        assert (await job.signal("paid", 3)).outcome == "ended"


async def test_a_wait_is_over_when_its_time_is_and_the_next_one_reads_what_comes_later(timed: Timed) -> None:
    app = App("memory://")
    queue = app.queue("q", {"in_an_hour": in_an_hour}, keep_completed=True)
    async with timed(app) as test:
        job = await queue.add(in_an_hour)
        await test.after("61m")
        assert await job.state() == "delayed"
        await job.signal("paid", 5)
        await test.drain()

        assert await job.result() == [None, 5]


async def test_a_signal_by_key_finds_whoever_waits_or_will_wait_for_it(timed: Timed) -> None:
    app = App("memory://")

    async def paid(ctx: JobContext[int]) -> Any:
        return await ctx.wait_for("paid", key=f"invoice:{ctx.data}", timeout="1h")

    queue = app.queue("q", {"paid": paid}, keep_completed=True, retry=Retry(1))
    async with timed(app) as test:
        early = await queue.signal("paid", {"amount": 1}, key="invoice:1")
        await queue.signal("paid", {"amount": 3}, key="invoice:3", ttl=60)
        one, two = await queue.add(paid, 1), await queue.add(paid, 2)
        await test.drain()
        clash = await queue.add(paid, 2)
        await test.drain()
        late = await queue.signal("paid", {"amount": 2}, key="invoice:2")
        await test.after("2m")
        three = await queue.add(paid, 3)
        await test.after("2h")

        assert early == Signalled(SignalOutcome.KEPT, None)
        assert late == Signalled(SignalOutcome.WOKEN, two.id)
        assert [await job.result() for job in (one, two)] == [{"amount": 1}, {"amount": 2}]
        assert await three.result() is None, "it came too late for what was kept for a minute"
        assert (await clash.refresh()).row is not None
        assert clash.record is not None
        assert clash.record.failure is not None
        assert clash.record.failure.kind == StepClash.__name__


@pytest.mark.parametrize("timeout", [None, "1d"])
async def test_a_signal_of_another_type_is_set_aside_and_the_wait_goes_on(timed: Timed, timeout: Any) -> None:
    app = App("memory://")
    seen = Seen(app, "signal_unfit")

    async def run(ctx: JobContext[None]) -> Approval | None:
        return await ctx.wait_for(APPROVAL, timeout=timeout)

    queue = app.queue("q", {"run": run}, keep_completed=True)
    async with timed(app) as test:
        job = await queue.add("run")
        await test.drain()
        with pytest.raises(InvalidPayload, match="ok"):
            await job.signal(APPROVAL, {"ok": "perhaps"})  # refused where the kind is known
        assert (await job.signal("approval", {"ok": "perhaps"})).outcome == "woken"
        await test.drain()
        assert await job.state() == "delayed"
        assert (await job.signal("approval", {"ok": True})).outcome == "woken"
        await test.drain()

        assert await job.result() == Approval(True)
        (line,) = await job.logs()
    (event,) = seen.of("signal_unfit")
    assert (event.job_id, event.attempt) == (job.id, 1)
    assert "ok" in event.error
    assert line == f"the signal for 'approval' was set aside: {event.error}"


async def test_a_queue_that_declares_a_signal_refuses_a_payload_of_another_type_by_its_name_too(timed: Timed) -> None:
    app = App("memory://")

    async def run(ctx: JobContext[None]) -> Approval | None:
        return await ctx.wait_for(APPROVAL)

    queue = app.queue("q", {"run": run}, keep_completed=True, signals=[APPROVAL])
    async with timed(app) as test:
        job = await queue.add("run")
        with pytest.raises(InvalidPayload, match="ok"):
            await job.signal("approval", {"ok": "perhaps"})
        with pytest.raises(InvalidPayload, match="ok"):
            await queue.signal("approval", {"ok": "perhaps"}, key="invoice:1")
        await job.signal("approval", {"ok": True})
        await job.signal("another", {"ok": "perhaps"})
        await test.drain()

        assert await job.result() == Approval(True)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("approval", "a list"),
        (["approval"], "'approval' is not one"),
        ([APPROVAL, APPROVAL], "two of the name 'approval'"),
    ],
)
def test_signals_are_declared_once_each(given: Any, why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        App("memory://").queue("q", signals=given)


async def test_a_wait_that_has_set_a_signal_aside_still_ends_in_its_time(timed: Timed) -> None:
    app = App("memory://")
    queue = app.queue("q", {"in_an_hour": in_an_hour}, keep_completed=True)
    async with timed(app) as test:
        job = await queue.add(in_an_hour)
        await test.after("30m")
        await job.signal("paid", "much")
        await test.after("29m")
        await job.signal("paid", "more")
        await test.after("2m")
        await job.signal("paid", 7)
        await test.drain()

        assert await job.result() == [None, 7], "the hour began with the wait"


async def test_a_signal_can_be_refused_unless_it_is_waited_for(timed: Timed) -> None:
    app = App("memory://")
    queue = app.queue("q", {"approve": approve}, keep_completed=True)
    async with timed(app) as test:
        job = await queue.add(approve)
        assert (await job.signal(APPROVAL, Approval(True), unless_waiting="refuse")).outcome == "not_waiting"
        await test.drain()
        first, second = [await job.signal(APPROVAL, Approval(True, by), unless_waiting="refuse") for by in "ab"]
        await test.drain()

        assert (first.outcome, second.outcome) == ("woken", "not_waiting")
        assert await job.result() == Approval(True, "a")


async def test_an_inbox_has_room_for_a_hundred_signals(timed: Timed) -> None:
    app = App("memory://")
    queue = app.queue("q", {"approve": approve})
    async with timed(app):
        job = await queue.add(approve)
        for _ in range(100):
            await job.signal("other")
        with pytest.raises(InboxFull, match=f"job '{job.id}' of queue 'q'"):
            await job.signal("other")

        gone: Job[Any] = Job(queue, "gone", "approve")
        with pytest.raises(NotFound, match="there is no job 'gone'"):
            await gone.signal("other")


async def test_the_first_of_several_signals_ends_a_wait(timed: Timed) -> None:
    app = App("memory://")

    async def run(ctx: JobContext[None]) -> list[Any]:
        first = await ctx.wait_for_any([APPROVAL, "withdrawn"], timeout="1h")
        return [first and first[0], await ctx.wait_for_any([APPROVAL, "withdrawn"], timeout="1h")]

    queue = app.queue("q", {"run": run}, keep_completed=True)
    async with timed(app) as test:
        job = await queue.add("run")
        await test.drain()
        await job.signal("withdrawn", "too expensive")
        await test.after("2h")

        assert await job.result() == ["withdrawn", None]


@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_plain_functions_wait_too(executor: str) -> None:
    app = App("memory://")
    seen, rests = Seen(app, "signal_unfit"), Seen(app, "parked")
    queue = app.queue("q", {"asks": handler(in_processes.asks, executor=executor)})  # type: ignore[arg-type]
    async with working(app):
        job = await queue.add("asks", result_ttl=600)
        await rests.until("parked")
        await job.signal("approval", "perhaps")
        await seen.until("signal_unfit")
        await job.signal("approval", True)
        await job.signal("cancelled", "late")
        assert await job.result(30) == [True, ["cancelled", "late"]]

    assert "approval" in seen.of("signal_unfit")[0].error


async def test_signals_are_encoded_as_their_queue_says() -> None:
    class Backwards:
        def dumps(self, value: Any) -> bytes:
            return str(value).encode()[::-1]

        def loads(self, data: bytes) -> Any:
            return data[::-1].decode()

    app = App("memory://")

    async def run(ctx: JobContext[Any]) -> Any:
        return await ctx.wait_for("word")

    queue = app.queue("q", {"run": run}, serializer=Backwards(), keep_completed=True)
    async with memory(app) as test:
        job = await queue.add("run")
        await job.signal("word", "secret")
        (kept,) = await app.store.steps.inbox("q", job.id)
        await test.drain()

        assert "secret" not in kept.payload
        assert await job.result() == "secret"


async def test_wrong_waits_and_signals_are_refused() -> None:
    app = App("memory://")
    queue = app.queue("q", {"approve": approve})
    ctx = context(None)
    with pytest.raises(InvalidOption, match="leave out"):
        await ctx.wait_for(APPROVAL, int)  # type: ignore[call-overload]
    with pytest.raises(InvalidOption, match="each signal once"):
        await ctx.wait_for_any([APPROVAL, "approval"])
    with pytest.raises(InvalidOption, match="a list of 1 to 100 signals"):
        await ctx.wait_for_any([])
    with pytest.raises(InvalidOption, match="a list of 1 to 100 signals"):
        await ctx.wait_for_any("approval")
    async with memory(app):
        job = await queue.add(approve)
        with pytest.raises(InvalidOption, match="'keep' or 'refuse'"):
            await job.signal("a", unless_waiting="never")  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="31 days"):
            await queue.signal("a", key="k", ttl="32d")


async def test_a_unit_test_gives_the_signals() -> None:
    ctx = context(None, signals={"approval": [Approval(True)], "paid": [1, 2]})

    assert await approve(ctx) == Approval(True)
    assert await approve(ctx) is None
    assert await ctx.wait_for_any(["approval", "paid"]) == ("paid", 1)
    plain: SyncJobContext[None] = sync_context(None, signals={"paid": [3]})
    assert plain.wait_for("paid") == 3
    assert plain.wait_for_any(["paid"]) is None


@pytest.mark.covers("R281")
async def test_signals_that_a_handler_never_reads_are_told(timed: Timed) -> None:
    app = App("memory://")
    seen = Seen(app, "signals_unread")

    async def run(ctx: JobContext[None]) -> Any:
        return await ctx.wait_for("approval")

    queue = app.queue("q", {"run": run}, keep_completed=True)
    async with timed(app) as test:
        curious, deaf = await queue.add("run"), await queue.add("run")
        await test.drain()
        for payload in (1, 2, 3):
            await deaf.signal("approval", payload)
        await deaf.signal("aproval", 4)
        await curious.signal("approval", 5)
        await test.drain()

        assert [await deaf.result(), await curious.result()] == [1, 5]
        assert await deaf.logs() == ["signals that were never read: approval, approval, aproval"]
        assert await curious.logs() == []
    (event,) = seen.of("signals_unread")
    assert (event.job_id, event.detail) == (deaf.id, ["approval", "approval", "aproval"])


async def test_signals_that_an_attempt_leaves_for_the_next_are_not_told(timed: Timed) -> None:
    app = App("memory://")
    seen = Seen(app, "signals_unread")

    async def run(ctx: JobContext[None]) -> list[Any]:
        first = await ctx.wait_for("number")
        if ctx.attempt == 1:
            raise ConnectionError("away")
        return [first, await ctx.wait_for("number")]

    queue = app.queue("q", {"run": run}, keep_completed=True, retry=Retry(2, Fixed(1)))
    async with timed(app) as test:
        job = await queue.add("run")
        for number in (1, 2):
            await job.signal("number", number)
        await test.after("1m")

        assert await job.result() == [1, 2]
    assert seen.of("signals_unread") == []


@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_signals_that_plain_functions_never_read_are_told_too(executor: str) -> None:
    app = App("memory://")
    seen, rests = Seen(app, "signals_unread"), Seen(app, "parked")
    queue = app.queue("q", {"asks": handler(in_processes.asks, executor=executor)}, keep_completed=True)  # type: ignore[arg-type]
    async with working(app):
        job = await queue.add("asks")
        await rests.until("parked")
        for name in ("approval", "approval", "cancelled"):
            await job.signal(name, True)
        await job.result(30)
        assert await job.logs() == ["signals that were never read: approval"]

    assert seen.of("signals_unread")[0].detail == ["approval"]
